-- Extend a holder's own lease.  Rules: permits.rs `Permits::renew`.
-- KEYS[1]  the permits, see rules.lua
-- ARGV     lease_us, holder, now_us ('' = Redis' clock)
-- Reply    1 extended | 0 lost
return permit_renew(KEYS[1], ARGV[2], tonumber(ARGV[1]), NOW)
