-- May a call to this target go ahead? Rate, circuit and concurrency agree, or nothing is charged.
-- Rules: breaker/circuit.rs, limiter/rules, semaphore/permits.rs.
-- KEYS     the circuit, the limit, the permits: of one target, so of one slot
-- ARGV     holder; circuit policy ('' = no breaker); terms: permits (0 = no semaphore), lease_us, ahead_us, 'n n n';
--          one limit's arguments as in limiter/rules/decide.lua (policy '' = no limit)
-- Reply    {1, circuit..4, rate..4} pass; circuit: what circuit_check returns, of a probe {2, generation, 0, 0}
--          {0, 1, rate..4} refused by rate | {0, 2, circuit..} by circuit | {0, 3, retry_after_us} by concurrency
local circuits = {}

-- Nearly always no target of a batch has a circuit that anybody reported to: then one question serves them all.
local circuit_keys = {}
for k = 1, #KEYS, 3 do circuit_keys[#circuit_keys + 1] = KEYS[k] end
local has_circuits = call('EXISTS', unpack(circuit_keys)) > 0

-- Read once per script. False: closed, never tripped; the common case is worth not reading twelve fields.
local function circuit_at(key)
  if not has_circuits then return false end
  local circuit = circuits[key]
  if circuit == nil then
    circuit = call('EXISTS', key) == 1 and circuit_read(key, NOW)
    circuits[key] = circuit
  end
  return circuit
end

local function operation(k, a)
  local circuit_key, rate_key, permits_key = KEYS[k], k + 1, KEYS[k + 2]
  local holder, permits, lease_us, ahead_us = ARGV[a], unpack(numbers_of(ARGV[a + 2]))
  local has_circuit, has_rate = ARGV[a + 1] ~= '', ARGV[a + 4] ~= ''

  local limits, slot, waits_for
  if has_rate then
    limits, slot, waits_for = earliest_of(rate_key, a + 3, 1)
    if slot - NOW > ahead_us then
      return {0, 1, report(limits, slot, waits_for)}
    end
  end
  local circuit, policy, code, x, y, z = circuit_at(circuit_key), nil, nil, nil, nil, nil
  if not has_circuit then
    -- An order by hand holds for every caller.
    local retry_after = circuit and circuit_forced_open(circuit, NOW)
    if retry_after then return {0, 2, retry_after, circuit.reason} end
  elseif not circuit then
    code, x, y, z = 1, 0, 0, 0
  else
    policy = circuit_policy(ARGV[a + 1])
    code, x, y, z = circuit_check(circuit, policy, NOW)
    if code == 0 then return {0, 2, x, y} end
  end
  if permits > 0 then
    local is_free, retry_after = permit_check(permits_key, permits, NOW)
    if is_free == 0 then return {0, 3, retry_after} end
  end

  if code == 2 then
    x, y, z = circuit_take_probe(circuit, policy, holder, NOW), 0, 0
    circuit_write(circuit_key, circuit, policy, NOW)
  end
  if permits > 0 then permit_add(permits_key, holder, lease_us, NOW) end
  code, x, y, z = code or 0, x or 0, y or 0, z or 0
  if not has_rate then return {1, code, x, y, z, 0, 0, 0, 0} end
  charge_all(limits, slot)
  return {1, code, x, y, z, report(limits, slot, waits_for)}
end
