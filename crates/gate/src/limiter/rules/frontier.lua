-- What the algorithms' rules share.  Rules: mod.rs `Frontier`.
-- A state stands `at` a time; `ahead` is how far that was in the future when written. More means the clock went back.
local function steady_at(s) return math.min(s.at, NOW + s.ahead) end

local function stand_at(s, slot) s.at, s.ahead = slot, math.max(slot - NOW, 0) end

-- Units that a bucket gives back of `cost`, taken as a part of `charged`.  Rules: mod.rs `Taken::units`.
local function units_back(p, cost, charged, taken)
  charged = math.min(charged, p[3])
  local outstanding = math.max(charged * p[1] - math.max(NOW - taken, 0) * p[2], 0)
  return math.min(math.min(cost, charged) * p[1], outstanding)
end

-- Both buckets are stored alike. A level of nil means that the key is absent.
local function load_bucket(key)
  local value = call('GET', key)
  if not value then return {at = 0, ahead = 0} end
  local a, b, c, d = string.match(value, '^(%d+) (%d+) (%d+) (%d+)$')
  return {level = tonumber(a), token = tonumber(b), at = tonumber(c), ahead = tonumber(d)}
end

local function save_bucket(key, s, ttl)
  local value = int(s.level) .. ' ' .. int(s.token) .. ' ' .. int(s.at) .. ' ' .. int(s.ahead)
  call('SET', key, value, 'PX', ttl)
end
