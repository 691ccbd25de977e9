-- The call is over: its permit is free, and the circuit hears how it went.
-- Rules: breaker/circuit.rs `Circuit::record`, semaphore/permits.rs `Permits::release`.
-- KEYS     the circuit, the permits
-- ARGV     holder ('' = no permit); circuit policy; report ('' = nothing to report)
-- Reply    {released} | {released, phase, generation, failures, watched, changed}
local function operation(k, a)
  local released = 0
  if ARGV[a] ~= '' then released = permit_release(KEYS[k + 1], ARGV[a]) end
  if ARGV[a + 2] == '' then return {released} end
  local circuit, policy = circuit_read(KEYS[k], NOW), circuit_policy(ARGV[a + 1])
  local generation = circuit.generation
  if circuit_record(circuit, policy, circuit_report(ARGV[a + 2]), NOW) then
    circuit_write(KEYS[k], circuit, policy, NOW)
  end
  local recorded = circuit_recorded(circuit, policy, generation, NOW)
  return {released, recorded[1], recorded[2], recorded[3], recorded[4], recorded[5]}
end
