-- End a claim with its result.  Rules: claim.rs `Record::complete`.
-- KEYS[1]  the record, see rules.lua
-- ARGV     owner, keep_us, result, now_us ('' = Redis' clock)
-- Reply    1 done | 0 the claim was lost
return once_complete(KEYS[1], ARGV[1], ARGV[3], tonumber(ARGV[2]), NOW)
