-- Intents become runs: inserted, gathered, held, or refused with the reason. Nothing here may fail half-way.
local FIRED, DUPLICATE, BEFORE_START, GATHERED, HELD_BACK, SKIPPED = 0, 2, 3, 4, 5, 6
local CLAIM_US = 60000000

-- Index entries of plain runs, written together at the end of a commit. Nobody looks for them before.
local zadds, pushes, buckets, fired = {}, {}, {}, {}

local function later(table_of, key, first, second)
  local list = table_of[key]
  if not list then
    table_of[key] = { first, second }
    return
  end
  local size = #list
  list[size + 1] = first
  list[size + 2] = second
end

local function write_later()
  for key, list in pairs(zadds) do
    call_all('ZADD', key, list)
  end
  for key, list in pairs(pushes) do
    call_all('RPUSH', key, list)
  end
  for bucket, list in pairs(buckets) do
    call_all('HSET', P .. 'rn:' .. bucket, list)
    call('ZADD', P .. 'rb', bucket, bucket)
  end
  for uid, times in pairs(fired) do
    call('HINCRBY', P .. 'tr:' .. uid, 'fired', times)
    call('HSET', P .. 'tr:' .. uid, 'fired_at', int(now))
  end
  zadds, pushes, buckets, fired = {}, {}, {}, {}
end

-- A verdict as it is kept: its outcome, trigger, run, reason (opaque) and a number.
local function frame(outcome, trigger, run, reason, number)
  run, reason = run or '', reason or ''
  return pack('>BHBI4I4', outcome, #trigger, #run, #reason, number or 0) .. trigger .. run .. reason
end

local APART = { id = true, state = true, token = true, seq = true }

-- The numbering and the lists that every new run is in.
local function number_run(run)
  local number = next_id('run')
  run.seq = format('%012d', number)
  later(buckets, int(math.floor(number / BUCKET)), int(number), run.id)
  if run.trigger ~= '' then
    later(pushes, P .. 'rt:' .. run.trigger, run.seq .. run.id)
  end
end

local function insert_run(run, input)
  number_run(run)
  if input then
    run.x = '1'
    call('HSET', P .. 'x:' .. run.id, 'input', text(input))
  end
  run.made = now
  -- what every claim and settlement asks for stands at the beginning, where Redis finds it first
  local fields = { 'state', int(run.state), 'token', int(run.token or 0), 'seq', run.seq }
  local size = 6
  for field, value in pairs(run) do
    if value and not APART[field] then
      fields[size + 1] = field
      fields[size + 2] = type(value) == 'number' and int(value) or value
      size = size + 2
    end
  end
  call('HSET', P .. 'r:' .. run.id, unpack(fields))
  if run.prio then
    call('SADD', P .. 'prios', run.prio)
  end
  count('s' .. run.state, 1)
  if run.slot or run.state < READY then
    -- another entry of this page may push it out, join it or count it
    call('ZADD', P .. 'open', run.seq, member(run))
    enter(run)
  else
    later(zadds, P .. 'open', run.seq, member(run))
    if run.state == READY then
      later(zadds, ready_key(run), int(run.due), member(run))
    else
      later(zadds, P .. 'running', int(run['until']), member(run))
    end
  end
end

-- The run that has this occurrence already since the last reset; the id of a gathering run names only its first.
local function gathered_before(uid, trigger, key)
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

-- An intent is {uid, run, rev, due, input, slot, overlap, hold, prio, max, quiet from, quiet until, reason, key,
-- gather}; gather is {key, run, due, max, extends}.
local function gather(intent, trigger, event)
  local uid, into, key = intent[1], intent[15], name(intent[14])
  -- it may have had a run of its own when it was younger, or before somebody edited the trigger
  local alone = name(intent[2])
  local earlier = call('EXISTS', P .. 'r:' .. alone) == 1 and alone or gathered_before(uid, trigger, key)
  if earlier then
    return frame(DUPLICATE, trigger.name, earlier)
  end
  local gather_key = name(into[1])
  local open = call('HGET', P .. 'g:' .. uid, gather_key)
  local run = open and load_run(open)
  if run and run.due <= now then
    -- its window is over although nobody has claimed it yet
    close_gathering(run)
    run = nil
  end
  if run then
    run.gathered = tonumber(run.gathered) + 1
    if into[5] and into[3] > run.due then
      run.due = into[3]
      call('ZADD', P .. 'wake', run.due, member(run))
    end
    call('HSET', P .. 'r:' .. run.id, 'gathered', run.gathered, 'due', run.due)
  else
    local id = name(into[2])
    if call('EXISTS', P .. 'r:' .. id) == 1 then
      return frame(DUPLICATE, trigger.name, id)
    end
    run = {
      id = id, trigger = uid, rev = intent[3], state = GATHERING, due = into[3],
      prio = intent[9] ~= 0 and int(intent[9]), max = intent[10], gather = gather_key, gathered = 1,
      hold = intent[8] ~= '' and intent[8],
      slot = intent[6] and name(intent[6]), overlap = intent[6] and intent[7],
    }
    insert_run(run, intent[5])
    fired[uid] = (fired[uid] or 0) + 1
  end
  if intent[11] then
    call('HSET', P .. 'r:' .. run.id, 'qfrom', intent[11], 'qtil', intent[12])
  end
  if trigger.budget then
    call('HSET', P .. 'r:' .. run.id, 'budget', '1')
  end
  call('RPUSH', P .. 're:' .. run.id, int(event))
  note_gathered(uid, key, event, run.id)
  if into[4] > 0 and run.gathered >= into[4] then
    close_gathering(load_run(run.id))
  end
  return frame(GATHERED, trigger.name, run.id, intent[13] and text(intent[13]), run.gathered)
end

-- Turn an intent into a verdict: insert its run, join a gathering one, or say why not. `hands` takes a run that is
-- handed over already claimed, nil for none.
local function resolve(intent, event, hands)
  local uid = intent[1]
  local trigger = trigger_of(uid)
  if intent[15] then
    return gather(intent, trigger, event)
  end
  local id = name(intent[2])
  -- it was old when it was found first, and looks young now that a sibling's reset shows it again
  local shared = trigger.shares and gathered_before(uid, trigger, name(intent[14]))
  if shared or call('EXISTS', P .. 'r:' .. id) == 1 then
    return frame(DUPLICATE, trigger.name, shared or id)
  end
  local hold, due, state = intent[8], intent[4], READY
  local slot = intent[6] and name(intent[6])
  if hold ~= '' then
    state = HELD
  elseif slot then
    local taken = take_slot(id, slot, intent[7])
    if taken == nil then
      return frame(SKIPPED, trigger.name)
    end
    state = taken and READY or BLOCKED
  end
  if intent[11] and intent[11] <= now and now < intent[12] then
    due = math.max(due, intent[12])
  end
  if trigger.budget and state == READY and due <= now and over_budget(uid, trigger) then
    state, hold = HELD, 'budget'
  end
  local claimed = hands and state == READY and due <= now
  local run = {
    id = id, trigger = uid, rev = intent[3], state = claimed and RUNNING or state, due = due, event = event,
    prio = intent[9] ~= 0 and int(intent[9]), max = intent[10], slot = slot, overlap = slot and intent[7],
    hold = hold ~= '' and hold, qfrom = intent[11], qtil = intent[12], budget = trigger.budget and not claimed and '1',
  }
  if claimed then
    run.token, run['until'], run.holder, run.life, run.begun = 1, now + CLAIM_US, hands.holder, hands.life, now
    if trigger.budget then
      spend(uid, 'runs', 1)
    end
    hands[#hands + 1] = id
  end
  insert_run(run, intent[5])
  fired[uid] = (fired[uid] or 0) + 1
  if hold ~= '' then
    return frame(HELD_BACK, trigger.name, id, hold)
  end
  return frame(FIRED, trigger.name, id, intent[13] and text(intent[13]))
end
