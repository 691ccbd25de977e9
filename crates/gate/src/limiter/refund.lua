-- Gives a cost back.  Rules: mod.rs `State::refund`.
-- KEYS     the limit's key
-- ARGV     see decide.lua; then how long ago it was taken at most, in microseconds
-- Reply    {1, 0, remaining, reset_after_us}
local function operation(k, a)
  local limit = limit_at(k, a)
  limit.rules.refund(limit.state, limit.policy, limit.cost, limit.cost, NOW - tonumber(ARGV[a + 2]))
  dirty[limit.key] = limit
  return {report({limit}, NOW, 1)}
end
