-- Rules: leaky_bucket.rs.  Policy: {token, per_us, capacity}.
-- Key: string `level token at_us ahead_us`; absent = empty.
local function leaky_bucket()
  local rules = {}

  local function level_at(s, p, at)
    if not s.level then return 0 end
    local level = s.level
    if s.token ~= p[1] then level = math.ceil(level / s.token) * p[1] end
    level = math.min(level, p[3] * p[1])
    local elapsed = math.max(at - steady_at(s), 0)
    if elapsed >= math.ceil(level / p[2]) then return 0 end
    return level - elapsed * p[2]
  end

  rules.load, rules.save = load_bucket, save_bucket

  function rules.earliest(s, p, cost)
    local at = math.max(steady_at(s), NOW)
    local spilled = math.max(level_at(s, p, at) + cost * p[1] - p[3] * p[1], 0)
    return at + math.ceil(spilled / p[2])
  end

  function rules.charge(s, p, cost, slot)
    s.level, s.token = level_at(s, p, slot) + cost * p[1], p[1]
    stand_at(s, slot)
  end

  function rules.remaining(s, p)
    if steady_at(s) > NOW then return 0 end
    return math.floor(math.max(p[3] * p[1] - level_at(s, p, NOW), 0) / p[1])
  end

  function rules.reset_after(s, p)
    local at = math.max(steady_at(s), NOW)
    return at - NOW + math.ceil(level_at(s, p, at) / p[2])
  end

  function rules.refund(s, p, cost, charged, taken)
    local at = math.max(steady_at(s), NOW)
    s.level, s.token = math.max(level_at(s, p, at) - units_back(p, cost, charged, taken), 0), p[1]
    stand_at(s, at)
  end

  return rules
end
