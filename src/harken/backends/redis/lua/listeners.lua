-- with: begin
-- A feed and who listens to it, at one revision. Asked: {feed}.
local row = call('HMGET', P .. 'f:' .. ask[1], 'revision', 'definition')
if not row[1] then
  return { '!', 'feed', ask[1] }
end
local found = {}
for _, uid in ipairs(call('SMEMBERS', P .. 'ft:' .. ask[1])) do
  local trigger = call('HGETALL', P .. 'tr:' .. uid)
  if call('HEXISTS', P .. 'tr:' .. uid, 'removed') == 0 then
    found[#found + 1] = { uid, trigger, call('HGETALL', P .. 'sp:' .. uid) }
  end
end
return { row[1], row[2], found, int(now) }
