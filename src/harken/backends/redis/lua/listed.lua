-- with: begin run queue spending ticks resolving memory committing
-- A complete read lists these: they were seen now. Asked: {feed, token, how many names}.
local feed = call('HMGET', P .. 'f:' .. ask[1], 'revision', 'shard')
if not feed[1] then
  return { '!', 'feed', ask[1] }
end
if lease_is_lost(ask[2], feed[2]) then
  return { '!', 'lease' }
end
local mids = {}
for i = 1, ask[3] do
  mids[i] = name(i)
end
local seen = {}
if #mids > 0 then
  for i, value in ipairs(call('HMGET', P .. 'm:' .. ask[1], unpack(mids))) do
    if value then
      local known = read_memory(value)
      known.last = now
      seen[#seen + 1] = mids[i]
      seen[#seen + 1] = write_memory(known)
    end
  end
end
if #seen > 0 then
  call('HSET', P .. 'm:' .. ask[1], unpack(seen))
end
return 'done'
