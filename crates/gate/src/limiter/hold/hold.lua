-- Takes a cost and writes down that it is held.  Rules: hold/mod.rs.
-- KEYS     the limit's key; the hold's key, string `phase cost taken_us`
-- ARGV     see decide.lua; then for how long the hold is known, in microseconds
-- Reply    as check.lua
local function operation(k, a)
  local reply = decide(k, a, 1, 0)
  if reply[2] == 0 then
    call('SET', KEYS[k + 1], 'open ' .. ARGV[a] .. ' ' .. int(NOW), 'PX', ttl_ms(tonumber(ARGV[a + 2])))
  end
  return reply
end
