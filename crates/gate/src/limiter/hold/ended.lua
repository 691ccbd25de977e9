-- The holds whose time is over, for one process at a time: who does not deal with them in time leaves them to the next.
-- KEYS[1]  see note.lua
-- ARGV     how many at most, for how long in microseconds, now
-- Reply    their lines, the first ended first
local lines = call('ZRANGEBYSCORE', KEYS[1], '-inf', int(NOW), 'LIMIT', 0, ARGV[1])
local again_at = int(NOW + tonumber(ARGV[2]))
for _, line in ipairs(lines) do call('ZADD', KEYS[1], again_at, line) end
return lines
