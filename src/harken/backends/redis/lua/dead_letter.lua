-- with: begin
-- Dead-letter an event that the store refuses, once: a listing shows it again with every read.
-- Asked: {feed, key, letter}.
if call('EXISTS', P .. 'f:' .. ask[1]) == 0 then
  return { '!', 'feed', ask[1] }
end
if call('HSETNX', P .. 'bk', name(ask[2]), '1') == 0 then
  return 'known'
end
local number = call('HINCRBY', P .. 'n', 'buried', 1)
call('HSET', P .. 'buried', number, pack('>I8', now) .. name(ask[2]) .. text(ask[3]))
call('ZADD', P .. 'bz', number, number)
return 'done'
