-- with: queue budgets events new_runs gathering
-- An intent (a trigger wants a run for an event) becomes a verdict: its run is inserted, joins a gathering one, is
-- held, or is refused with a reason. Redis rolls nothing back, so nothing here may fail.
--
-- An intent is {trigger uid, run, workflow revision, due, input, slot, overlap, hold, priority, max attempts,
-- quiet from, quiet until, reason, name of its key, gather, whether it is watched, dedupe, throttle, end}; gather is
-- {name, run, due, max, extends, longest wait, part} or false. The end of a run that was executed before its commit is
-- {output, records, whether it counts as done} or false. A part of a join is {number, when it happened, span, needs,
-- ordered, whether the join is without it, whether it is without any, whether an incomplete one is run, name of the mark
-- of what it is without}. dedupe is {name, span}, throttle {name, most, span, whether it drops}, or false.
--
-- A frame has a number that says why: of a duplicate 1 for dedupe, of a skipped one those below or the second at which
-- the throttle allows the next run, of a fired one the second until which the throttle delays it.
local SAME_VALUE, ANSWERED, TOO_EARLY = 1, 1, 2

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

-- Whether a part that the join is without happened after this one, although it came before it.
local function is_answered(uid, part)
  local mark = part[7] and read_mark(uid, name(part[9]))
  if not mark or mark.ends <= now then
    return false
  end
  for _, answer in ipairs(mark.times) do
    if answered_by(part[2], part[2], answer, part[3]) then
      return true
    end
  end
  return false
end

-- A part that the join is without: it ends the run that waits, and what happened before it and comes later.
local function end_join(intent, trigger, event, run, part)
  local uid, reason, at, span, key = intent[1], intent[13], part[2], part[3], name(part[9])
  local mark = read_mark(uid, key)
  write_mark(uid, key, now + span, with_answer(mark and mark.times or {}, at, span))
  local parts, ended = read_parts(run and run.parts), ''
  if #parts > 0 then
    local oldest, newest = oldest_and_newest(parts)
    if answered_by(newest, oldest, at, span) then
      ended = run.id
      set_state(run, CANCELLED, { over = now, why = 'ended', hold = false })
    end
  end
  note_gathered(uid, name(intent[14]), event, ended)
  return verdict_frame(GATHERED, trigger.name, ended, reason and text(reason), 0)
end

local function gather(intent, trigger, event)
  local uid, own_run, revision, _, input, slot, overlap, hold, priority, max_attempts, quiet_from, quiet_until, reason,
    own_key, window, watched = unpack(intent)
  local window_name, window_run, due, max_events, extends, longest_wait, part = unpack(window)
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
  if part and part[6] then
    return end_join(intent, trigger, event, run, part)
  end
  local parts
  if part then
    if is_answered(uid, part) then
      return verdict_frame(SKIPPED, trigger.name, nil, nil, ANSWERED)
    end
    parts = read_parts(run and run.parts)
    if #parts > 0 and not fits(parts, part[2], part[3]) then
      if part[2] < oldest_and_newest(parts) then
        return verdict_frame(SKIPPED, trigger.name, nil, nil, TOO_EARLY)
      end
      close_gathering(run)
      run, parts = nil, {}
    end
    parts[#parts + 1] = { part[1], part[2] }
  end
  if run then
    run.gathered = tonumber(run.gathered) + 1
    local latest = longest_wait > 0 and math.min(due, tonumber(run.made) + longest_wait) or due
    if extends and latest > run.due then
      run.due = latest
      call('ZADD', P .. 'wake', run.due, member(run))
    end
    call('HSET', P .. 'r:' .. run.id, 'gathered', run.gathered, 'due', int(run.due))
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
  if part then
    local complete = is_complete(parts, part[4], part[5])
    call('HSET', P .. 'r:' .. run.id, 'parts', write_parts_text(parts, complete or (part[8] and is_live(parts))))
    if complete and not part[7] then
      close_gathering(load_run(run.id))
    end
  elseif max_events > 0 and run.gathered >= max_events then
    close_gathering(load_run(run.id))
  end
  return verdict_frame(GATHERED, trigger.name, run.id, reason and text(reason), run.gathered)
end

-- `throttled`: when the throttle lets the run start, if that is later than it is due.
local function start(intent, trigger, event, handover, throttled)
  local uid, run_id, revision, due, input, slot_name, overlap, hold, priority, max_attempts, quiet_from, quiet_until,
    reason, key, window, watched = unpack(intent)
  local ended = intent[19]
  if window then
    return gather(intent, trigger, event)
  end
  due = throttled or due
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
  local starts = handover and state == READY and due <= now
  local over = starts and ended and not slot and not watched
  local claimed = starts and not over and #handover < handover.most
  local run = {
    id = id, trigger = uid, rev = revision, state = state, due = due, event = event,
    prio = priority ~= 0 and int(priority), max = max_attempts, slot = slot, overlap = slot and overlap,
    hold = hold ~= '' and hold, qfrom = quiet_from, qtil = quiet_until,
    budget = trigger.budget and not claimed and not over and '1',
  }
  if (claimed or over) and trigger.budget then
    spend(uid, 'runs', 1)
  end
  if claimed then
    run.state = RUNNING
    run.token, run['until'], run.holder, run.life, run.begun = 1, now + CLAIM_US, handover.holder, handover.life, now
    handover[#handover + 1] = id
  elseif over then
    end_run(run, unpack(ended))
    handover.over[#handover.over + 1] = id
  end
  insert_run(run, input)
  count_fired(uid)
  if watched then
    watch(run)
  end
  if hold ~= '' then
    return verdict_frame(HELD_BACK, trigger.name, id, hold)
  end
  return verdict_frame(FIRED, trigger.name, id, reason and text(reason), throttled and math.floor(throttled / 1000000))
end

-- The verdict that dedupe or throttle give; otherwise nil, and when the throttle lets the run start if that is later.
local function limit(intent, trigger)
  local uid, due, slot, overlap, hold, key, window = intent[1], intent[4], intent[6], intent[7], intent[8], intent[14],
    intent[15]
  local distinct, throttle = intent[17], intent[18]
  local own_id = name(intent[2])
  local known = call('EXISTS', P .. 'r:' .. own_id) == 1 and own_id
    or ((window or trigger.shares) and find_gathered(uid, trigger, name(key)))
  if known then
    return verdict_frame(DUPLICATE, trigger.name, known)
  end
  if overlap == 'skip' and slot and hold == '' and not window and call('HEXISTS', P .. 'slots', name(slot)) == 1 then
    -- what is skipped must not count
    return verdict_frame(SKIPPED, trigger.name)
  end
  local mark = distinct and read_mark(uid, name(distinct[1]))
  if mark and mark.ends > now then
    return verdict_frame(DUPLICATE, trigger.name, mark.run, nil, SAME_VALUE)
  end
  if throttle then
    local wanted = math.max(due, now)
    local begin = take_start(uid, throttle, wanted)
    if begin > wanted and throttle[4] then
      return verdict_frame(SKIPPED, trigger.name, nil, nil, math.floor(begin / 1000000))
    end
    return nil, begin > wanted and begin or nil
  end
  return nil
end

-- Return the verdict about an intent. `handover` {holder, life, most, over, run ids...} takes a run that is claimed at
-- once, at most so many, and in `over` one that is over at once; nil for a stored event, whose runs are neither.
local function resolve(intent, event, handover)
  local trigger, distinct = trigger_of(intent[1]), intent[17]
  if not distinct and not intent[18] then
    return start(intent, trigger, event, handover)
  end
  local limited, throttled = limit(intent, trigger)
  if limited then
    return limited
  end
  local frame = start(intent, trigger, event, handover, throttled)
  local verdict = distinct and split_frames(frame)[1]
  if verdict and (verdict.outcome == FIRED or verdict.outcome == HELD_BACK or verdict.outcome == GATHERED) then
    write_mark(intent[1], name(distinct[1]), now + distinct[2], {}, verdict.run)
  end
  return frame
end
