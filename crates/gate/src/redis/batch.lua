-- Runs many calls of one operation in one script. Goes last, after a file that defines `operation(k, a, keys)`.
-- KEYS     the keys of all calls, one call after the other
-- ARGV     how many keys and how many arguments each call has ('', '': not all the same; each begins with its own two numbers);
--          the arguments of all calls; now_us
-- Reply    one reply per call, in order; an error in one call is that call's reply and leaves the others alone
local replies, count, last = {}, 0, #ARGV
local keys, args = tonumber(ARGV[1]), tonumber(ARGV[2])
local differ, k, a = not keys, 1, 3
while a < last do
  if differ then keys, args, a = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), a + 2 end
  local ok, reply = pcall(operation, k, a, keys)
  if not ok then
    if type(reply) ~= 'table' then reply = redis.error_reply('ERR ' .. tostring(reply)) end
  end
  count = count + 1
  replies[count] = reply
  k, a = k + keys, a + args
end
if finish then finish() end
return replies
