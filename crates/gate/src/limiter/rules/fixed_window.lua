-- Rules: fixed_window.rs.  Policy: {limit, window_us}.
-- Key: string `count at_us ahead_us`; absent = nothing counted.
local function fixed_window()
  local rules = {}

  local function start(p, at) return at - at % p[2] end

  local function count_at(s, p, at)
    if start(p, steady_at(s)) == start(p, at) then return s.count end
    return 0
  end

  function rules.load(key)
    local value = redis.call('GET', key)
    if not value then return {count = 0, at = 0, ahead = 0} end
    local a, b, c = string.match(value, '^(%d+) (%d+) (%d+)$')
    return {count = tonumber(a), at = tonumber(b), ahead = tonumber(c)}
  end

  function rules.save(key, s, ttl)
    redis.call('SET', key, int(s.count) .. ' ' .. int(s.at) .. ' ' .. int(s.ahead), 'PX', ttl)
  end

  function rules.earliest(s, p, cost)
    local at = math.max(steady_at(s), NOW)
    if count_at(s, p, at) + cost <= p[1] then return at end
    return start(p, at) + p[2]
  end

  function rules.charge(s, p, cost, slot)
    s.count = count_at(s, p, slot) + cost
    stand_at(s, slot)
  end

  function rules.remaining(s, p)
    if steady_at(s) > NOW then return 0 end
    return math.max(p[1] - count_at(s, p, NOW), 0)
  end

  function rules.reset_after(s, p)
    local at = math.max(steady_at(s), NOW)
    if count_at(s, p, at) == 0 then return at - NOW end
    return start(p, at) + p[2] - NOW
  end

  function rules.refund(s, p, cost)
    local at = math.max(steady_at(s), NOW)
    s.count = math.max(count_at(s, p, at) - math.min(cost, p[1]), 0)
    stand_at(s, at)
  end

  return rules
end
