-- with: begin
-- When the next open run becomes due, or a budget begins anew; empty when nothing waits for time.
local HOUR = 3600000000
local soonest
local function look(key)
  local due = tonumber(call('ZRANGEBYSCORE', key, '-inf', '(inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
  if due and (not soonest or due < soonest) then
    soonest = due
  end
end
look(P .. 'wake')
look(P .. 'q:0')
for _, priority in ipairs(call('SMEMBERS', P .. 'prios')) do
  look(P .. 'q:' .. priority)
end
for _, uid in ipairs(call('SMEMBERS', P .. 'short')) do
  if call('ZCARD', P .. 'h:' .. uid .. ':budget') > 0 then
    -- every budget begins anew with an hour or a day, and every day with an hour
    local hour = now - now % HOUR + HOUR
    soonest = math.min(soonest or hour, hour)
  end
end
return soonest and int(soonest) or ''
