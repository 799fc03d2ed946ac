-- with: begin
-- Leases that have neither run out nor been given up, as {shard, holder, token, end}.
local found = {}
for _, shard in ipairs(call('SMEMBERS', P .. 'shards')) do
  local row = call('HMGET', P .. 'lease:' .. shard, 'holder', 'token', 'until')
  if tonumber(row[3]) >= now then
    found[#found + 1] = { shard, row[1], row[2], row[3] }
  end
end
return found
