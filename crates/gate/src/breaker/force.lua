-- An operator's order: open, closed, or automatic again.  Rules: circuit.rs `Circuit::force`.
-- KEYS[1]  the circuit, see rules.lua
-- ARGV     policy, force (0 automatic, 3 open, 4 closed), for_us, now_us ('' = Redis' clock)
-- Reply    the new generation
local circuit, policy = circuit_read(KEYS[1], NOW), circuit_policy(ARGV[1])
circuit_force(circuit, tonumber(ARGV[2]), tonumber(ARGV[3]), NOW)
circuit_write(KEYS[1], circuit, policy, NOW)
return circuit.generation
