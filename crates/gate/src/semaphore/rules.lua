-- The semaphore's rules: permits.rs again, under the same names. Tests run both against each other.
-- Stored   zset holder -> end of its lease in us of Redis' clock; the key lives as long as its longest lease
local function permit_held(key, now)
  return redis.call('ZCOUNT', key, '(' .. int(now), '+inf')
end

-- 1: a permit is free | 0, retry_after_us. Changes nothing.
local function permit_check(key, limit, now)
  if permit_held(key, now) < limit then return 1 end
  local first = redis.call('ZRANGEBYSCORE', key, '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return 0, tonumber(first[2]) - now
end

local function permit_set(key, holder, lease_us, now)
  redis.call('ZADD', key, int(now + lease_us), holder)
  if redis.call('PTTL', key) < tonumber(ttl_ms(lease_us)) then expire(key, lease_us) end
end

-- Commits the permit that permit_check offered.
local function permit_add(key, holder, lease_us, now)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', int(now))
  permit_set(key, holder, lease_us, now)
end

-- 1: extended | 0: lost
local function permit_renew(key, holder, lease_us, now)
  local ends = tonumber(redis.call('ZSCORE', key, holder) or 0)
  if ends <= now then return 0 end
  permit_set(key, holder, lease_us, now)
  return 1
end

-- 1: released | 0: it was gone already
local function permit_release(key, holder)
  return redis.call('ZREM', key, holder)
end

