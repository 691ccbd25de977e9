-- Take a permit if one is free.  Rules: permits.rs `Permits::acquire`.
-- KEYS[1]  the permits, see rules.lua
-- ARGV     limit, lease_us, holder, now_us ('' in production: Redis' own clock decides)
-- Reply    {1} taken | {0, retry_after_us} all are held
local code, retry_after_us = permit_check(KEYS[1], tonumber(ARGV[1]), NOW)
if code == 1 then permit_add(KEYS[1], ARGV[3], tonumber(ARGV[2]), NOW) end
return {code, retry_after_us}
