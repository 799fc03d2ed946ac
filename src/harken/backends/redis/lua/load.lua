-- with: begin run
-- Runs from another home, in the order of their numbers. A run is {fields, names, number, texts, journal, charged
-- steps, events, is by hand, has its slot}: names and texts say by field where they are.
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

local function write_lists(run, one)
  for field, at in pairs(one[4]) do
    call('HSET', P .. 'x:' .. run.id, field, text(at))
  end
  for _, at in ipairs(one[5]) do
    call('RPUSH', P .. 'j:' .. run.id, text(at))
  end
  for _, at in ipairs(one[6]) do
    call('SADD', P .. 'jc:' .. run.id, name(at))
  end
  for _, event in ipairs(one[7]) do
    call('RPUSH', P .. 're:' .. run.id, int(event))
  end
  if one[8] then
    for _, event in ipairs(run.event and { run.event } or one[7]) do
      call('SADD', P .. 'er:' .. int(event), run.id)
    end
  end
end

for _, one in ipairs(ask) do
  local run, number = one[1], one[3]
  run.id, run.seq = name(one[2].id), format('%012d', number)
  for field, at in pairs(one[2]) do
    run[field] = name(at)
  end
  write_hash(run)
  write_lists(run, one)
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
  if one[9] then
    call('HSET', P .. 'slots', run.slot, run.id)
  end
  count('s' .. run.state, 1)
  enter(run)
end
write_counts()
return 'done'
