-- with: begin
-- Drop an event that the store refused. Asked: {its number}.
local row = call('HGET', P .. 'buried', int(ask[1]))
if not row then
  return 0
end
call('HDEL', P .. 'buried', int(ask[1]))
call('ZREM', P .. 'bz', int(ask[1]))
call('HDEL', P .. 'bk', sub(row, 9, 24))
return 1
