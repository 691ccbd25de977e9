-- Several limits at once, all or nothing.  Rules: decide.rs.
-- One limit's arguments: cost, and its policy: three numbers and the algorithm, 'n n n n' (redis.rs `policy_arg`).
local ARGS_PER_LIMIT = 2
local MAKERS = {gcra, token_bucket, leaky_bucket, fixed_window, sliding_counter, sliding_log, calendar}
local made, texts, states, dirty = {}, {}, {}, {}

local function rules_of(algorithm)
  local rules = made[algorithm]
  if not rules then
    rules = MAKERS[algorithm]()
    made[algorithm] = rules
  end
  return rules
end

-- The numbers of a text. The calls of a batch have few texts among them, so each is read once.
local function numbers_of(text)
  local numbers = texts[text]
  if not numbers then
    numbers = {}
    for number in string.gmatch(text, '%d+') do numbers[#numbers + 1] = tonumber(number) end
    texts[text] = numbers
  end
  return numbers
end

-- Each key is read once per script, so that concurrent calls of one key cost one read and one write together.
local function limit_at(k, a)
  local key, policy = KEYS[k], numbers_of(ARGV[a + 1])
  local rules, state = rules_of(policy[4]), states[key]
  if not state then
    state = rules.load(key)
    states[key] = state
  end
  return {key = key, rules = rules, state = state, cost = tonumber(ARGV[a]), policy = policy}
end

-- The limits of one call, the earliest slot that suits them all, and which of them it waits for.
local function earliest_of(k, a, count)
  local limits, slot, waits_for = {}, NOW, 1
  for i = 1, count do
    local limit = limit_at(k + i - 1, a + (i - 1) * ARGS_PER_LIMIT)
    limits[i] = limit
    local earliest = limit.rules.earliest(limit.state, limit.policy, limit.cost)
    if earliest > slot then slot, waits_for = earliest, i end
  end
  return limits, slot, waits_for
end

local function charge_all(limits, slot)
  for i = 1, #limits do
    local limit = limits[i]
    limit.rules.charge(limit.state, limit.policy, limit.cost, slot)
    dirty[limit.key] = limit
  end
end

-- limit reported, wait_us, remaining, reset_after_us: of the limit waited for, or the one with the least left.
local function report(limits, slot, waits_for)
  local least
  if slot == NOW then
    for i = 1, #limits do
      local limit = limits[i]
      local remaining = limit.rules.remaining(limit.state, limit.policy)
      if not least or remaining < least then least, waits_for = remaining, i end
    end
  end
  local limit = limits[waits_for]
  local remaining = least or limit.rules.remaining(limit.state, limit.policy)
  return waits_for, slot - NOW, remaining, limit.rules.reset_after(limit.state, limit.policy)
end

-- Takes all if the wait is at most `longest_wait`; -1 takes nothing whatever the answer.
local function decide(k, a, count, longest_wait)
  local limits, slot, waits_for = earliest_of(k, a, count)
  if slot - NOW <= longest_wait then charge_all(limits, slot) end
  return {report(limits, slot, waits_for)}
end

finish = function()
  for key, limit in pairs(dirty) do
    local us = limit.rules.reset_after(limit.state, limit.policy)
    if us > 0 then limit.rules.save(key, limit.state, ttl_ms(us)) else call('DEL', key) end
  end
end
