-- Count a permit that was given while Redis was away; it is held, whatever the limit says.
-- Rules: permits.rs `Permits::add`.
-- KEYS[1]  the permits, see rules.lua
-- ARGV     lease_us, holder, now_us ('' = Redis' clock)
-- Reply    1
permit_add(KEYS[1], ARGV[2], tonumber(ARGV[1]), NOW)
return 1
