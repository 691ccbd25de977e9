-- How many permits are live; changes nothing.  Rules: permits.rs `Permits::held`.
-- KEYS[1]  the permits, see rules.lua
-- ARGV     now_us ('' = Redis' clock)
-- Reply    the number
return permit_held(KEYS[1], NOW)
