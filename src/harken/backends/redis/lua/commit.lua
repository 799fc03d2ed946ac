-- with: begin run queue spending ticks resolving memory committing
-- Events, verdicts, runs, memory and cursor together, or not at all.
local planned, refused = plan(ask)
if not planned then
  return refused
end
local answer = write_commit(ask, planned)
write_counts()
return { 'done', answer[1], answer[2], int(now) }
