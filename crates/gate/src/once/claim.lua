-- Claim a name.  Rules: claim.rs `Record::claim`.
-- KEYS[1]  the record, see rules.lua
-- ARGV     owner, lease_us, now_us ('' in production: Redis' own clock decides)
-- Reply    {1, fence} won | {0, retry_after_us} in progress | {2, result} done
return {once_claim(KEYS[1], ARGV[1], tonumber(ARGV[2]), NOW)}
