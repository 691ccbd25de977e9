-- May all of these go ahead now, and where does each stand?  Rules: decide.rs `decide_every`.
-- KEYS     one per limit
-- ARGV     per limit: see decide.lua
-- Reply    per limit: its own wait_us, remaining, reset_after_us; taken if every wait is 0
local function operation(k, a, keys)
  local limits, slot = earliest_of(k, a, keys)
  local waits, reply = {}, {}
  for i, limit in ipairs(limits) do waits[i] = limit.rules.earliest(limit.state, limit.policy, limit.cost) - NOW end
  if slot == NOW then charge_all(limits, slot) end
  for i, limit in ipairs(limits) do
    reply[#reply + 1] = waits[i]
    reply[#reply + 1] = limit.rules.remaining(limit.state, limit.policy)
    reply[#reply + 1] = limit.rules.reset_after(limit.state, limit.policy)
  end
  return reply
end
