-- with: queue budgets events new_runs
-- An intent (a trigger wants a run for an event) becomes a verdict: its run is inserted, joins a gathering one, is
-- held, or is refused with a reason. Redis rolls nothing back, so nothing here may fail.
--
-- An intent is {trigger uid, run, workflow revision, due, input, slot, overlap, hold, priority, max attempts,
-- quiet from, quiet until, reason, name of its key, gather, whether it is watched}; gather is {name, run, due, max, extends} or false.

-- How long a run that is handed over with its commit is claimed for.
local CLAIM_US = 60000000

-- The run that gathered this occurrence since the trigger's last reset. (The id of a gathering run is made from its
-- first occurrence only, so it does not tell about the others.)
local function find_gathered(uid, trigger, key)
  local found = call('HGET', P .. 'gb:' .. uid, key)
  if found and unpack_struct('>I8', found) >= trigger.epoch_event then
    return sub(found, 9)
  end
  return nil
end

local function note_gathered(uid, key, event, id)
  call('HSET', P .. 'gb:' .. uid, key, pack('>I8', event) .. id)
  call('RPUSH', P .. 'gq', pack('>I8', event) .. key .. uid)
end

local function gather(intent, trigger, event)
  local uid, own_run, revision, _, input, slot, overlap, hold, priority, max_attempts, quiet_from, quiet_until, reason,
    own_key, window, watched = unpack(intent)
  local window_name, window_run, due, max_events, extends = unpack(window)
  local key = name(own_key)
  -- the occurrence may have got a run of its own, when it was younger or before the trigger was edited
  local own_id = name(own_run)
  local earlier = call('EXISTS', P .. 'r:' .. own_id) == 1 and own_id or find_gathered(uid, trigger, key)
  if earlier then
    return verdict_frame(DUPLICATE, trigger.name, earlier)
  end
  local gather_key = name(window_name)
  local open = call('HGET', P .. 'g:' .. uid, gather_key)
  local run = open and load_run(open)
  if run and run.due <= now then
    -- the window has ended, although no claim has closed it yet
    close_gathering(run)
    run = nil
  end
  if run then
    run.gathered = tonumber(run.gathered) + 1
    if extends and due > run.due then
      run.due = due
      call('ZADD', P .. 'wake', run.due, member(run))
    end
    call('HSET', P .. 'r:' .. run.id, 'gathered', run.gathered, 'due', run.due)
  else
    local id = name(window_run)
    if call('EXISTS', P .. 'r:' .. id) == 1 then
      return verdict_frame(DUPLICATE, trigger.name, id)
    end
    run = {
      id = id, trigger = uid, rev = revision, state = GATHERING, due = due,
      prio = priority ~= 0 and int(priority), max = max_attempts, gather = gather_key, gathered = 1,
      hold = hold ~= '' and hold, slot = slot and name(slot), overlap = slot and overlap,
    }
    insert_run(run, input)
    count_fired(uid)
  end
  if watched then
    watch(run)
  end
  if quiet_from then
    call('HSET', P .. 'r:' .. run.id, 'qfrom', quiet_from, 'qtil', quiet_until)
  end
  if trigger.budget then
    call('HSET', P .. 'r:' .. run.id, 'budget', '1')
  end
  call('RPUSH', P .. 're:' .. run.id, int(event))
  note_gathered(uid, key, event, run.id)
  if max_events > 0 and run.gathered >= max_events then
    close_gathering(load_run(run.id))
  end
  return verdict_frame(GATHERED, trigger.name, run.id, reason and text(reason), run.gathered)
end

-- Return the verdict about an intent. `handover` {holder, life, run ids...} takes a run that is claimed at once; nil if
-- no more runs may be handed over.
local function resolve(intent, event, handover)
  local uid, run_id, revision, due, input, slot_name, overlap, hold, priority, max_attempts, quiet_from, quiet_until,
    reason, key, window, watched = unpack(intent)
  local trigger = trigger_of(uid)
  if window then
    return gather(intent, trigger, event)
  end
  local id = name(run_id)
  -- the occurrence may have been gathered as an old one, and look young since another trigger of the feed was reset
  local gathered = trigger.shares and find_gathered(uid, trigger, name(key))
  if gathered or call('EXISTS', P .. 'r:' .. id) == 1 then
    return verdict_frame(DUPLICATE, trigger.name, gathered or id)
  end
  local state, slot = READY, slot_name and name(slot_name)
  if hold ~= '' then
    state = HELD
  elseif slot then
    local taken = take_slot(id, slot, overlap)
    if taken == nil then
      return verdict_frame(SKIPPED, trigger.name)
    end
    state = taken and READY or BLOCKED
  end
  if quiet_from and quiet_from <= now and now < quiet_until then
    due = math.max(due, quiet_until)
  end
  if trigger.budget and state == READY and due <= now and over_budget(uid, trigger) then
    state, hold = HELD, 'budget'
  end
  local claimed = handover and state == READY and due <= now
  local run = {
    id = id, trigger = uid, rev = revision, state = claimed and RUNNING or state, due = due, event = event,
    prio = priority ~= 0 and int(priority), max = max_attempts, slot = slot, overlap = slot and overlap,
    hold = hold ~= '' and hold, qfrom = quiet_from, qtil = quiet_until, budget = trigger.budget and not claimed and '1',
  }
  if claimed then
    run.token, run['until'], run.holder, run.life, run.begun = 1, now + CLAIM_US, handover.holder, handover.life, now
    if trigger.budget then
      spend(uid, 'runs', 1)
    end
    handover[#handover + 1] = id
  end
  insert_run(run, input)
  count_fired(uid)
  if watched then
    watch(run)
  end
  if hold ~= '' then
    return verdict_frame(HELD_BACK, trigger.name, id, hold)
  end
  return verdict_frame(FIRED, trigger.name, id, reason and text(reason))
end
