-- with: begin run queue spending
-- Set a run aside.
-- Asked: {run, token, due (false: only an answer wakes it), waits for, the sub-run it waits for, step}.
local run = load_run(name(ask[1]))
if not run or run.state ~= RUNNING or tonumber(run.token) ~= ask[2] then
  return { '!', 'lost' }
end
if ask[6] then
  append(run, ask[6])
end
forget_answer(run)
local child = ask[5] and name(ask[5])
move(run, WAITING, {
  due = ask[3] or NEVER, wait = ask[4], wait_run = child or false, ['until'] = false, holder = false, life = false,
})
local sub_run = child and load_run(child)
if sub_run and sub_run.state >= DONE then
  -- the sub-run was over before its parent lay down
  tell_parent(run.id, sub_run)
end
write_counts()
return 'done'
