-- Rules: sliding_log.rs.  Policy: {limit, window_us, at_once (0 = not spread)}.
-- Key: sorted set, time of a call -> member `sum cost ahead_us`. `sum` counts all costs up to and with this entry: it
-- makes members unique, keeps calls of one microsecond in order (16 digits), and tells the cost of a whole range from
-- its two ends.
-- State: the newest entry; `oldest`, where it is known because nothing came before it since the log was empty; `first`, the first
-- entry after a time, each read once per script; `unwritten`, the newest entry while only this script knows it. Charges of one
-- moment become one entry, as in the rules.
local function sliding_log()
  local rules = {}

  local function parse(entry)
    local sum, cost, ahead = string.match(entry[1], '^(%d+) (%d+) (%d+)$')
    return {at = tonumber(entry[2]), sum = tonumber(sum), cost = tonumber(cost), ahead = tonumber(ahead)}
  end

  local function entry_at(key, rank)
    local entry = call('ZRANGE', key, int(rank), int(rank), 'WITHSCORES')
    if entry[1] then return parse(entry) end
  end

  local function write(s)
    local entry = s.unwritten
    if not entry then return end
    call('ZADD', s.key, int(entry.at), string.format('%016d %d %d', entry.sum, entry.cost, entry.ahead))
    s.unwritten = nil
  end

  -- The first entry after `start`, if there is one. Charges come after it.
  local function first_after(s, start)
    if s.oldest and s.oldest.at > start then return s.oldest end
    local first = s.first[start]
    if not first then
      write(s)
      local entry = call('ZRANGEBYSCORE', s.key, '(' .. int(start), '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
      if not entry[1] then return end
      first = parse(entry)
      s.first[start] = first
      if first.sum == first.cost then s.oldest = first end
    end
    return first
  end

  -- The sum before that entry.
  local function sum_before(s, start)
    local first = first_after(s, start)
    return first and first.sum - first.cost or s.newest.sum
  end

  -- Drops what left the window, once per script. Before the first entry since the log was empty there is nothing.
  local function trim(s, p)
    local start = NOW - p[2]
    if s.trimmed and s.trimmed >= start or s.oldest and s.oldest.at > start then return end
    call('ZREMRANGEBYSCORE', s.key, '-inf', int(start))
    s.trimmed, s.oldest = start, nil
  end

  -- All of it left the window, or a clock that stepped back put it more than a window into the future.
  local function settle(s, p)
    if s.settled_for == p then return end
    s.settled_for = p
    local newest = s.newest
    if newest and (newest.at > steady_at(newest) + p[2] or newest.at + p[2] <= NOW) then
      s.newest, s.oldest, s.is_dead = nil, nil, true
    end
  end

  -- How long those that go at once hold up the next: policy.rs.
  local function pace_us(p)
    p.pace_us = p.pace_us or math.floor(9 * p[2] / (10 * math.floor(p[1] / p[3])))
    return p.pace_us
  end

  -- The earliest time at which no more than `most` fall into `span`.
  local function within(s, most, span, cost)
    local newest = s.newest
    local at = newest.at > NOW and newest.at or NOW
    if newest.at <= at - span or newest.sum - sum_before(s, at - span) + cost <= most then return at end
    -- The entry whose end makes room: the first with a sum of at least `wanted`. Sums grow with the rank.
    local wanted = newest.sum - most + cost
    local first = first_after(s, at - span)
    if first.sum >= wanted then return first.at + span end
    write(s)
    local low, high = 0, call('ZCARD', s.key) - 1
    while low < high do
      local middle = math.floor((low + high) / 2)
      if entry_at(s.key, middle).sum >= wanted then high = middle else low = middle + 1 end
    end
    return entry_at(s.key, low).at + span
  end

  function rules.load(key)
    local newest = entry_at(key, -1)
    return {key = key, newest = newest, oldest = newest and newest.sum == newest.cost and newest, first = {}}
  end

  function rules.save(key, s, ttl)
    write(s)
    call('PEXPIRE', key, ttl)
  end

  function rules.earliest(s, p, cost)
    settle(s, p)
    if not s.newest then return NOW end
    local at = within(s, p[1], p[2], cost)
    if p[3] == 0 then return at end
    return math.max(at, within(s, math.max(p[3], cost), pace_us(p), cost))
  end

  function rules.charge(s, p, cost, slot)
    settle(s, p)
    if s.is_dead then
      call('DEL', s.key)
      s.is_dead, s.first = false, {}
    end
    if s.newest then trim(s, p) end
    local last, ahead = s.unwritten, math.max(slot - NOW, 0)
    if last and last.at == slot and last.ahead == ahead then
      last.sum, last.cost = last.sum + cost, last.cost + cost
      return
    end
    write(s)
    local newest = {at = slot, cost = cost, sum = (s.newest and s.newest.sum or 0) + cost, ahead = ahead}
    if not s.newest then
      s.oldest = newest
    elseif p[3] > 0 and s.newest.at <= NOW - pace_us(p) then
      s.first[NOW - pace_us(p)] = newest
    end
    s.newest, s.unwritten = newest, newest
  end

  function rules.remaining(s, p)
    settle(s, p)
    local newest = s.newest
    if not newest then return p[1] end
    if newest.at > NOW then return 0 end
    return math.max(p[1] - newest.sum + sum_before(s, NOW - p[2]), 0)
  end

  function rules.reset_after(s, p)
    settle(s, p)
    if not s.newest then return 0 end
    return s.newest.at + p[2] - NOW
  end

  function rules.refund(s, p, cost, charged, taken)
    settle(s, p)
    if not s.newest then return end
    write(s)
    trim(s, p)
    s.first, s.oldest, s.settled_for = {}, nil, nil
    if taken + p[2] <= NOW then return end
    cost = math.min(cost, p[1])
    while cost > 0 and s.newest do
      local rank = s.newest.at == taken and -1 or 0
      local entry = rank == -1 and s.newest or entry_at(s.key, 0)
      call('ZREMRANGEBYRANK', s.key, rank, rank)
      if entry.cost > cost then
        -- What is newer keeps its sum, so the oldest does too.
        if rank == -1 then entry.sum = entry.sum - cost end
        entry.cost = entry.cost - cost
        s.unwritten = entry
        write(s)
        cost = 0
      else
        cost = cost - entry.cost
      end
      s.newest = entry_at(s.key, -1)
    end
  end

  return rules
end
