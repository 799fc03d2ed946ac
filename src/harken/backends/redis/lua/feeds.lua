-- with: begin ticks
-- Reads that found nothing new extend their feed's span.
-- A rest is {feed, token, count, result, seen, first, last, due, cursor, watermark, covered from, until, health,
-- clean, revision}. Answers with the feeds that are at another revision, whose rests are left out.
local stale, fresh = { 'done' }, {}
for _, one in ipairs(ask) do
  local feed = call('HMGET', P .. 'f:' .. one[1], 'revision', 'shard')
  if not feed[1] then
    return { '!', 'feed', one[1] }
  end
  if lease_is_lost(one[2], feed[2]) then
    return { '!', 'lease' }
  end
  if one[15] and feed[1] ~= int(one[15]) then
    stale[#stale + 1] = one[1]
  else
    fresh[#fresh + 1] = one
  end
end
for _, one in ipairs(fresh) do
  local key = P .. 'f:' .. one[1]
  local last = int(one[7])
  local due, seen = one[8] and int(one[8]) or '', int(one[5])
  local set = { 'due', due, 'ok', last, 'tick', last, 'span_end', last, 'span_seen', seen }
  local function put(field, value)
    set[#set + 1] = field
    set[#set + 1] = value
  end
  if one[9] then put('cursor', text(one[9])) end
  if one[10] then put('watermark', int(one[10])) end
  if one[13] then
    put('health', text(one[13]))
    put('clean', one[14] and '1' or '')
  end
  if call('HGET', key, 'span') == int(one[4]) then
    call('HINCRBY', key, 'span_count', one[3])
  else
    close_span(one[1])
    put('span', int(one[4]))
    put('span_start', int(one[6]))
    put('span_count', int(one[3]))
    put('base', '1')
  end
  call('HSET', key, unpack(set))
  call('HINCRBY', key, 'reads', one[3])
  if one[11] then
    cover(one[1], one[11], one[12])
  end
end
return stale
