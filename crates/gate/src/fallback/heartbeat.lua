-- This replica lives; how many do, and how many of them decide without Redis?
-- KEYS[1]  sorted set: replica -> the time (ms) until which it counts as alive
-- KEYS[2]  the same of those that decide some calls alone
-- ARGV     replica, alive_ms, 1 if it decides some calls alone, now_us ('' in production: Redis' own clock decides)
-- Reply    live replicas, this one included; how many of them decide some calls alone
local function server_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local alive_ms = tonumber(ARGV[2])
local now_ms = tonumber(ARGV[4]) and math.floor(ARGV[4] / 1000) or server_ms()
for i, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now_ms))
  if i == 1 or ARGV[3] == '1' then
    redis.call('ZADD', key, string.format('%.0f', now_ms + alive_ms), ARGV[1])
    redis.call('PEXPIRE', key, 2 * alive_ms)
  else
    redis.call('ZREM', key, ARGV[1])
  end
end
return { redis.call('ZCARD', KEYS[1]), redis.call('ZCARD', KEYS[2]) }
