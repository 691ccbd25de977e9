-- The semaphore's rules: permits.rs again, under the same names. Tests run both against each other.
-- Stored   zset holder -> end of its lease in us of Redis' clock; the key outlives its longest lease, by one at most
-- Known    of each key, while a script runs: how many permits are stored, ended ones too; are those swept; how long it lives
local permits_known = {}

local function permits_at(key)
  local known = permits_known[key]
  if not known then
    known = {stored = call('ZCARD', key), is_swept = false, lives_us = 0}
    permits_known[key] = known
  end
  return known
end

local function permit_held(key, now)
  return call('ZCOUNT', key, '(' .. int(now), '+inf')
end

-- 1: a permit is free | 0, retry_after_us. Changes nothing.
local function permit_check(key, limit, now)
  -- Ended ones only make it more: below the limit there is no need to tell them apart.
  if permits_at(key).stored < limit then return 1 end
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if tonumber(first[2]) <= now then
    if permit_held(key, now) < limit then return 1 end
    first = call('ZRANGEBYSCORE', key, '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  end
  return 0, tonumber(first[2]) - now
end

-- Set to two leases when less than one is left, so that most calls only look.
local function permits_keep(key, known, lease_us)
  if known.lives_us >= lease_us then return end
  known.lives_us = lease_us
  if known.stored > 0 and call('PTTL', key) >= tonumber(ttl_ms(lease_us)) then return end
  expire(key, 2 * lease_us)
end

-- Commits the permit that permit_check offered.
local function permit_add(key, holder, lease_us, now)
  local known = permits_at(key)
  if known.stored > 0 and not known.is_swept then
    known.stored = known.stored - call('ZREMRANGEBYSCORE', key, '-inf', int(now))
  end
  known.is_swept = true
  call('ZADD', key, int(now + lease_us), holder)
  permits_keep(key, known, lease_us)
  known.stored = known.stored + 1
end

-- 1: extended | 0: lost
local function permit_renew(key, holder, lease_us, now)
  local ends = tonumber(call('ZSCORE', key, holder) or 0)
  if ends <= now then return 0 end
  call('ZADD', key, int(now + lease_us), holder)
  permits_keep(key, {stored = 1, lives_us = 0}, lease_us)
  return 1
end

-- 1: released | 0: it was gone already
local function permit_release(key, holder)
  return call('ZREM', key, holder)
end
