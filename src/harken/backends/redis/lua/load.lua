-- with: prelude
-- Filling an empty store with the rows of another one.

-- verb: load_runs
-- with: run_states
-- Insert runs in the order of their numbers. A run is {fields, names, number, texts, journal, charge names, events,
-- whether a person started it, whether it holds its slot, whether it is listed as moved}; `names` and `texts` give positions by field.
local function write_hash(run)
  local flat = { 'state', int(run.state), 'token', int(run.token), 'seq', run.seq }
  for field, value in pairs(run) do
    if field ~= 'id' and field ~= 'state' and field ~= 'token' and field ~= 'seq' then
      flat[#flat + 1] = field
      flat[#flat + 1] = type(value) == 'number' and int(value) or value
    end
  end
  call('HSET', P .. 'r:' .. run.id, unpack(flat))
end

local function write_parts(run, texts, journal, charges, events, by_hand)
  for field, at in pairs(texts) do
    call('HSET', P .. 'x:' .. run.id, field, text(at))
  end
  for _, at in ipairs(journal) do
    call('RPUSH', P .. 'j:' .. run.id, text(at))
  end
  for _, at in ipairs(charges) do
    call('SADD', P .. 'jc:' .. run.id, name(at))
  end
  for _, event in ipairs(events) do
    call('RPUSH', P .. 're:' .. run.id, int(event))
  end
  if by_hand then
    for _, event in ipairs(run.event and { run.event } or events) do
      call('SADD', P .. 'er:' .. int(event), run.id)
    end
  end
end

local function load_one(row)
  local run, names, number, texts, journal, charges, events, by_hand, has_slot, moved = unpack(row)
  run.id, run.seq = name(names.id), format('%012d', number)
  for field, at in pairs(names) do
    run[field] = name(at)
  end
  write_hash(run)
  write_parts(run, texts, journal, charges, events, by_hand)
  local bucket = int(math.floor(number / BUCKET))
  call('HSET', P .. 'rn:' .. bucket, int(number), run.id)
  call('ZADD', P .. 'rb', bucket, bucket)
  if run.trigger ~= '' then
    call('RPUSH', P .. 'rt:' .. run.trigger, member(run))
  end
  if run.prio then
    call('SADD', P .. 'prios', run.prio)
  end
  if run.state < DONE then
    call('ZADD', P .. 'open', run.seq, member(run))
  end
  if has_slot then
    call('HSET', P .. 'slots', run.slot, run.id)
  end
  if moved then
    call('ZADD', P .. 'moved', run.seq, run.id)
  end
  count('s' .. run.state, 1)
  add_to_index(run)
end

local function load_runs(rows)
  for _, row in ipairs(rows) do
    load_one(row)
  end
  write_counts()
  return 'done'
end

-- verb: finish
-- The copy is complete: remove the marks that keep everybody out.
local function finish()
  call('UNLINK', P .. 'half')
  call('HDEL', P .. 'd:moving', 'here')
  return 'done'
end
