-- The clock and the number format of every script. Goes first in each of them.
-- The last ARGV is `now` in microseconds: '' in production, so that Redis' own clock decides; a number in tests.
local KEYS, ARGV, call = KEYS, ARGV, redis.call -- a local is found faster than a global
local MANUAL = tonumber(ARGV[#ARGV])
local NOW = MANUAL
if not NOW then
  local t = call('TIME')
  NOW = t[1] * 1000000 + t[2]
end

-- Numbers are whole and below 2^53; Lua's own format would keep only 14 digits, and '%.0f' costs more. What goes to Redis is
-- text, because it would write a number out as a fraction first. The calls of a batch write the same few: each is made once.
local ints, ttls = {}, {}
local function int(n)
  local text = ints[n]
  if not text then
    text = string.format('%d', n)
    ints[n] = text
  end
  return text
end

-- Milliseconds until a key that is needed for `us` more microseconds may go. Under a manual clock it stays ten minutes
-- longer, so that real time takes nothing from a test.
local function ttl_ms(us)
  local text = ttls[us]
  if text then return text end
  local ms = math.ceil(us / 1000)
  if ms < 1 then ms = 1 end
  if MANUAL then ms = ms + 600000 end
  ttls[us] = int(ms)
  return ttls[us]
end

local function expire(key, us) call('PEXPIRE', key, ttl_ms(us)) end

-- Set by rules that gather their writes; batch.lua calls it once, after the last call.
local finish
