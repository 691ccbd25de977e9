-- End a claim without a result.  Rules: claim.rs `Record::abandon`.
-- KEYS[1]  the record, see rules.lua
-- ARGV     owner, now_us ('' = Redis' clock)
-- Reply    1 freed | 0 the claim was lost
return once_abandon(KEYS[1], ARGV[1], NOW)
