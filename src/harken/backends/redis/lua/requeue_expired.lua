-- with: begin run
-- Make runs ready whose claim has run out, a slice at a time. Asked: {how many}.
local late = call('ZRANGEBYSCORE', P .. 'running', '-inf', '(' .. int(now), 'LIMIT', 0, ask[1])
for _, at in ipairs(late) do
  move(load_run(sub(at, 13)), READY, { ['until'] = false, holder = false, life = false })
end
write_counts()
return #late
