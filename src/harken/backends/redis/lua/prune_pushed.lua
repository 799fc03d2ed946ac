-- with: begin run queue spending ticks resolving memory committing
-- The memory of pushes goes by time. Each is in the queue of its feed once for every time that it was noted.
-- Asked: {before, how many, feeds}.
local gone = 0
for _, feed in ipairs(ask[3]) do
  for _, noted in ipairs(call('LRANGE', P .. 'mo:' .. feed, 0, ask[2] - 1)) do
    if unpack_struct('>I8', noted) >= ask[1] then
      break
    end
    call('LPOP', P .. 'mo:' .. feed)
    local mid = sub(noted, 9)
    local value = call('HGET', P .. 'm:' .. feed, mid)
    if value and read_memory(value).last < ask[1] then
      gone = gone + call('HDEL', P .. 'm:' .. feed, mid)
    end
  end
end
return gone
