-- Everything worth showing of one circuit; changes nothing.  Rules: circuit.rs `Circuit::snapshot`.
-- KEYS[1]  the circuit, see rules.lua
-- ARGV     policy, now_us ('' = Redis' clock)
-- Reply    {phase, reason, generation, trips, failures, calls, failed, slow, probes, successes, age_us, retry_after_us}
local circuit, policy = circuit_read(KEYS[1], NOW), circuit_policy(ARGV[1])
local code, retry_after_us = circuit_check(circuit, policy, NOW)
local calls, failed, slow, probes = 0, 0, 0, 0
if circuit.phase == 0 then calls, failed, slow = window_total(circuit.window, policy, NOW) end
for _, probe in ipairs(circuit.probes) do
  if probe_is_live(probe, NOW) then probes = probes + 1 end
end
return {circuit.phase, circuit.reason, circuit.generation, circuit.trips, circuit.failures, calls, failed, slow,
  probes, circuit.successes, math.max(NOW - circuit.since, 0), code == 0 and retry_after_us or 0}
