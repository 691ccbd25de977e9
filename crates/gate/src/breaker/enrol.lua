-- Put a circuit that changed on the list.
-- KEYS[1]  zset target -> time of its last change
-- ARGV     target, most, ttl_us, now_us ('' in production: Redis' own clock decides)
-- Reply    1
local ttl_us = tonumber(ARGV[3])
call('ZADD', KEYS[1], int(NOW), ARGV[1])
call('ZREMRANGEBYRANK', KEYS[1], 0, -tonumber(ARGV[2]) - 1)
if call('PTTL', KEYS[1]) < tonumber(ttl_ms(ttl_us)) then expire(KEYS[1], ttl_us) end
return 1
