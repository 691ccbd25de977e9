-- End a claim with its result.  Rules: claim.rs `Record::complete`.
-- KEYS[1]  the record, see rules.lua
-- ARGV     owner, keep_us, result, now_us ('' = Redis' clock)
-- Reply    1 done | 0 the claim was lost
local now = tonumber(ARGV[4])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end

return once_complete(KEYS[1], ARGV[1], ARGV[3], tonumber(ARGV[2]), now)
