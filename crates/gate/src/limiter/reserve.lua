-- Takes the next slot, if it is near enough.  Rules: decide.rs `decide`.
-- KEYS     one per limit
-- ARGV     longest_wait_us; then per limit: see decide.lua
-- Reply    {limit reported, wait_us (taken if at most the longest), remaining, reset_after_us}
local function operation(k, a, keys) return decide(k, a + 1, keys, tonumber(ARGV[a])) end
