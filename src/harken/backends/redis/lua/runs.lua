-- with: begin run queue spending ticks resolving memory committing
-- The ends of tries. A lost or stale one is not written; the others are.
-- A settlement is {run, token, state (2: again), due, counts, error, output, step, caused, trigger}.
for _, one in ipairs(ask) do
  for _, commit in ipairs(one[9]) do
    local _, refused = plan(commit)
    if refused and refused[1] == '!' then
      return refused
    end
  end
end
ids = nil -- what was only tried took no numbers

local over, let_go_of, done = {}, {}, {}

local function fields_of(one, run)
  local set, state = { 'state', int(one[3]) }, one[3]
  local function put(field, value)
    set[#set + 1] = field
    set[#set + 1] = value
  end
  if state == READY then
    put('due', int(one[4]))
    put('tries', (tonumber(run.tries) or 1) + (one[5] and 1 or 0))
  else
    put('over', int(now))
  end
  local said = {}
  if one[6] then
    said = { 'error', text(one[6]) }
  elseif run.x then
    call('HDEL', P .. 'x:' .. run.id, 'error')
  end
  if one[7] then
    said[#said + 1] = 'output'
    said[#said + 1] = text(one[7])
  elseif run.x then
    call('HDEL', P .. 'x:' .. run.id, 'output')
  end
  if #said > 0 then
    call('HSET', P .. 'x:' .. run.id, unpack(said))
    put('x', '1')
  end
  return set
end

local function index(one, run)
  local at = run.seq .. run.id
  let_go_of[#let_go_of + 1] = at
  if one[3] == READY then
    run.due = one[4]
    call('ZADD', ready_key(run), run.due, at)
  else
    over[#over + 1] = at
    if one[3] ~= DONE then
      call('ZADD', P .. 'ended:' .. one[3], run.seq, at)
    end
  end
  count('s' .. RUNNING, -1)
  count('s' .. one[3], 1)
end

local function settle(one)
  local id = name(one[1])
  local row = call('HMGET', P .. 'r:' .. id, 'state', 'token', 'seq', 'slot', 'parent', 'ans', 'x')
  if row[1] ~= '4' or tonumber(row[2]) ~= one[2] then
    return 'lost'
  end
  local run = {
    id = id, seq = row[3], slot = row[4] or nil, parent = row[5] or nil, ans = row[6] or nil, x = row[7] or nil,
  }
  if one[8] or one[3] == READY then
    run = load_run(id)
  end
  for _, commit in ipairs(one[9]) do
    local planned, refused = plan(commit)
    if not planned then
      return refused
    end
    write_commit(commit, planned)
  end
  if one[8] then
    append(run, one[8])
  end
  forget_answer(run)
  call('HSET', P .. 'r:' .. id, unpack(fields_of(one, run)))
  index(one, run)
  run.state = one[3]
  if one[3] == READY then
    return 'settled'
  end
  if one[10] then
    done[one[10]] = (done[one[10]] or 0) + 1
  end
  if run.slot then
    free_slot(run.slot, id)
  end
  if run.parent then
    tell_parent(run.parent, run)
  end
  return 'settled'
end

local answers = {}
for i, one in ipairs(ask) do
  answers[i] = settle(one)
end
if #let_go_of > 0 then
  call('ZREM', P .. 'running', unpack(let_go_of))
end
if #over > 0 then
  call('ZREM', P .. 'open', unpack(over))
end
for trigger, times in pairs(done) do
  local uid = call('HGET', P .. 'tn', trigger)
  if uid then
    call('HINCRBY', P .. 'tr:' .. uid, 'done', times)
  end
end
write_counts()
return answers
