-- with: run_states
-- Inserting runs: for an intent of a matched event (see resolve.lua), or started by a person or another run.

-- Index entries of new runs, collected and written with one command per index at the end of the call.
local zadds, pushes, buckets, fired, done = {}, {}, {}, {}, {}

local function append_pair(lists, key, first, second)
  local list = lists[key]
  if not list then
    lists[key] = { first, second }
    return
  end
  local size = #list
  list[size + 1] = first
  list[size + 2] = second
end

local function write_collected()
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
  for uid, times in pairs(done) do
    call('HINCRBY', P .. 'tr:' .. uid, 'done', times)
  end
  zadds, pushes, buckets, fired, done = {}, {}, {}, {}, {}
end

local function count_fired(uid)
  fired[uid] = (fired[uid] or 0) + 1
end

-- Give a new run its number, and list it by number and by trigger.
local function number_run(run)
  local number = next_id('run')
  run.seq = format('%012d', number)
  append_pair(buckets, int(math.floor(number / BUCKET)), int(number), run.id)
  if run.trigger ~= '' then
    append_pair(pushes, P .. 'rt:' .. run.trigger, run.seq .. run.id)
  end
end

-- Make a new run one that is over already: it was executed before its commit. `counts`: it is done, and not filtered.
local function end_run(run, output, records, counts)
  run.state, run.token, run.begun, run.over = DONE, 1, now, now
  if output then
    run.x = '1'
    call('HSET', P .. 'x:' .. run.id, 'output', text(output))
  end
  for _, record in ipairs(records) do
    call('RPUSH', P .. 'j:' .. run.id, text(record))
    run.journal = '1'
  end
  if counts then
    done[run.trigger] = (done[run.trigger] or 0) + 1
  end
end

-- Fields of the table that are written first, or not at all.
local APART = { id = true, state = true, token = true, seq = true }

local function insert_run(run, input)
  number_run(run)
  if input then
    run.x = '1'
    call('HSET', P .. 'x:' .. run.id, 'input', text(input))
  end
  run.made = now
  -- Redis searches a small hash from its beginning: put what every claim and settlement reads there
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
  if run.state == DONE then
    return
  end
  if run.slot or run.state < READY then
    -- index it now: a later entry of this call may replace it, join it or count it
    call('ZADD', P .. 'open', run.seq, member(run))
    add_to_index(run)
  else
    append_pair(zadds, P .. 'open', run.seq, member(run))
    if run.state == READY then
      append_pair(zadds, ready_key(run), int(run.due), member(run))
    else
      append_pair(zadds, P .. 'running', int(run['until']), member(run))
    end
  end
end

-- Why this new run cannot be started, or nil.
local function start_refusal(new)
  local uid = new[1]
  local trigger = uid ~= '' and trigger_of(uid)
  if uid ~= '' and (not trigger or trigger.removed) then
    return { '!', 'uid', uid }
  end
  return nil
end

-- Start a run {trigger uid, run, revision, due, max attempts, events, input, parent, replay of,
-- whether it is watched, steps that are done}, unless its id exists.
local function start_run(new)
  local uid, run_id, revision, due, max_attempts, events, input, parent, replay, watched, steps = unpack(new)
  local id = name(run_id)
  if call('EXISTS', P .. 'r:' .. id) == 1 then
    return
  end
  local run = { id = id, trigger = uid, rev = revision, state = READY, due = due or now, max = max_attempts,
    event = #events == 1 and events[1], parent = parent and name(parent), replay = replay and name(replay),
    journal = #steps > 0 and '1' }
  insert_run(run, input)
  for _, record in ipairs(steps) do
    call('RPUSH', P .. 'j:' .. id, text(record))
  end
  if watched then
    watch(run)
  end
  for _, event in ipairs(events) do
    call('SADD', P .. 'er:' .. int(event), id)
    if #events > 1 then
      call('RPUSH', P .. 're:' .. id, int(event))
    end
  end
end
