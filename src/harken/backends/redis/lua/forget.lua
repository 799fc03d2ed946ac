-- with: begin run queue spending ticks resolving memory committing
-- A slice of a feed's memory: what was last seen before goes. Asked: {feed, token, before, cursor}.
-- Answers {where to go on, how many went}.
local feed = call('HMGET', P .. 'f:' .. ask[1], 'identity', 'shard')
if lease_is_lost(ask[2], feed[2]) then
  return { '!', 'lease' }
end
local key, gone = P .. 'm:' .. ask[1], 0
local transitions = feed[1] == 'transition'
local page = call('HSCAN', key, ask[4], 'COUNT', 500)
for i = 1, #page[2], 2 do
  local mid, known = page[2][i], read_memory(page[2][i + 1])
  if known.last < ask[3] then
    if not transitions then
      gone = gone + call('HDEL', key, mid)
    else
      if known.kind ~= ABSENT then
        -- only the state goes: the count stays, so that coming back is a change with a key of its own
        known.kind, known.mark, known.state = ABSENT, '', ''
        call('HSET', key, mid, write_memory(known))
        gone = gone + 1
      end
      call('ZADD', P .. 'ma', 'NX', known.last, mid .. ask[1])
    end
  end
end
return { page[1], gone }
