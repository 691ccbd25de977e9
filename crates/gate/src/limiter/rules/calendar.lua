-- A fixed window whose edges are a calendar's.  Rules: calendar.rs `Calendar::window`.
-- Policy: {limit, first edge in seconds, three lengths in minutes, 16 bits each}.
local function calendar()
  return windows(function(p, at)
    local start, finish = 0, p[2] * 1000000
    local packed = p[3]
    for _ = 1, 3 do
      if at < finish then return start, finish end
      local minutes = packed % 65536
      packed = (packed - minutes) / 65536
      start, finish = finish, finish + minutes * 60000000
    end
    local length = finish - start
    local passed = math.floor((at - start) / length) * length
    return start + passed, finish + passed
  end)
end
