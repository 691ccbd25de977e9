-- Rules: token_bucket.rs.  Policy: {token, per_us, capacity}.
-- Key: string `level token at_us ahead_us`; absent = full.
local function token_bucket()
  local rules = {}

  local function level_at(s, p, at)
    local capacity = p[3] * p[1]
    if not s.level then return capacity end
    local level = s.level
    if s.token ~= p[1] then level = math.floor(level / s.token) * p[1] end
    local missing = math.max(capacity - level, 0)
    local elapsed = math.max(at - steady_at(s), 0)
    if elapsed >= math.ceil(missing / p[2]) then return capacity end
    return level + elapsed * p[2]
  end

  rules.load, rules.save = load_bucket, save_bucket

  function rules.earliest(s, p, cost)
    local at = math.max(steady_at(s), NOW)
    local missing = math.max(cost * p[1] - level_at(s, p, at), 0)
    return at + math.ceil(missing / p[2])
  end

  function rules.charge(s, p, cost, slot)
    s.level, s.token = math.max(level_at(s, p, slot) - cost * p[1], 0), p[1]
    stand_at(s, slot)
  end

  function rules.remaining(s, p)
    if steady_at(s) > NOW then return 0 end
    return math.floor(level_at(s, p, NOW) / p[1])
  end

  function rules.reset_after(s, p)
    local at = math.max(steady_at(s), NOW)
    return at - NOW + math.ceil((p[3] * p[1] - level_at(s, p, at)) / p[2])
  end

  function rules.refund(s, p, cost, charged, taken)
    local at = math.max(steady_at(s), NOW)
    s.level, s.token = math.min(level_at(s, p, at) + units_back(p, cost, charged, taken), p[3] * p[1]), p[1]
    stand_at(s, at)
  end

  return rules
end
