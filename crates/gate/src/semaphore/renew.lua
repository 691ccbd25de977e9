-- Extend a holder's own lease.  Rules: permits.rs `Permits::renew`.
-- KEYS[1]  the permits, see rules.lua
-- ARGV     lease_us, holder, now_us ('' = Redis' clock)
-- Reply    1 extended | 0 lost
local now = tonumber(ARGV[3])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end

return permit_renew(KEYS[1], ARGV[2], tonumber(ARGV[1]), now)
