-- Runs many calls of one operation in one script. Goes last, after a file that defines `operation(k, a)`.
-- KEYS     the keys of all calls, one call after the other
-- ARGV     per call: number of keys, number of arguments, its arguments; then now_us
-- Reply    one reply per call, in order; an error in one call is that call's reply and leaves the others alone
local replies = {}
local k, a = 1, 1
while a < #ARGV do
  local keys, args = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
  local ok, reply = pcall(operation, k, a + 2)
  if not ok then
    if type(reply) ~= 'table' then reply = redis.error_reply('ERR ' .. tostring(reply)) end
  end
  replies[#replies + 1] = reply
  k, a = k + keys, a + 2 + args
end
if finish then finish() end
return replies
