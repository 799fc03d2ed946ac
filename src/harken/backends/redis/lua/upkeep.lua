-- with: prelude
-- Housekeeping: expired claims, retention, and a check of the store. Each call does a small slice, because nobody else
-- is served while a script runs.

-- verb: requeue_expired
-- with: run_states
-- Make up to `limit` runs ready whose claim has expired. Return how many.
local function requeue_expired(limit)
  local expired = call('ZRANGEBYSCORE', P .. 'running', '-inf', '(' .. int(now), 'LIMIT', 0, limit)
  for _, found in ipairs(expired) do
    set_state(load_member(found), READY, UNCLAIMED)
  end
  write_counts()
  return #expired
end

-- verb: prune
-- with: run_states events memory deletion
-- Delete runs, ticks, events and audits that are older than these times, up to `slice` of each kind. Return {how many, 1 if
-- there may be more that are old, otherwise 0}.
local BUCKETS_PER_CALL = 10

-- Forget the names of what the events of a part are about, once none of them is left (see objects.lua).
local NAMED_BUCKETS, NAMED_STRINGS = 16, 64

local function forget_names(part)
  local first = part * NAMED_BUCKETS
  if call('ZCOUNT', P .. 'eb', first, first + NAMED_BUCKETS - 1) == 0 then
    for n = 0, NAMED_STRINGS - 1 do
      call('UNLINK', P .. 'o:' .. int(part) .. ':' .. n)
    end
  end
end

-- Numbers rise with time, so old rows are found at the beginning. Call `delete` on up to `slice` rows from where the
-- last call stopped (the counter `progress`), until it returns 'young'; then the next call begins at the oldest row, or
-- with `stays` here. Return whether the next call goes on.
local function sweep(progress, prefix, field, buckets, slice, delete, stays)
  local begin = tonumber(call('HGET', P .. 'n', progress)) or 0
  local looked, going_on, passed = 0, 0, begin
  local existing = call('ZRANGEBYSCORE', P .. buckets, int(math.floor(begin / BUCKET)), '+inf', 'LIMIT', 0,
    BUCKETS_PER_CALL)
  for _, bucket in ipairs(existing) do
    local key = P .. prefix .. bucket
    for number = math.max(begin, bucket * BUCKET), bucket * BUCKET + BUCKET - 1 do
      local value = call('HGET', key, field .. int(number))
      if value then
        looked = looked + 1
        if looked > slice then
          going_on = number
          break
        end
        if delete(number, value, key) == 'young' then
          looked = slice + 1
          break
        end
        passed = number + 1
      end
    end
    if call('EXISTS', key) == 0 then
      call('ZREM', P .. buckets, bucket)
      if prefix == 'e:' then
        forget_names(math.floor(bucket / NAMED_BUCKETS))
      end
    end
    if looked > slice then
      break
    end
  end
  if looked <= slice and #existing == BUCKETS_PER_CALL then
    going_on = (existing[BUCKETS_PER_CALL] + 1) * BUCKET
  end
  call('HSET', P .. 'n', progress, going_on == 0 and stays and int(passed) or int(going_on))
  return going_on > 0
end

-- Delete an event if nothing speaks against it. Those that the bank has are passed over for good: it tells when they
-- leave it. Those that an open run needs or that are starred are looked at again.
local function delete_unless_kept(event, row, key)
  local id = int(event)
  if call('HEXISTS', P .. 'kept', id) == 1 then
    return false
  end
  if call('HEXISTS', P .. 'd:starred', id) == 0 and delete_event(event, row, key) then
    return true
  end
  call('SADD', P .. 'passed', id)
  return false
end

-- Look again at some events that had to stay when they were passed.
local function prune_passed(before, slice)
  local deleted = 0
  for _, id in ipairs(call('SPOP', P .. 'passed', slice)) do
    local event = tonumber(id)
    local key = bucket_key(event)
    local row = call('HGET', key, 'v' .. id)
    if row and unpack_struct('>I8', row) >= before then
      -- old no more, as retention is longer now; nobody would pass it again
      call('SADD', P .. 'passed', id)
    elseif row and delete_unless_kept(event, row, key) then
      deleted = deleted + 1
      if call('EXISTS', key) == 0 then
        local bucket = math.floor(event / BUCKET)
        call('ZREM', P .. 'eb', int(bucket))
        forget_names(math.floor(bucket / NAMED_BUCKETS))
      end
    end
  end
  return deleted
end

-- Forget which run gathered an occurrence, once its event is deleted.
local function prune_gathered(slice)
  for _, noted in ipairs(call('LRANGE', P .. 'gq', 0, slice - 1)) do
    local event, key, uid = unpack_struct('>I8', noted), sub(noted, 9, 24), sub(noted, 25)
    if event_exists(event) then
      return
    end
    call('LPOP', P .. 'gq')
    local found = call('HGET', P .. 'gb:' .. uid, key)
    if found and unpack_struct('>I8', found) == event then
      call('HDEL', P .. 'gb:' .. uid, key)
    end
  end
end

-- Forget marks that limit nothing any more.
local function prune_marks(slice)
  local ended = call('ZRANGEBYSCORE', P .. 'mx', '-inf', '(' .. int(now), 'LIMIT', 0, slice)
  for _, found in ipairs(ended) do
    call('HDEL', P .. 'mk:' .. sub(found, 17), sub(found, 1, 16))
    call('ZREM', P .. 'mx', found)
  end
  return #ended
end

local function prune_ticks(before, slice)
  for deleted = 0, slice - 1 do
    local feed = call('LINDEX', P .. 'tq', 0)
    local row = feed and call('LINDEX', P .. 't:' .. feed, 0)
    if not feed or (row and unpack_struct('>I8', row, 9) >= before) then
      return deleted
    end
    call('LPOP', P .. 'tq')
    call('LPOP', P .. 't:' .. feed)
  end
  return slice
end

local function prune_refused_events(before, slice)
  local deleted = 0
  for _, number in ipairs(call('ZRANGE', P .. 'bz', 0, slice - 1)) do
    local row = call('HGET', P .. 'buried', number)
    if unpack_struct('>I8', row) >= before then
      break
    end
    call('HDEL', P .. 'buried', number)
    call('ZREM', P .. 'bz', number)
    call('HDEL', P .. 'bk', sub(row, 9, 24))
    deleted = deleted + 1
  end
  return deleted
end

-- Forget subjects that have not been listed for as long as runs are kept.
local function prune_absent(before, slice)
  local deleted = 0
  for _, found in ipairs(call('ZRANGEBYSCORE', P .. 'ma', '-inf', '(' .. int(before), 'LIMIT', 0, slice)) do
    local key, mid = P .. 'm:' .. sub(found, 17), sub(found, 1, 16)
    local value = call('HGET', key, mid)
    local known = value and read_memory(value)
    if known and known.kind == ABSENT and known.last < before then
      deleted = deleted + call('HDEL', key, mid)
    end
    call('ZREM', P .. 'ma', found)
  end
  return deleted
end

-- The number of an audit is its place since the beginning: `audits_gone` says how many before it are deleted.
local function prune_audits(before, slice)
  local old = 0
  for _, row in ipairs(call('LRANGE', P .. 'audit', 0, slice - 1)) do
    if unpack_struct('>I8', row) >= before then
      break
    end
    old = old + 1
  end
  if old > 0 then
    call('LTRIM', P .. 'audit', old, -1)
    call('HINCRBY', P .. 'n', 'audits_gone', old)
  end
  return old
end

local function prune(runs_before, ticks_before, events_before, audits_before, slice)
  local deleted = 0
  local more_runs = sweep('swept_run', 'rn:', '', 'rb', slice, function(number, id, key)
    local run = load_run(id)
    if tonumber(run.made) >= runs_before then
      return 'young'
    end
    local ended = run.state >= DONE and tonumber(run.over) < runs_before
    if ended and not (run.parent and is_open(run.parent)) then
      delete_run(run, number, key)
      deleted = deleted + 1
    end
    return nil
  end)
  deleted = deleted + prune_passed(events_before, slice)
  local bank = call('HMGET', P .. 'n', 'banked', 'bank_keep')
  local banked = (tonumber(bank[2]) or 0) > 0 and tonumber(bank[1]) or math.huge
  local more_events = sweep('swept_event', 'e:', 'v', 'eb', slice, function(event, row, key)
    if event > banked or unpack_struct('>I8', row) >= events_before then
      return 'young'
    end
    if delete_unless_kept(event, row, key) then
      deleted = deleted + 1
    end
    return nil
  end, true)
  prune_gathered(slice)
  deleted = deleted + prune_marks(slice)
  deleted = deleted + prune_ticks(ticks_before, slice)
  deleted = deleted + prune_refused_events(events_before, slice)
  deleted = deleted + prune_absent(runs_before, slice)
  deleted = deleted + prune_audits(audits_before, slice)
  write_counts()
  return { deleted, (more_runs or more_events) and 1 or 0 }
end

-- verb: erase
-- with: run_states events deletion
-- Delete these runs if they are over, and these events if no open run needs them. Return {events, runs}: how many.
local function erase(events, runs)
  local erased_events, erased_runs = 0, 0
  for _, id in ipairs(runs) do
    local run = load_run(name(id))
    if run and run.state >= DONE then
      local number = tonumber(run.seq)
      delete_run(run, number, P .. 'rn:' .. int(math.floor(number / BUCKET)))
      erased_runs = erased_runs + 1
    end
  end
  for _, event in ipairs(events) do
    local key = bucket_key(event)
    local row = call('HGET', key, 'v' .. int(event))
    if row and delete_event(event, row, key) then
      call('HDEL', P .. 'kept', int(event))
      erased_events = erased_events + 1
    end
  end
  write_counts()
  return { erased_events, erased_runs }
end

-- verb: prune_pushed
-- with: memory
-- Forget subjects of pushed feeds that were last seen before `before`, up to `slice` per feed: nothing lists them, so
-- only time tells. The list `mo:<feed>` has an entry for each time that a subject was noted.
local function prune_pushed(before, slice, feeds)
  local deleted = 0
  for _, feed in ipairs(feeds) do
    for _, noted in ipairs(call('LRANGE', P .. 'mo:' .. feed, 0, slice - 1)) do
      if unpack_struct('>I8', noted) >= before then
        break
      end
      call('LPOP', P .. 'mo:' .. feed)
      local mid = sub(noted, 9)
      local value = call('HGET', P .. 'm:' .. feed, mid)
      if value and read_memory(value).last < before then
        deleted = deleted + call('HDEL', P .. 'm:' .. feed, mid)
      end
    end
  end
  return deleted
end

-- verb: check
-- with: run_states events
-- Look for inconsistencies in a slice of `what` (runs, events, slots or moved) from `place` on. Return {next place, findings}.
local ROWS_PER_CALL, ROWS_SCANNED = 250, 200
local MAY_RUN = { [READY] = true, [RUNNING] = true, [WAITING] = true }

local findings = {}
local function report(finding)
  findings[#findings + 1] = finding
end

local function is_indexed(run)
  if run.state == READY then return call('ZSCORE', ready_key(run), member(run)) end
  if run.state == HELD then return call('ZSCORE', held_key(run.trigger, run.hold), member(run)) end
  if run.state == BLOCKED then return call('ZSCORE', P .. 'b:' .. run.slot, blocked_member(run)) end
  if run.state == RUNNING then return call('ZSCORE', P .. 'running', member(run)) end
  -- gathering or waiting; a run that is never due is woken by an answer only
  return run.due == NEVER or call('ZSCORE', P .. 'wake', member(run))
end

local function check_run(id)
  local run = load_run(id)
  if not run then
    return report('numbered runs that are gone')
  end
  if run.trigger ~= '' and call('EXISTS', P .. 'tr:' .. run.trigger) == 0 then
    report('runs that belong to a trigger that does not exist')
  end
  if run.state >= DONE then
    return nil
  end
  if run.event and not event_exists(run.event) then
    report('runs that refer to an event that is gone')
  end
  for _, event in ipairs(call('LRANGE', P .. 're:' .. id, 0, -1)) do
    if not event_exists(event) then
      report('gathered events of open runs that are gone')
    end
  end
  if call('HEXISTS', P .. 'd:workflow', run.rev) == 0 then
    report('open runs that pin a workflow revision that is gone')
  end
  if not call('ZSCORE', P .. 'open', member(run)) then
    report('open runs that are missing from the list of open runs')
  end
  if not is_indexed(run) then
    report('runs that are missing from the index of their state')
  end
  if run.slot and MAY_RUN[run.state] and call('HGET', P .. 'slots', run.slot) ~= id then
    report('runs that may run without having their slot')
  end
  if run.state == BLOCKED and call('HEXISTS', P .. 'slots', run.slot) == 0 then
    report('runs that are blocked behind a slot that nobody holds')
  end
  return nil
end

local function check_event(row)
  local size = unpack_struct('>H', row, 25)
  if call('EXISTS', P .. 'f:' .. sub(row, 27, 26 + size)) == 0 then
    report('events that belong to a feed that does not exist')
  end
end

local function check_slot(id)
  local run = load_run(id)
  local state = run and run.state
  if not MAY_RUN[state] and not (state == HELD and run.hold == 'budget') then
    report('slots that are held by a run that is over')
  end
end

local function check_moved(id)
  if not call('HGET', P .. 'r:' .. id, 'since') then
    report('runs that are listed as moved but are gone or not watched')
  end
end

-- A page of a hash or sorted set. Its reply has pairs, of which the `first` or second value is checked.
local function check_scanned(command, key, place, first, check_row)
  local page = call(command, key, place, 'COUNT', ROWS_SCANNED)
  for i = first, #page[2], 2 do
    check_row(page[2][i])
  end
  return { page[1], findings }
end

local function check(what, place)
  if what == 'slots' then
    return check_scanned('HSCAN', P .. 'slots', place, 2, check_slot)
  elseif what == 'moved' then
    return check_scanned('ZSCAN', P .. 'moved', place, 1, check_moved)
  end
  local prefix, buckets, field, check_row = P .. 'rn:', P .. 'rb', '', check_run
  if what == 'events' then
    prefix, buckets, field, check_row = P .. 'e:', P .. 'eb', 'v', check_event
  end
  local bucket = call('ZRANGEBYSCORE', buckets, math.floor(place / BUCKET), '+inf', 'LIMIT', 0, 1)[1]
  if not bucket then
    return { '0', findings }
  end
  local begin = math.max(place, bucket * BUCKET)
  local finish = math.min(begin + ROWS_PER_CALL - 1, bucket * BUCKET + BUCKET - 1)
  for number = begin, finish do
    local row = call('HGET', prefix .. bucket, field .. int(number))
    if row then
      check_row(row)
    end
  end
  return { int(finish + 1), findings }
end
