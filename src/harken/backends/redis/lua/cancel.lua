-- with: begin run queue
-- Cancel what has not begun; ask what runs to stop. Asked: {run}.
local run = load_run(name(ask[1]))
if not run then
  return { '!', 'run' }
end
if run.state == RUNNING then
  call('HSET', P .. 'r:' .. run.id, 'stop', '1')
  return 1
end
if run.state >= DONE then
  return 0
end
call('HDEL', P .. 'x:' .. run.id, 'error')
move(run, CANCELLED, { over = now, why = 'cancelled' })
if run.slot then
  free_slot(run.slot, run.id)
end
if run.parent then
  tell_parent(run.parent, run)
end
write_counts()
return 1
