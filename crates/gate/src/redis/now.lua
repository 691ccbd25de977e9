-- The clock and the number format of every script. Goes first in each of them.
-- The last ARGV is `now` in microseconds: '' in production, so that Redis' own clock decides; a number in tests.
local MANUAL = tonumber(ARGV[#ARGV])
local NOW = MANUAL
if not NOW then
  local t = redis.call('TIME')
  NOW = t[1] * 1000000 + t[2]
end

-- Numbers are whole and below 2^53; Lua's own format would keep only 14 digits, and '%.0f' costs more.
local function int(n) return string.format('%d', n) end

-- Milliseconds until a key that is needed for `us` more microseconds may go. Under a manual clock it stays ten minutes
-- longer, so that real time takes nothing from a test.
local function ttl_ms(us)
  local ms = math.ceil(us / 1000)
  if ms < 1 then ms = 1 end
  if MANUAL then ms = ms + 600000 end
  return int(ms)
end

local function expire(key, us) redis.call('PEXPIRE', key, ttl_ms(us)) end

-- Set by rules that gather their writes; batch.lua calls it once, after the last call.
local finish
