-- The call is over: its permit is free, and the circuit hears how it went.
-- Rules: breaker/circuit.rs `Circuit::record`, semaphore/permits.rs `Permits::release`.
-- KEYS     the circuit, the permits
-- ARGV     holder ('' = no permit); circuit policy; report ('' = nothing to report); 1: a permit that is gone voids the report
-- Reply    {released} | {released, phase, generation, failures, watched, changed}
local function operation(k, a)
  -- Read first: a circuit that cannot be read leaves the permit alone.
  local circuit, released = ARGV[a + 2] ~= '' and circuit_read(KEYS[k], NOW), 0
  if ARGV[a] ~= '' then
    released = permit_release(KEYS[k + 1], ARGV[a])
    if released == 0 and ARGV[a + 3] == '1' then return {0} end
  end
  if not circuit then return {released} end
  local policy = circuit_policy(ARGV[a + 1])
  local generation = circuit.generation
  if circuit_record(circuit, policy, circuit_report(ARGV[a + 2]), NOW) then
    circuit_write(KEYS[k], circuit, policy, NOW)
  end
  local recorded = circuit_recorded(circuit, policy, generation, NOW)
  return {released, recorded[1], recorded[2], recorded[3], recorded[4], recorded[5]}
end
