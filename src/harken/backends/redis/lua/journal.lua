-- with: begin run queue spending ticks resolving memory committing starting
-- Append steps, with the events they cause and the sub-runs they start. Asked: {run, token, steps, caused, new runs}.
local run = load_run(name(ask[1]))
if not run or run.state ~= RUNNING or tonumber(run.token) ~= ask[2] then
  return { '!', 'lost' }
end
for _, commit in ipairs(ask[4]) do
  local _, refused = plan(commit)
  if refused then
    return refused
  end
end
for _, new in ipairs(ask[5]) do
  local refused = cannot_start(new)
  if refused then
    return refused
  end
end
ids = nil -- what was only tried took no numbers
for _, commit in ipairs(ask[4]) do
  -- again: an earlier one of this call may know its subjects by now
  write_commit(commit, (plan(commit)))
end
for _, new in ipairs(ask[5]) do
  start(new)
end
for _, step in ipairs(ask[3]) do
  append(run, step)
end
write_later()
write_counts()
return 'done'
