-- with: run_states events
-- How a run and an event are deleted, with everything that refers to them.
local function is_open(id)
  local state = tonumber(call('HGET', P .. 'r:' .. id, 'state'))
  return state and state < DONE
end

local function delete_run(run, number, key)
  local events = call('LRANGE', P .. 're:' .. run.id, 0, -1)
  events[#events + 1] = run.event
  for _, event in ipairs(events) do
    call('SREM', P .. 'er:' .. event, run.id)
  end
  remove_from_index(run)
  call('UNLINK', P .. 'r:' .. run.id, P .. 'x:' .. run.id, P .. 'j:' .. run.id, P .. 'jc:' .. run.id,
    P .. 're:' .. run.id)
  call('HDEL', key, int(number))
  if run.since then
    call('ZREM', P .. 'moved', run.id)
  end
  if run.trigger ~= '' then
    call('LREM', P .. 'rt:' .. run.trigger, 1, member(run))
  end
  count('s' .. run.state, -1)
end

-- Whether a run that has not ended still needs the event.
local function is_needed(event, frames)
  for _, verdict in ipairs(split_frames(frames)) do
    if verdict.run ~= '' and verdict.outcome ~= DUPLICATE and is_open(verdict.run) then
      return true
    end
  end
  for _, id in ipairs(call('SMEMBERS', P .. 'er:' .. int(event))) do
    if is_open(id) then
      return true
    end
  end
  return false
end

-- Delete an event unless an open run needs it. Return whether it was.
local function delete_event(event, row, key)
  local size = unpack_struct('>H', row, 25)
  if is_needed(event, sub(row, 27 + size)) then
    return false
  end
  local id = int(event)
  call('HDEL', key, id, 'v' .. id, 'r' .. id)
  call('ZREM', P .. 'ek', sub(row, 9, 24) .. pack('>I8', event))
  call('LREM', P .. 'ef:' .. sub(row, 27, 26 + size), 1, id)
  call('UNLINK', P .. 'er:' .. id)
  count('events', -1)
  return true
end
