-- Could this go ahead now? Takes nothing.  Rules: decide.rs `decide`.
-- KEYS     one per limit
-- ARGV     per limit: see decide.lua
-- Reply    {limit reported, wait_us (0 = it could), remaining, reset_after_us}
local function operation(k, a, keys) return decide(k, a, keys, -1) end
