-- Rules: sliding_counter.rs.  Policy: {limit, window_us, step_us}.
-- Key: string `current previous at_us ahead_us`; absent = nothing counted.
local function sliding_counter()
  local rules = {}

  -- The start of the window around `at`, and the counts of it and of the one before.
  local function view_at(s, p, at)
    local start = at - at % p[2]
    local stood_at = steady_at(s)
    local written = stood_at - stood_at % p[2]
    if written == start then return start, s.current, s.previous end
    if written + p[2] == start then return start, 0, s.current end
    return start, 0, 0
  end

  function rules.load(key)
    local value = call('GET', key)
    if not value then return {current = 0, previous = 0, at = 0, ahead = 0} end
    local a, b, c, d = string.match(value, '^(%d+) (%d+) (%d+) (%d+)$')
    return {current = tonumber(a), previous = tonumber(b), at = tonumber(c), ahead = tonumber(d)}
  end

  function rules.save(key, s, ttl)
    local value = int(s.current) .. ' ' .. int(s.previous) .. ' ' .. int(s.at) .. ' ' .. int(s.ahead)
    call('SET', key, value, 'PX', ttl)
  end

  function rules.earliest(s, p, cost)
    local at = math.max(steady_at(s), NOW)
    local steps = math.ceil(p[2] / p[3])
    while true do
      local start, current, previous = view_at(s, p, at)
      local free = p[1] - cost - current
      if free >= 0 then
        local part = steps
        if previous > 0 then part = math.min(math.floor(free * steps / previous), steps) end
        local from = start + (steps - part) * p[3]
        if from < start + p[2] then return math.max(from, at) end
      end
      at = start + p[2]
    end
  end

  function rules.charge(s, p, cost, slot)
    local _, current, previous = view_at(s, p, slot)
    s.current, s.previous = current + cost, previous
    stand_at(s, slot)
  end

  function rules.remaining(s, p)
    if steady_at(s) > NOW then return 0 end
    local start, current, previous = view_at(s, p, NOW)
    local steps = math.ceil(p[2] / p[3])
    local part = steps - math.floor((NOW - start) / p[3])
    return math.max(p[1] - current - math.ceil(previous * part / steps), 0)
  end

  function rules.reset_after(s, p)
    local at = math.max(steady_at(s), NOW)
    local start, current, previous = view_at(s, p, at)
    if current > 0 then return start + 2 * p[2] - NOW end
    if previous > 0 then return start + p[2] - NOW end
    return at - NOW
  end

  function rules.refund(s, p, cost, charged, taken)
    local at = math.max(steady_at(s), NOW)
    local start, current, previous = view_at(s, p, at)
    if taken - taken % p[2] ~= start then return end
    s.current, s.previous = math.max(current - math.min(cost, p[1]), 0), previous
    stand_at(s, at)
  end

  return rules
end
