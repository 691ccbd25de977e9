-- Extend the owner's claim.  Rules: claim.rs `Record::renew`.
-- KEYS[1]  the record, see rules.lua
-- ARGV     owner, lease_us, now_us ('' = Redis' clock)
-- Reply    1 extended | 0 lost
return once_renew(KEYS[1], ARGV[1], tonumber(ARGV[2]), NOW)
