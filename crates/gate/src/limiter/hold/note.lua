-- Writes down when a hold ends, before it is taken.
-- KEYS[1]  sorted set: line -> end in microseconds; absent = none
-- ARGV     how long it lasts in microseconds, its line, now
-- Reply    1
local lasts = tonumber(ARGV[1])
call('ZADD', KEYS[1], int(NOW + lasts), ARGV[2])
local ttl = tonumber(ttl_ms(lasts + 3600000000))
if call('PTTL', KEYS[1]) < ttl then call('PEXPIRE', KEYS[1], int(ttl)) end
return 1
