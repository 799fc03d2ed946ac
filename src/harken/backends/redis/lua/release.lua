-- with: begin run queue spending
-- Let the trigger's held runs go, whatever its budget says, or cancel them. Asked: {trigger, drop, hold}.
local uid = uid_named(ask[1])
if not uid then
  return { '!', 'trigger', ask[1] }
end
if not ask[2] then
  for _, hold in ipairs(holds_of(uid, ask[3])) do
    for _, at in ipairs(call('ZRANGE', held_key(uid, hold), 0, -1)) do
      -- a person decides: what is let go counts, but no budget holds it again
      if call('HGET', P .. 'r:' .. sub(at, 13), 'budget') == '1' then
        spend(uid, 'runs', 1)
        call('HSET', P .. 'r:' .. sub(at, 13), 'budget', '')
      end
    end
  end
end
local gone = let_go(uid, ask[3], ask[2])
write_counts()
return gone
