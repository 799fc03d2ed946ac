-- with: begin run queue spending claiming
-- Ready runs that are due, by priority and due time.
-- Asked: {holder, life, limit, seconds in us, is first, quiet spans}.
-- Answers {claimed runs, triggers whose calendar has to be asked}.
local holder, life, limit, seconds = ask[1], ask[2], ask[3], ask[4]
local DUE_AT_ONCE = 500

for _, span in ipairs(ask[6]) do
  call('HSET', P .. 'tr:' .. span[1], 'quiet_asked', span[2], 'quiet_from', span[3], 'quiet_until', span[4])
end
if ask[5] then
  -- a name that comes back is the same worker in another life: what it had is not being done
  for _, at in ipairs(call('ZRANGEBYSCORE', P .. 'running', '-inf', '(inf')) do
    local run = load_run(sub(at, 13))
    if run.holder == holder and run.life ~= life then
      move(run, READY, { ['until'] = false, holder = false, life = false })
    end
  end
end
for _, at in ipairs(call('ZRANGEBYSCORE', P .. 'wake', '-inf', now, 'LIMIT', 0, DUE_AT_ONCE)) do
  local run = load_run(sub(at, 13))
  if run.state == GATHERING then
    close_gathering(run)
  else
    move(run, READY)
  end
end
let_in(limit)

local claimed, unknown, gone, running = {}, {}, {}, {}
local NONE, HEAVIEST = {}, 1000000
local weight = 0

local function take(run, at, queue)
  run.token = (tonumber(run.token) or 0) + 1
  local set = { 'state', '4', 'token', int(run.token), 'holder', holder, 'life', life, 'until', int(now + seconds) }
  if not run.begun then
    set[#set + 1] = 'begun'
    set[#set + 1] = int(now)
  end
  call('HSET', P .. 'r:' .. run.id, unpack(set))
  gone[queue] = gone[queue] or {}
  table.insert(gone[queue], at)
  running[#running + 1] = int(now + seconds)
  running[#running + 1] = at
  count('s' .. READY, -1)
  count('s' .. RUNNING, 1)
  local event, extra, journal, gathered = run.rows or NONE, NONE, NONE, NONE
  if not run.event then
    gathered = call('LRANGE', P .. 're:' .. run.id, 0, -1)
  end
  if run.x then
    extra = call('HMGET', P .. 'x:' .. run.id, 'input', 'answer', 'told', 'told_state', 'told_why', 'told_output',
      'told_error')
  end
  if run.journal then
    journal = call('LRANGE', P .. 'j:' .. run.id, 0, -1)
  end
  weight = weight + #(event[1] or '') + #(extra[1] or '')
  claimed[#claimed + 1] = { run.id, run.token, run.trigger, run.rev, run.tries or '1', run.max or '3', run.parent or '',
    run.made, run.stop or '', run.event or '', event, gathered, extra, journal }
end

-- The run at this place of a queue, with the end of the quiet hours that it may not start in.
local function candidate(at)
  local run = load_run(sub(at, 13))
  run.at, run.quiet = at, 0
  if not run.begun and run.qfrom and tonumber(run.qfrom) <= now then
    run.quiet = quiet_until(run)
    if run.quiet == nil then
      unknown[run.trigger] = true
    end
  end
  return run
end

-- The rows of the events that these runs are for, asked of each bucket at once.
local function look_up_events(runs)
  local buckets = {}
  for _, run in ipairs(runs) do
    if run.event then
      local id, bucket = run.event, math.floor(run.event / BUCKET)
      local asked = buckets[bucket] or { fields = {} }
      buckets[bucket] = asked
      local fields = asked.fields
      local size = #fields
      fields[size + 1], fields[size + 2], fields[size + 3] = id, 'v' .. id, 'r' .. id
      asked[#asked + 1] = run
    end
  end
  for bucket, asked in pairs(buckets) do
    local found = call('HMGET', P .. 'e:' .. int(bucket), unpack(asked.fields))
    for i, run in ipairs(asked) do
      run.rows = { found[3 * i - 2], found[3 * i - 1], found[3 * i] }
    end
  end
end

local function claim_from(queue)
  local runs = {}
  for i, at in ipairs(call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, limit - #claimed)) do
    runs[i] = candidate(at)
  end
  if next(unknown) then
    -- nobody overtakes the one whose calendar has to be asked
    return
  end
  look_up_events(runs)
  for _, run in ipairs(runs) do
    if weight > HEAVIEST then
      -- the answer is long enough: the rest is there for the next who asks
      return
    end
    if run.quiet > now then
      call('ZADD', queue, run.quiet, run.at)
      call('HSET', P .. 'r:' .. run.id, 'due', run.quiet)
    elseif run.budget ~= '1' or enters(run) then
      take(run, run.at, queue)
    end
  end
end

local priorities = call('SMEMBERS', P .. 'prios')
priorities[#priorities + 1] = '0'
table.sort(priorities, function(a, b)
  return tonumber(a) > tonumber(b)
end)
local before
for _, priority in ipairs(priorities) do
  if priority ~= before and #claimed < limit and not next(unknown) then
    claim_from(P .. 'q:' .. priority)
  end
  before = priority
end
for queue, members in pairs(gone) do
  call('ZREM', queue, unpack(members))
end
if #running > 0 then
  call('ZADD', P .. 'running', unpack(running))
end
write_counts()
local asked = {}
for uid in pairs(unknown) do
  asked[#asked + 1] = uid
end
return { claimed, asked, int(now) }
