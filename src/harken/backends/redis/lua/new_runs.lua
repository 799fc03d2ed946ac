-- Runs that no event asked for. A new one is {trigger uid, run, rev, due, max, events, input, parent, replay}.
local function start(new)
  local id, events = name(new[2]), new[6]
  if call('EXISTS', P .. 'r:' .. id) == 1 then
    return
  end
  local run = { id = id, trigger = new[1], rev = new[3], state = READY, due = new[4] or now, max = new[5],
    event = #events == 1 and events[1], parent = new[8] and name(new[8]), replay = new[9] and name(new[9]) }
  insert_run(run, new[7])
  for _, event in ipairs(events) do
    call('SADD', P .. 'er:' .. int(event), id)
    if #events > 1 then
      call('RPUSH', P .. 're:' .. id, int(event))
    end
  end
end

local function cannot_start(new)
  local trigger = new[1] ~= '' and trigger_of(new[1])
  if new[1] ~= '' and (not trigger or trigger.removed) then
    return { '!', 'uid', new[1] }
  end
  return nil
end
