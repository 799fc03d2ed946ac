-- with: begin
-- Take or renew a shard's lease. Asked: {shard, holder, us}. An end of 0 says that its holder let it go.
local key = P .. 'lease:' .. int(ask[1])
local row = call('HMGET', key, 'holder', 'token', 'until')
local held, ours = row[1] and tonumber(row[3]) >= now, row[1] == ask[2]
if held and not ours then
  return {}
end
local token = tonumber(row[2]) or 0
if not held then
  token = token + 1
end
call('HSET', key, 'holder', ask[2], 'token', token, 'until', now + ask[3])
return { token, int(now + ask[3]), row[1] and not ours and tonumber(row[3]) ~= 0 and 1 or 0 }
