-- May a call to this target go ahead?  Rules: circuit.rs `Circuit::check`, `Circuit::take_probe`.
-- KEYS[1]  the circuit, see rules.lua
-- ARGV     policy, holder of the probe if it becomes one, now_us ('' in production: Redis' own clock decides)
-- Reply    {1, generation, failures, watched} pass | {2, generation} pass as a probe | {0, retry_after_us, reason} reject
local circuit, policy = circuit_read(KEYS[1], NOW), circuit_policy(ARGV[1])
local code, a, b, c = circuit_check(circuit, policy, NOW)
if code == 2 then
  a = circuit_take_probe(circuit, policy, ARGV[2], NOW)
  circuit_write(KEYS[1], circuit, policy, NOW)
end
return {code, a, b, c}
