-- This replica lives; how many do?
-- KEYS[1]  sorted set: replica -> the time (ms) until which it counts as alive
-- ARGV     replica, alive_ms, now_us ('' in production: Redis' own clock decides)
-- Reply    live replicas, this one included
local function server_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local alive_ms = tonumber(ARGV[2])
local now_ms = tonumber(ARGV[3]) and math.floor(ARGV[3] / 1000) or server_ms()
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now_ms))
redis.call('ZADD', KEYS[1], string.format('%.0f', now_ms + alive_ms), ARGV[1])
redis.call('PEXPIRE', KEYS[1], 2 * alive_ms)
return redis.call('ZCARD', KEYS[1])
