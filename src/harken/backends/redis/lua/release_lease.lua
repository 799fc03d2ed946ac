-- with: begin
-- End the lease at once, if it is still ours. Asked: {shard, holder, token}.
local key = P .. 'lease:' .. int(ask[1])
local row = call('HMGET', key, 'holder', 'token')
if row[1] == ask[2] and tonumber(row[2]) == ask[3] then
  call('HSET', key, 'until', 0)
end
return 'done'
