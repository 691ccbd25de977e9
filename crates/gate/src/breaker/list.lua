-- One page of circuits that changed, latest first; changes nothing.
-- KEYS[1]  see enrol.lua
-- ARGV     after ('' = from the start; else "time target" of the last one seen), most, now_us (unused)
-- Reply    {after for the next page ('' = the end), target, …}
local most, start, seen_time, seen_target = tonumber(ARGV[2]), 0, nil, nil
if ARGV[1] ~= '' then
  seen_time, seen_target = string.match(ARGV[1], '^(%d+) (.*)$')
  if not seen_time then return {''} end
  start = redis.call('ZCOUNT', KEYS[1], '(' .. seen_time, '+inf')
end

local page = {''}
while true do
  local found = redis.call('ZREVRANGE', KEYS[1], start, start + most - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    -- Changes of the same microsecond come in reverse order of their names.
    if found[i + 1] ~= seen_time or found[i] < seen_target then
      if #page > most then return page end
      page[#page + 1], page[1] = found[i], found[i + 1] .. ' ' .. found[i]
    end
  end
  if #found < most * 2 then
    page[1] = ''
    return page
  end
  start = start + most
end
