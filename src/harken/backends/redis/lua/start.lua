-- with: begin run queue spending resolving starting
-- Insert a run; an existing id is left as it is.
local refused = cannot_start(ask)
if refused then
  return refused
end
start(ask)
write_later()
write_counts()
return 'done'
