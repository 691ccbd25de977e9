-- May this go ahead now?  Rules: decide.rs `decide`.
-- KEYS     one per limit
-- ARGV     per limit: see decide.lua
-- Reply    {limit reported, wait_us (0 = taken), remaining, reset_after_us}
local function operation(k, a, keys) return decide(k, a, keys, 0) end
