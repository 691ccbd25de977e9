-- How many permits are live; changes nothing.  Rules: permits.rs `Permits::held`.
-- KEYS[1]  the permits, see rules.lua
-- ARGV     now_us ('' = Redis' clock)
-- Reply    the number
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end

return permit_held(KEYS[1], now)
