-- Put a circuit that changed on the list.
-- KEYS[1]  zset target -> time of its last change
-- ARGV     target, most, ttl_us, now_us ('' in production: Redis' own clock decides)
-- Reply    1
local now = tonumber(ARGV[4])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end

local ttl_us = tonumber(ARGV[3])
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -tonumber(ARGV[2]) - 1)
local ttl_ms = math.ceil(ttl_us / 1000)
if redis.call('PTTL', KEYS[1]) < ttl_ms then redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ttl_ms)) end
return 1
