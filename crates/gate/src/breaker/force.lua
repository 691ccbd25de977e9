-- An operator's order: open, closed, or automatic again.  Rules: circuit.rs `Circuit::force`.
-- KEYS[1]  the circuit, see rules.lua
-- ARGV     policy, force (0 automatic, 3 open, 4 closed), for_us, now_us ('' = Redis' clock)
-- Reply    the new generation
local now = tonumber(ARGV[4])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end

local circuit, policy = circuit_read(KEYS[1]), circuit_policy(ARGV[1])
circuit_force(circuit, tonumber(ARGV[2]), tonumber(ARGV[3]), now)
circuit_write(KEYS[1], circuit, policy, now)
return circuit.generation
