-- with: begin ticks
-- A read that failed. Asked: {feed, token, health, clean, due, started, result, seconds, error}.
local feed = ask[1]
local row = call('HMGET', P .. 'f:' .. feed, 'revision', 'shard')
if not row[1] then
  return { '!', 'feed', feed }
end
if ask[2] and lease_is_lost(ask[2], row[2]) then
  return { '!', 'lease' }
end
close_span(feed)
call('HSET', P .. 'f:' .. feed, 'health', text(ask[3]), 'clean', ask[4] and '1' or '', 'due', ask[5] or '', 'tick', now)
add_tick(feed, ask[6], now, 1, ask[7], 0, 0, ask[8], text(ask[9]))
return 'done'
