-- Extend the owner's claim.  Rules: claim.rs `Record::renew`.
-- KEYS[1]  the record, see rules.lua
-- ARGV     owner, lease_us, now_us ('' = Redis' clock)
-- Reply    1 extended | 0 lost
local now = tonumber(ARGV[3])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end

return once_renew(KEYS[1], ARGV[1], tonumber(ARGV[2]), now)
