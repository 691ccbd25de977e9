-- The breaker's rules: circuit.rs and window.rs again, under the same names. Tests run both against each other.
-- Stored   hash {phase, generation, since, trips, reason, failures, watched, window, reporters, until, successes,
--          probes}; absent = closed, never tripped
--          window: "bucket:calls:failures:slow,…"  reporters: "holder:time_us,…"
--          probes: "holder:until_us:since_us,…"
-- A circuit here is a table; only circuit_read and circuit_write touch Redis, so a gate can check first and commit last.
-- Phases   0 closed, 1 open, 2 half-open, 3 forced open, 4 forced closed
-- Reasons  0 none, 1 consecutive failures, 2 failure rate, 3 slow rate, 4 probe failed, 5 forced
local CIRCUIT_BUCKETS, CIRCUIT_MAX_QUORUM, CIRCUIT_PROBE_RETRY_US = 10, 8, 1000000

-- Read only when it is needed: a circuit that nobody reported to is closed whatever the policy says.
local CIRCUIT_POLICY = {'failures', 'failure_percent', 'slow_percent', 'min_calls', 'window_us', 'bucket_us', 'gather_us',
  'quorum', 'open_us', 'open_cap_us', 'probes', 'probe_lease_us', 'ttl_us'}
local circuit_policy_fields = {__index = function(policy, field)
  local i = 0
  for number in string.gmatch(policy.text, '%d+') do
    i = i + 1
    policy[CIRCUIT_POLICY[i]] = tonumber(number)
  end
  return rawget(policy, field)
end}

local function circuit_policy(text)
  return setmetatable({text = text}, circuit_policy_fields)
end

local function circuit_leases(text)
  local leases = {}
  for holder, time_us, since_us in string.gmatch(text, '(%x+):(%d+):?(%d*)') do
    leases[#leases + 1] = {holder, tonumber(time_us), tonumber(since_us) or 0}
  end
  return leases
end

local function circuit_enter(circuit, phase, until_us, now)
  if phase == 0 then circuit.reason = 0 end
  circuit.generation, circuit.phase, circuit.since, circuit.until_us = circuit.generation + 1, phase, now, until_us
  circuit.failures, circuit.watched, circuit.window, circuit.reporters = 0, 0, {}, {}
  circuit.successes, circuit.probes = 0, {}
end

-- As it stands now: an order that is over leaves a closed circuit of a new generation, written with the next report.
local function circuit_read(key, now)
  local f = call('HMGET', key, 'phase', 'generation', 'since', 'trips', 'reason', 'failures', 'watched', 'window',
    'reporters', 'until', 'successes', 'probes')
  if not f[1] then
    return {phase = 0, generation = 0, since = 0, trips = 0, reason = 0, failures = 0, watched = 0, window = {},
      reporters = {}, until_us = 0, successes = 0, probes = {}}
  end
  local circuit = {
    phase = tonumber(f[1]) or 0, generation = tonumber(f[2]) or 0, since = tonumber(f[3]) or 0,
    trips = tonumber(f[4]) or 0, reason = tonumber(f[5]) or 0, failures = tonumber(f[6]) or 0,
    watched = tonumber(f[7]) or 0, window = {}, reporters = circuit_leases(f[9] or ''), until_us = tonumber(f[10]) or 0, successes = tonumber(f[11]) or 0,
    probes = circuit_leases(f[12] or ''),
  }
  for number, calls, failures, slow in string.gmatch(f[8] or '', '(%d+):(%d+):(%d+):(%d+)') do
    table.insert(circuit.window, {tonumber(number), tonumber(calls), tonumber(failures), tonumber(slow)})
  end
  if circuit.phase >= 3 and now >= circuit.until_us then
    circuit_enter(circuit, 0, 0, circuit.until_us)
    circuit.order_ended = true
  end
  return circuit
end

local function circuit_write(key, circuit, policy, now)
  local window, reporters, probes = {}, {}, {}
  for i, b in ipairs(circuit.window) do window[i] = string.format('%.0f:%.0f:%.0f:%.0f', b[1], b[2], b[3], b[4]) end
  for i, r in ipairs(circuit.reporters) do reporters[i] = string.format('%s:%.0f', r[1], r[2]) end
  for i, p in ipairs(circuit.probes) do probes[i] = string.format('%s:%.0f:%.0f', p[1], p[2], p[3]) end
  call('HSET', key, 'phase', int(circuit.phase), 'generation', int(circuit.generation), 'since', int(circuit.since),
    'trips', int(circuit.trips), 'reason', int(circuit.reason), 'failures', int(circuit.failures), 'watched',
    int(circuit.watched), 'window', table.concat(window, ','), 'reporters', table.concat(reporters, ','), 'until',
    int(circuit.until_us), 'successes', int(circuit.successes), 'probes', table.concat(probes, ','))
  expire(key, policy.ttl_us + math.max(circuit.until_us - now, 0))
end

local function window_is_live(number, current)
  return number <= current and current - number < CIRCUIT_BUCKETS
end

local function window_total(window, policy, now)
  if #window == 0 then return 0, 0, 0, 0 end
  local current, calls, failures, slow, live = math.floor(now / policy.bucket_us), 0, 0, 0, 0
  for _, b in ipairs(window) do
    if window_is_live(b[1], current) then
      calls, failures, slow, live = calls + b[2], failures + b[3], slow + b[4], live + 1
    end
  end
  return calls, failures, slow, live
end

local function window_add(circuit, policy, now, age, calls, failures, slow)
  local current, kept, number = math.floor(now / policy.bucket_us), {}, nil
  for _, b in ipairs(circuit.window) do
    if window_is_live(b[1], current) then kept[#kept + 1] = b end
  end
  circuit.window, number = kept, current - age
  if number < 0 or not window_is_live(number, current) then return end
  for _, b in ipairs(kept) do
    if b[1] == number then
      b[2], b[3], b[4] = b[2] + calls, b[3] + failures, b[4] + slow
      return
    end
  end
  kept[#kept + 1] = {number, calls, failures, slow}
end

local function probe_is_live(probe, now)
  return probe[3] <= now and now < probe[2]
end

-- How long an order by hand refuses every call, if there is one.
local function circuit_forced_open(circuit, now)
  if circuit.phase == 3 then return circuit.until_us - now end
end

-- 1, generation, failures, watched (0|1, 2 by order): pass | 2: pass as a probe, if taken next | 0, retry_after_us, reason: reject
local function circuit_check(circuit, policy, now)
  local phase = circuit.phase
  if phase == 0 then
    local _, _, _, live = window_total(circuit.window, policy, now)
    return 1, circuit.generation, circuit.failures, (circuit.failures > 0 or live > 0) and 1 or 0
  elseif phase == 1 then
    if circuit.since <= now and now < circuit.until_us then return 0, circuit.until_us - now, circuit.reason end
    return 2
  elseif phase == 2 then
    local live, first = 0, nil
    for _, probe in ipairs(circuit.probes) do
      if probe_is_live(probe, now) then
        live, first = live + 1, math.min(first or probe[2], probe[2])
      end
    end
    if live + circuit.successes < policy.probes then return 2 end
    return 0, math.min((first or now) - now, CIRCUIT_PROBE_RETRY_US), circuit.reason
  end
  local retry_after = circuit_forced_open(circuit, now)
  if retry_after then return 0, retry_after, circuit.reason end
  return 1, circuit.generation, 0, 2
end

-- Commits the probe that circuit_check offered; returns the generation it reports to.
local function circuit_take_probe(circuit, policy, holder, now)
  if circuit.phase == 1 then circuit_enter(circuit, 2, 0, now) end
  local kept = {}
  for _, probe in ipairs(circuit.probes) do
    if probe_is_live(probe, now) then kept[#kept + 1] = probe end
  end
  kept[#kept + 1] = {holder, now + policy.probe_lease_us, now}
  circuit.probes = kept
  return circuit.generation
end

-- True if there is something to write.
local function circuit_renew_probe(circuit, policy, holder, now)
  for _, probe in ipairs(circuit.probes) do
    if probe[1] == holder and probe_is_live(probe, now) then
      probe[2], probe[3] = now + policy.probe_lease_us, now
      return true
    end
  end
  return false
end

local function circuit_open_time(policy, trips)
  return math.min(policy.open_us * 2 ^ math.min(math.max(trips - 1, 0), 32), policy.open_cap_us)
end

local function circuit_trip(circuit, policy, reason, now)
  local healthy_us = math.max(now - circuit.since, 0)
  if circuit.phase == 0 and circuit.trips > 0 and healthy_us >= circuit_open_time(policy, circuit.trips) then
    circuit.trips = 0
  end
  circuit.trips, circuit.reason = circuit.trips + 1, reason
  circuit_enter(circuit, 1, now + circuit_open_time(policy, circuit.trips), now)
end

local function circuit_verdict(circuit, policy, now)
  if #circuit.reporters < policy.quorum then return 0 end
  if circuit.failures >= policy.failures then return 1 end
  if math.max(now - circuit.watched, 0) < policy.gather_us then return 0 end
  local calls, failures, slow = window_total(circuit.window, policy, now)
  if calls < policy.min_calls then return 0 end
  if policy.failure_percent > 0 and failures * 100 >= policy.failure_percent * calls then return 2 end
  if policy.slow_percent > 0 and slow * 100 >= policy.slow_percent * calls then return 3 end
  return 0
end

local function circuit_heard_from(circuit, policy, reporter, now)
  local kept = {}
  for _, known in ipairs(circuit.reporters) do
    if known[1] ~= reporter and known[2] <= now and now - known[2] < policy.window_us then kept[#kept + 1] = known end
  end
  if #kept >= CIRCUIT_MAX_QUORUM then table.remove(kept, 1) end
  kept[#kept + 1] = {reporter, now}
  circuit.reporters = kept
end

-- Counts a report on a closed circuit; true if there is something to write.
local function circuit_count(circuit, policy, report, now)
  if report.outcome == 2 and #report.past == 0 then return false end
  local _, _, _, live = window_total(circuit.window, policy, now)
  if live == 0 then circuit.watched = now end
  for _, past in ipairs(report.past) do
    window_add(circuit, policy, now, past[1], past[2], 0, 0)
    circuit.failures = 0
  end
  if report.outcome == 2 then return true end
  local failed = report.outcome == 1 and 1 or 0
  circuit.failures = failed == 1 and circuit.failures + 1 or 0
  window_add(circuit, policy, now, 0, 1, failed, report.slow)
  if failed == 1 or report.slow == 1 then
    circuit_heard_from(circuit, policy, report.reporter, now)
    local reason = circuit_verdict(circuit, policy, now)
    if reason > 0 then circuit_trip(circuit, policy, reason, now) end
  end
  return true
end

local function circuit_record_probe(circuit, policy, report, now)
  local was_out, kept = false, {}
  for _, probe in ipairs(circuit.probes) do
    if probe[1] == report.probe then was_out = was_out or probe_is_live(probe, now)
    else kept[#kept + 1] = probe end
  end
  local dirty = #kept < #circuit.probes
  circuit.probes = kept
  if report.outcome == 1 or (report.outcome == 0 and report.slow == 1) then
    circuit_trip(circuit, policy, 4, now)
    return true
  elseif report.outcome == 0 and was_out then
    if circuit.successes + 1 < policy.probes then circuit.successes = circuit.successes + 1
    else circuit_enter(circuit, 0, 0, now) end
  end
  return dirty
end

-- "generation outcome(0 success, 1 failure, 2 ignored) slow(0|1) reporter probe|- past|-", past: "age:calls,…"
local function circuit_report(text)
  local generation, outcome, slow, reporter, probe, past = string.match(text, '(%d+) (%d) (%d) (%x+) (%S+) (%S+)')
  local report = {
    generation = tonumber(generation), outcome = tonumber(outcome), slow = tonumber(slow), reporter = reporter,
    probe = probe, past = {},
  }
  for age, calls in string.gmatch(past, '(%d+):(%d+)') do
    report.past[#report.past + 1] = {tonumber(age), tonumber(calls)}
  end
  return report
end

-- A report from an older generation is stale and changes nothing. True if there is something to write.
local function circuit_record(circuit, policy, report, now)
  if report.generation ~= circuit.generation then return circuit.order_ended end
  if circuit.phase == 0 then return circuit_count(circuit, policy, report, now) or circuit.order_ended end
  if circuit.phase == 2 then return circuit_record_probe(circuit, policy, report, now) end
  return false
end

-- {phase, generation, failures, watched, changed}: what circuit_record left behind.
local function circuit_recorded(circuit, policy, generation_before, now)
  local code, _, failures, watched = circuit_check(circuit, policy, now)
  if code ~= 1 then failures, watched = 0, 0 end
  local changed = circuit.generation ~= generation_before and 1 or 0
  return {circuit.phase, circuit.generation, failures, watched, changed}
end

-- force: 0 automatic, 3 open, 4 closed
local function circuit_force(circuit, force, for_us, now)
  circuit.trips, circuit.reason = 0, force == 0 and 0 or 5
  circuit_enter(circuit, force, force == 0 and 0 or now + for_us, now)
end

