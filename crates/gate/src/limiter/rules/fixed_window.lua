-- Rules: fixed_window.rs.  Policy: {limit, ..}; what follows says where windows begin and end.
-- Key: string `count at_us ahead_us`; absent = nothing counted.
-- `bounds(p, at)` answers the beginning and the end of the window around a moment.
local function windows(bounds)
  local rules = {}

  local function count_at(s, p, at)
    if bounds(p, steady_at(s)) == bounds(p, at) then return s.count end
    return 0
  end

  local function next_start(p, at)
    local _, finish = bounds(p, at)
    return finish
  end

  function rules.load(key)
    local value = call('GET', key)
    if not value then return {count = 0, at = 0, ahead = 0} end
    local a, b, c = string.match(value, '^(%d+) (%d+) (%d+)$')
    return {count = tonumber(a), at = tonumber(b), ahead = tonumber(c)}
  end

  function rules.save(key, s, ttl)
    call('SET', key, int(s.count) .. ' ' .. int(s.at) .. ' ' .. int(s.ahead), 'PX', ttl)
  end

  function rules.earliest(s, p, cost)
    local at = math.max(steady_at(s), NOW)
    if count_at(s, p, at) + cost <= p[1] then return at end
    return next_start(p, at)
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
    return next_start(p, at) - NOW
  end

  function rules.refund(s, p, cost, charged, taken)
    local at = math.max(steady_at(s), NOW)
    if bounds(p, taken) ~= bounds(p, at) then return end
    s.count = math.max(count_at(s, p, at) - math.min(cost, p[1]), 0)
    stand_at(s, at)
  end

  return rules
end

-- Policy: {limit, window_us}.
local function fixed_window()
  return windows(function(p, at)
    local start = at - at % p[2]
    return start, start + p[2]
  end)
end
