-- Runs on their way: held, blocked behind a slot, promoted. Claiming never looks at slots.

-- The slot's blocked runs give way, and its holder too if it has not begun: true. One that runs is asked to stop:
-- false.
local function push_out(slot, current, id)
  for _, blocked in ipairs(call('ZRANGE', P .. 'b:' .. slot, 0, -1)) do
    move(load_run(sub(blocked, 29)), CANCELLED, { over = now, why = 'replaced' })
  end
  local holder = load_run(current)
  if holder and (holder.state == HELD or holder.state == READY or holder.state == WAITING) then
    move(holder, CANCELLED, { over = now, why = 'replaced' })
    call('HSET', P .. 'slots', slot, id)
    return true
  end
  call('HSET', P .. 'r:' .. current, 'stop', '1')
  return false
end

-- true: the slot is ours. false: wait behind it. nil: give way.
local function take_slot(id, slot, overlap)
  local current = call('HGET', P .. 'slots', slot)
  if not current or current == id then
    call('HSET', P .. 'slots', slot, id)
    return true
  end
  if overlap == 'skip' then
    return nil
  end
  if overlap == 'cancel_previous' then
    return push_out(slot, current, id)
  end
  return false
end

-- The holder is over: the next blocked run of the slot becomes ready.
local function free_slot(slot, id)
  if call('HGET', P .. 'slots', slot) ~= id then
    return
  end
  local following = call('ZRANGE', P .. 'b:' .. slot, 0, 0)[1]
  if not following then
    call('HDEL', P .. 'slots', slot)
    return
  end
  local run = load_run(sub(following, 29))
  call('HSET', P .. 'slots', slot, run.id)
  move(run, READY)
end

-- Make a run ready, or blocked behind its slot; one that may not overlap and comes second is cancelled.
local function admit(run, due)
  local state = READY
  if run.slot then
    local taken = take_slot(run.id, run.slot, run.overlap)
    if taken == nil then
      move(run, CANCELLED, { over = now, why = 'overlap', hold = false })
      return
    end
    state = taken and READY or BLOCKED
  end
  move(run, state, { due = due or math.min(run.due, now), hold = false })
end

-- The window is over or full: the run is due, unless it is held.
local function close_gathering(run)
  if run.hold then
    move(run, HELD, { due = now })
  else
    admit(run)
  end
end

-- The holds that a trigger's runs may be under: this one, or all there are.
local function holds_of(uid, hold)
  if hold ~= '' then
    return { hold }
  end
  return call('SMEMBERS', P .. 'hk:' .. uid)
end

-- The trigger's gathering runs that will be held when their window closes.
local function gathering_held(uid, hold)
  local found = {}
  for _, id in ipairs(call('HVALS', P .. 'g:' .. uid)) do
    local run = load_run(id)
    if run.hold and (hold == '' or run.hold == hold) then
      found[#found + 1] = run
    end
  end
  return found
end

-- Release (or cancel) the trigger's held runs, oldest first; how many.
local function let_go(uid, hold, drop)
  local held = {}
  for _, each in ipairs(holds_of(uid, hold)) do
    for _, at in ipairs(call('ZRANGE', held_key(uid, each), 0, -1)) do
      held[#held + 1] = load_run(sub(at, 13))
    end
  end
  table.sort(held, function(a, b)
    return a.due < b.due or (a.due == b.due and a.seq < b.seq)
  end)
  if not drop then
    for _, run in ipairs(gathering_held(uid, hold)) do
      call('HDEL', P .. 'r:' .. run.id, 'hold')
    end
  end
  for _, run in ipairs(held) do
    if drop then
      move(run, CANCELLED, { over = now, why = 'dropped' })
      if run.slot then
        free_slot(run.slot, run.id)
      end
    else
      admit(run, run.due)
    end
  end
  return #held
end

-- The first read is complete: few enough held runs go, too many wait for a person.
local function release_flood(uid, limit)
  local held = call('ZCARD', held_key(uid, 'flood')) + #gathering_held(uid, 'flood')
  if held > 0 and held <= limit then
    let_go(uid, 'flood', false)
  end
end
