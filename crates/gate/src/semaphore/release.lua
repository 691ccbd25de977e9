-- Give a permit back; the second time does nothing.  Rules: permits.rs `Permits::release`.
-- KEYS[1]  the permits, see rules.lua
-- ARGV     holder
-- Reply    1 released | 0 it was gone already
return permit_release(KEYS[1], ARGV[1])
