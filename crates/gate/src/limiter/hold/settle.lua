-- The price of a hold is known (1), or its time is over (2).  Rules: hold/mod.rs `Hold::settle`, `Hold::expire`.
-- KEYS     the limit's key; the hold's key, see hold.lua; the mark of all holds of the limit, see reset.lua
-- ARGV     see decide.lua, the cost being the price; then 1 or 2, the policy's capacity, how long to know it, in microseconds
-- Reply    {0} unknown | {1 settled, 2 again, 3 late; the price; remaining, reset_after_us}
local function operation(k, a)
  local value = call('GET', KEYS[k + 1])
  if not value then return {0, 0, 0, 0} end
  local phase, held, taken = string.match(value, '^(%a+) (%d+) (%d+)$')
  held, taken = tonumber(held), tonumber(taken)
  local limit, is_end = limit_at(k, a), ARGV[a + 2] == '2'
  local function answer(outcome, cost)
    local rules, state, policy = limit.rules, limit.state, limit.policy
    return {outcome, cost, rules.remaining(state, policy), rules.reset_after(state, policy)}
  end
  if phase == 'settled' then return answer(2, held) end
  if is_end and phase == 'expired' then return answer(2, 0) end

  local cost, charged = limit.cost, 0
  if phase == 'open' then charged = held end
  local reset = call('GET', KEYS[k + 2])
  local is_forgotten = reset and taken <= tonumber(reset)
  if cost < charged and not is_forgotten then
    limit.rules.refund(limit.state, limit.policy, charged - cost, charged, taken)
    dirty[limit.key] = limit
  end
  if cost > charged then
    local more = math.min(cost - charged, tonumber(ARGV[a + 3]))
    limit.rules.charge(limit.state, limit.policy, more, limit.rules.earliest(limit.state, limit.policy, more))
    dirty[limit.key] = limit
  end
  local after = is_end and 'expired' or 'settled'
  call('SET', KEYS[k + 1], after .. ' ' .. int(cost) .. ' ' .. int(taken), 'PX', ttl_ms(tonumber(ARGV[a + 4])))
  return answer(phase == 'open' and 1 or 3, cost)
end
