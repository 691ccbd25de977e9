-- Count a permit that was given while Redis was away; it is held, whatever the limit says.  Rules: permits.rs `Permits::add`.
-- KEYS[1]  the permits, see rules.lua
-- ARGV     lease_us, holder, now_us ('' = Redis' clock)
-- Reply    1
local now = tonumber(ARGV[3])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end

permit_add(KEYS[1], ARGV[2], tonumber(ARGV[1]), now)
return 1
