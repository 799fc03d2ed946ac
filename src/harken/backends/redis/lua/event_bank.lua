-- with: prelude
-- The event bank: `banks` has the ids of the last events by list and trigger, opaque here; `kept` in how many of these
-- lists an event is. The counter `banked` is the last event that was looked at, `bank_keep` how many a list has.

-- How many lists have each event from now on. Events that are in none any more are looked at by `prune`.
local function count_lists(changes)
  for _, change in ipairs(changes) do
    local event = int(change[1])
    if call('HINCRBY', P .. 'kept', event, change[2]) <= 0 then
      call('HDEL', P .. 'kept', event)
      call('SADD', P .. 'passed', event)
    end
  end
end

-- verb: put
-- Write the lists {field, ids} and counts {event, change} of the events up to `last`, unless another process did.
local function put(after, last, keep, lists, changes)
  if (tonumber(call('HGET', P .. 'n', 'banked')) or 0) ~= after then
    return 'known'
  end
  for _, list in ipairs(lists) do
    call('HSET', P .. 'banks', list[1], text(list[2]))
  end
  count_lists(changes)
  call('HSET', P .. 'n', 'banked', int(last), 'bank_keep', keep)
  return 'done'
end

-- verb: drop
-- Drop the list `field` with these events if its trigger does not exist, or was removed before `before`.
local function drop(field, trigger, before, events)
  local uid = call('HGET', P .. 'tn', trigger)
  local removed = uid and call('HGET', P .. 'tr:' .. uid, 'removed')
  if uid and (not removed or removed == '' or tonumber(removed) >= before) then
    return 0
  end
  call('HDEL', P .. 'banks', field)
  local changes = {}
  for i, event in ipairs(events) do
    changes[i] = { event, -1 }
  end
  count_lists(changes)
  return 1
end

-- verb: close
-- End the bank: what it kept may go.
local function close()
  if (tonumber(call('HGET', P .. 'n', 'bank_keep')) or 0) > 0 then
    call('UNLINK', P .. 'banks', P .. 'kept')
    call('HSET', P .. 'n', 'banked', 0, 'bank_keep', 0, 'swept_event', 0)
  end
  return 'done'
end
