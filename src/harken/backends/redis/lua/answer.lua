-- with: begin run
-- Wake a run that waits for a person or a sub-run. Asked: {run, answer}.
local run = load_run(name(ask[1]))
if not run or run.state ~= WAITING or (run.wait or '') == '' then
  return 0
end
call('HSET', P .. 'x:' .. run.id, 'answer', text(ask[2]))
move(run, READY, { due = now, x = '1', ans = '1' })
write_counts()
return 1
