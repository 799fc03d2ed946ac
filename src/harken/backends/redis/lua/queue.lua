-- with: run_states
-- How runs become ready: slots that admit one run at a time, holds, and gathering windows that close.
-- Every ready run already has its slot, so that claiming never looks at slots.

-- Cancel the slot's blocked runs, and its holder unless that is running. Return true if the slot is ours now, false if
-- its holder was asked to stop and we have to wait.
local function replace_runs(slot, current, id)
  for _, blocked in ipairs(call('ZRANGE', P .. 'b:' .. slot, 0, -1)) do
    set_state(load_blocked(blocked), CANCELLED, { over = now, why = 'replaced' })
  end
  local holder = load_run(current)
  if holder and (holder.state == HELD or holder.state == READY or holder.state == WAITING) then
    set_state(holder, CANCELLED, { over = now, why = 'replaced' })
    call('HSET', P .. 'slots', slot, id)
    return true
  end
  call('HSETNX', P .. 'r:' .. current, 'stop', 'replaced')
  return false
end

-- true: the slot is ours. false: wait for it. nil: cancel the run, because its slot is taken.
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
    return replace_runs(slot, current, id)
  end
  return false
end

-- The run `id` has ended: make the next blocked run of its slot ready.
local function free_slot(slot, id)
  if call('HGET', P .. 'slots', slot) ~= id then
    return
  end
  local following = call('ZRANGE', P .. 'b:' .. slot, 0, 0)[1]
  if not following then
    call('HDEL', P .. 'slots', slot)
    return
  end
  local run = load_blocked(following)
  call('HSET', P .. 'slots', slot, run.id)
  set_state(run, READY)
end

-- Make a run ready, or blocked until its slot is free, or cancel it if it must not overlap with the slot's holder.
local function admit(run, due)
  local state = READY
  if run.slot then
    local taken = take_slot(run.id, run.slot, run.overlap)
    if taken == nil then
      set_state(run, CANCELLED, { over = now, why = 'overlap', hold = false })
      return
    end
    state = taken and READY or BLOCKED
  end
  set_state(run, state, { due = due or math.min(run.due, now), hold = false })
end

-- The gathering window has ended or is full: the run is due, unless it is held. A join that missed a part is dropped.
local function close_gathering(run)
  if run.parts and sub(run.parts, 1, 1) == '0' then
    set_state(run, CANCELLED, { over = now, why = 'missed', hold = false })
  elseif run.hold then
    set_state(run, HELD, { due = now })
  else
    admit(run)
  end
end

-- The given hold, or with '' every hold that runs of the trigger have been under.
local function holds_of(uid, hold)
  if hold ~= '' then
    return { hold }
  end
  return call('SMEMBERS', P .. 'hk:' .. uid)
end

-- The trigger's gathering runs that become held when their window closes.
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

-- The trigger is paused: what gathers goes on to do so, and is held when its window is over or full.
local function hold_gathering(uid)
  for _, id in ipairs(call('HVALS', P .. 'g:' .. uid)) do
    call('HSETNX', P .. 'r:' .. id, 'hold', 'paused')
  end
end

-- Release (or with `drop` cancel) the trigger's held runs, oldest first. Return how many.
local function release_held(uid, hold, drop)
  local held = {}
  for _, each in ipairs(holds_of(uid, hold)) do
    for _, found in ipairs(call('ZRANGE', held_key(uid, each), 0, -1)) do
      held[#held + 1] = load_member(found)
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
      set_state(run, CANCELLED, { over = now, why = 'dropped' })
      if run.slot then
        free_slot(run.slot, run.id)
      end
    else
      admit(run, run.due)
    end
  end
  return #held
end

-- The first read of a feed is complete: release its held runs if they are at most `limit`. More wait for a person.
local function release_flood(uid, limit)
  local held = call('ZCARD', held_key(uid, 'flood')) + #gathering_held(uid, 'flood')
  if held > 0 and held <= limit then
    release_held(uid, 'flood', false)
  end
end
