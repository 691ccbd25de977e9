-- End a claim without a result.  Rules: claim.rs `Record::abandon`.
-- KEYS[1]  the record, see rules.lua
-- ARGV     owner, now_us ('' = Redis' clock)
-- Reply    1 freed | 0 the claim was lost
local now = tonumber(ARGV[2])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end

return once_abandon(KEYS[1], ARGV[1], now)
