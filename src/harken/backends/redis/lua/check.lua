-- with: begin run
-- Look for inconsistencies in a slice. Asked: {runs | events | slots, where to begin}.
-- Answers {where to go on, findings}.
local found = {}
local function say(what)
  found[#found + 1] = what
end

local MAY_RUN = { [READY] = true, [RUNNING] = true, [WAITING] = true }

local function is_indexed(run)
  if run.state == READY then return call('ZSCORE', ready_key(run), member(run)) end
  if run.state == HELD then return call('ZSCORE', held_key(run.trigger, run.hold), member(run)) end
  if run.state == BLOCKED then return call('ZSCORE', P .. 'b:' .. run.slot, blocked_member(run)) end
  if run.state == RUNNING then return call('ZSCORE', P .. 'running', member(run)) end
  -- gathering or waiting: only an answer wakes a run that is never due
  return run.due == NEVER or call('ZSCORE', P .. 'wake', member(run))
end

local function has_event(id)
  return call('HEXISTS', P .. 'e:' .. int(math.floor(id / BUCKET)), 'v' .. int(id)) == 1
end

local function check_run(id)
  local run = load_run(id)
  if not run then
    return say('numbered runs are gone')
  end
  if run.trigger ~= '' and call('EXISTS', P .. 'tr:' .. run.trigger) == 0 then
    say('runs belong to a trigger that does not exist')
  end
  if run.state >= DONE then
    return nil
  end
  if run.event and not has_event(run.event) then
    say('runs refer to an event that is gone')
  end
  for _, event in ipairs(call('LRANGE', P .. 're:' .. id, 0, -1)) do
    if not has_event(event) then
      say('gathered events of open runs are gone')
    end
  end
  if call('HEXISTS', P .. 'd:workflow', run.rev) == 0 then
    say('open runs pin a workflow revision that is gone')
  end
  if not call('ZSCORE', P .. 'open', member(run)) then
    say('open runs are missing from the list of open runs')
  end
  if not is_indexed(run) then
    say('runs are missing from the index of their state')
  end
  if run.slot and MAY_RUN[run.state] and call('HGET', P .. 'slots', run.slot) ~= id then
    say('runs may run without having their slot')
  end
  if run.state == BLOCKED and call('HEXISTS', P .. 'slots', run.slot) == 0 then
    say('runs are blocked behind a slot that nobody holds')
  end
  return nil
end

local function check_event(row)
  local size = unpack_struct('>H', row, 25)
  if call('EXISTS', P .. 'f:' .. sub(row, 27, 26 + size)) == 0 then
    say('events belong to a feed that does not exist')
  end
end

local function check_slot(id)
  local run = load_run(id)
  local state = run and run.state
  if state ~= READY and state ~= RUNNING and state ~= WAITING and not (state == HELD and run.hold == 'budget') then
    say('slots are held by a run that is over')
  end
end

if ask[1] == 'slots' then
  local page = call('HSCAN', P .. 'slots', ask[2], 'COUNT', 200)
  for i = 2, #page[2], 2 do
    check_slot(page[2][i])
  end
  return { page[1], found }
end
local key, buckets, field = P .. 'rn:', P .. 'rb', ''
if ask[1] == 'events' then
  key, buckets, field = P .. 'e:', P .. 'eb', 'v'
end
local bucket = call('ZRANGEBYSCORE', buckets, math.floor(ask[2] / BUCKET), '+inf', 'LIMIT', 0, 1)[1]
if not bucket then
  return { '0', found }
end
local begin = math.max(ask[2], bucket * BUCKET)
local finish = math.min(begin + 249, bucket * BUCKET + BUCKET - 1)
for number = begin, finish do
  local value = call('HGET', key .. bucket, field .. int(number))
  if value and ask[1] == 'events' then
    check_event(value)
  elseif value then
    check_run(value)
  end
end
return { int(finish + 1), found }
