-- with: begin run
-- Drop a dead letter: its run becomes cancelled. Asked: {run}.
local run = load_run(name(ask[1]))
if not run or run.state ~= DEAD then
  return 0
end
move(run, CANCELLED)
write_counts()
return 1
