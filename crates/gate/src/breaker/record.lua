-- Report how an admitted call went.  Rules: circuit.rs `Circuit::record`.
-- KEYS[1]  the circuit, see rules.lua
-- ARGV     policy, report (see circuit_report), now_us ('' = Redis' clock)
-- Reply    {phase, generation, failures, watched, changed}
local circuit, policy = circuit_read(KEYS[1], NOW), circuit_policy(ARGV[1])
local generation = circuit.generation
if circuit_record(circuit, policy, circuit_report(ARGV[2]), NOW) then
  circuit_write(KEYS[1], circuit, policy, NOW)
end
return circuit_recorded(circuit, policy, generation, NOW)
