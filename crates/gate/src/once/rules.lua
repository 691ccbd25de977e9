-- The rules of once: claim.rs again, under the same names. Tests run both against each other.
-- Stored   hash {phase (0 free, 1 claimed, 2 done), owner, fence, until, result}; absent = free
-- The key outlives what it says, so that fences grow even if the clock of a new primary is a little behind.
local ONCE_REMEMBER_US = 600000000

local function once_write(key, phase, owner, fence, until_us, result, now)
  call('HSET', key, 'phase', phase, 'owner', owner, 'fence', int(fence), 'until', int(until_us),
    'result', result)
  expire(key, math.max(until_us - now, 0) + ONCE_REMEMBER_US)
end

-- 1, fence: won | 0, retry_after_us: in progress | 2, result: done
local function once_claim(key, owner, lease_us, now)
  local f = call('HMGET', key, 'phase', 'owner', 'fence', 'until')
  local phase, fence, until_us = tonumber(f[1]) or 0, tonumber(f[3]) or 0, tonumber(f[4]) or 0
  local is_live, is_ours = now < until_us, phase == 1 and f[2] == owner
  if phase == 2 and is_live then return 2, call('HGET', key, 'result') end
  if phase == 1 and is_live and not is_ours then return 0, until_us - now end
  if not is_ours then fence = math.max(now, fence + 1) end
  once_write(key, 1, owner, fence, now + lease_us, '', now)
  return 1, fence
end

-- Each of these: 1 done | 0 the claim was lost.
local function once_change(key, owner, phase, until_us, result, now)
  local f = call('HMGET', key, 'phase', 'owner', 'fence')
  if f[1] ~= '1' or f[2] ~= owner then return 0 end
  once_write(key, phase, phase == 1 and owner or '', tonumber(f[3]), until_us, result, now)
  return 1
end

local function once_renew(key, owner, lease_us, now)
  return once_change(key, owner, 1, now + lease_us, '', now)
end

local function once_complete(key, owner, result, keep_us, now)
  return once_change(key, owner, 2, now + keep_us, result, now)
end

local function once_abandon(key, owner, now)
  return once_change(key, owner, 0, 0, '', now)
end

