-- with: begin
-- Take or renew a shard's lease. Asked: {shard, holder, us, generation}. An end of 0 says that its holder let it go.
local shard = int(ask[1])
local key = P .. 'lease:' .. shard
local row = call('HMGET', key, 'holder', 'token', 'until')
local held, ours = row[1] and tonumber(row[3]) >= now, row[1] == ask[2]
if ask[4] ~= '' and (call('HGET', P .. 'gen', 'name') or '') ~= ask[4] then
  if ours then
    call('HSET', key, 'until', 0)
  end
  return {}
end
if held and not ours then
  return {}
end
local token = tonumber(row[2]) or 0
-- one that ran out is as good as it was if nobody else has had it since
if not (ours and tonumber(row[3]) ~= 0) then
  -- no two shards ever have the same token, so that of another one proves nothing
  token = math.max(token, tonumber(call('HGET', P .. 'n', 'token')) or 0) + 1
  call('HSET', P .. 'n', 'token', token)
end
call('SADD', P .. 'shards', shard)
call('HSET', key, 'holder', ask[2], 'token', token, 'until', now + ask[3])
return { token, int(now + ask[3]), row[1] and not ours and tonumber(row[3]) ~= 0 and 1 or 0 }
