-- The call goes on: its permit and its place among the probes are held for another lease.
-- Rules: semaphore/permits.rs `Permits::renew`, breaker/circuit.rs `Circuit::renew_probe`.
-- KEYS     the circuit, the permits
-- ARGV     holder, lease_us, circuit policy, holder of the probe, now_us ('' = Redis' clock)
-- Reply    1 the permit is extended | 0 it is lost, and nothing changed
if permit_renew(KEYS[2], ARGV[1], tonumber(ARGV[2]), NOW) == 0 then return 0 end
local circuit, policy = circuit_read(KEYS[1], NOW), circuit_policy(ARGV[3])
if circuit_renew_probe(circuit, policy, ARGV[4], NOW) then circuit_write(KEYS[1], circuit, policy, NOW) end
return 1
