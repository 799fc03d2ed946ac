-- with: begin
-- Keep these claims alive. Asked: {seconds in us, {run, token}...}.
local answers = {}
for i, claim in ipairs(ask[2]) do
  local id = name(claim[1])
  local row = call('HMGET', P .. 'r:' .. id, 'state', 'token', 'stop', 'seq')
  if row[1] ~= '4' or tonumber(row[2]) ~= claim[2] then
    answers[i] = 'lost'
  else
    call('HSET', P .. 'r:' .. id, 'until', now + ask[1])
    call('ZADD', P .. 'running', now + ask[1], row[4] .. id)
    answers[i] = row[3] and 'cancel' or 'kept'
  end
end
return answers
