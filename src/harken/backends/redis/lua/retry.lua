-- with: begin run queue
-- Make a failed, dead or cancelled run ready again. Asked: {run, another revision or empty}.
local run = load_run(name(ask[1]))
if not run then
  return { '!', 'run' }
end
if run.state ~= FAILED and run.state ~= DEAD and run.state ~= CANCELLED then
  return 0
end
if ask[2] ~= '' then
  call('UNLINK', P .. 'j:' .. run.id, P .. 'jc:' .. run.id)
  call('HSET', P .. 'r:' .. run.id, 'rev', ask[2])
  call('HDEL', P .. 'r:' .. run.id, 'journal')
end
call('HDEL', P .. 'x:' .. run.id, 'error')
call('HSET', P .. 'r:' .. run.id, 'tries', 1, 'due', now)
call('HDEL', P .. 'r:' .. run.id, 'why', 'over', 'stop', 'budget', 'qfrom', 'qtil')
run.due = now
admit(run)
write_counts()
return 1
