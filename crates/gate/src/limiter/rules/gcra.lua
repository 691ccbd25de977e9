-- Rules: gcra.rs.  Policy: {token, per_us, capacity}.
-- Key: string `full_at_us`, or `full_at_us fraction ahead_us` when one of the last two is not 0.
local function gcra()
  local rules = {}

  local function plus(us, fraction, p, units)
    units = fraction + units
    return us + math.floor(units / p[2]), units % p[2]
  end

  local function minus(us, fraction, p, units)
    local u, f = math.floor(units / p[2]), units % p[2]
    if f > fraction then u, fraction = u + 1, fraction + p[2] end
    if us < u then return 0, 0 end
    return us - u, fraction - f
  end

  local function rounded_up(us, fraction)
    if fraction > 0 then return us + 1 end
    return us
  end

  local function steady(s, p)
    local us, fraction = s.us, s.fraction
    if fraction >= p[2] then fraction = 0 end
    local latest_us, latest_fraction = plus(NOW + s.ahead, 0, p, p[3] * p[1])
    if us > latest_us or (us == latest_us and fraction > latest_fraction) then return latest_us, latest_fraction end
    return us, fraction
  end

  local function steady_from(s, p, from)
    local us, fraction = steady(s, p)
    if us < from then return from, 0 end
    return us, fraction
  end

  function rules.load(key)
    local value = call('GET', key)
    if not value then return {us = 0, fraction = 0, ahead = 0} end
    local us = tonumber(value)
    if us then return {us = us, fraction = 0, ahead = 0} end
    local a, b, c = string.match(value, '^(%d+) (%d+) (%d+)$')
    return {us = tonumber(a), fraction = tonumber(b), ahead = tonumber(c)}
  end

  function rules.save(key, s, ttl)
    local value = int(s.us)
    if s.fraction > 0 or s.ahead > 0 then value = value .. ' ' .. int(s.fraction) .. ' ' .. int(s.ahead) end
    call('SET', key, value, 'PX', ttl)
  end

  function rules.earliest(s, p, cost)
    local us, fraction = steady_from(s, p, NOW)
    us, fraction = plus(us, fraction, p, cost * p[1])
    return math.max(rounded_up(minus(us, fraction, p, p[3] * p[1])), NOW)
  end

  function rules.charge(s, p, cost, slot)
    local us, fraction = steady_from(s, p, slot)
    s.us, s.fraction = plus(us, fraction, p, cost * p[1])
    s.ahead = math.max(rounded_up(minus(s.us, s.fraction, p, p[3] * p[1])) - NOW, 0)
  end

  function rules.remaining(s, p)
    local empty_us, empty_fraction = plus(NOW, 0, p, p[3] * p[1])
    local us, fraction = steady_from(s, p, NOW)
    if us > empty_us or (us == empty_us and fraction >= empty_fraction) then return 0 end
    return math.floor(((empty_us - us) * p[2] + empty_fraction - fraction) / p[1])
  end

  function rules.reset_after(s, p)
    return math.max(rounded_up(steady(s, p)) - NOW, 0)
  end

  function rules.refund(s, p, cost, charged, taken)
    local us, fraction = steady(s, p)
    s.us, s.fraction = minus(us, fraction, p, units_back(p, cost, charged, taken))
  end

  return rules
end
