-- Forgets a key.
-- KEYS     the limit's key; the mark of its holds, string `reset_us`: what was held until then is not given back
-- ARGV     how long the longest hold is known, in microseconds; now
-- Reply    1
call('DEL', KEYS[1])
call('SET', KEYS[2], int(NOW), 'PX', ttl_ms(tonumber(ARGV[1])))
return 1
