-- The holds whose time is over. Takes none of them away: who has dealt with one does.
-- KEYS[1]  see note.lua
-- ARGV     how many at most, now
-- Reply    their lines, the first ended first
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(NOW), 'LIMIT', 0, ARGV[1])
