-- with: prelude
-- Claims: workers take ready runs, keep them, and ask when to come again.

-- verb: claim
-- with: queue budgets
-- Claim ready runs that are due, by priority and due time, unless quiet hours or the trigger's budget forbid it.
-- `quiet_spans` are {trigger uid, computed at, begin, end}, as the caller computed them from the triggers' calendars.
-- Return {claimed runs, uids of triggers whose quiet hours the caller has to compute, time}.

-- How many gathering and waiting runs one call wakes.
local MAX_WOKEN = 500
-- Bytes of events and inputs in one reply.
local MAX_REPLY_BYTES = 1000000
local EMPTY = {}

local claimed, claimed_bytes = {}, 0
local unknown_quiet = {}
local taken_members, running_members = {}, {}

-- The same worker name with another `life` is a restarted process: requeue the runs that the earlier one had claimed.
local function requeue_earlier_life(holder, life)
  for _, found in ipairs(call('ZRANGEBYSCORE', P .. 'running', '-inf', '(inf')) do
    local run = load_member(found)
    if run.holder == holder and run.life ~= life then
      set_state(run, READY, UNCLAIMED)
    end
  end
end

-- Close gathering windows that have ended, and wake parked runs that are due.
local function wake_due()
  for _, found in ipairs(call('ZRANGEBYSCORE', P .. 'wake', '-inf', now, 'LIMIT', 0, MAX_WOKEN)) do
    local run = load_member(found)
    if run.state == GATHERING then
      close_gathering(run)
    else
      set_state(run, READY)
    end
  end
end

-- Admit runs that were held for a budget which has room again, oldest first, at most `limit` per trigger.
local function admit_held(limit)
  for _, uid in ipairs(call('SMEMBERS', P .. 'short')) do
    local trigger = trigger_of(uid)
    if not trigger.paused then
      local some = math.min(limit, trigger.budget and runs_left(uid, trigger) or limit)
      if some > 0 then
        for _, found in ipairs(call('ZRANGE', held_key(uid, 'budget'), 0, some - 1)) do
          local run = load_member(found)
          admit(run, run.due)
        end
      end
    end
    if call('ZCARD', held_key(uid, 'budget')) == 0 then
      call('SREM', P .. 'short', uid)
    end
  end
end

-- When the quiet hours of now end; 0 if it is not quiet, nil if the caller has to compute it from the calendar.
-- A stored span is the quiet hours of the instant it was computed at, or the next ones. It is valid until its end.
local function quiet_end(run)
  if run.qtil and tonumber(run.qfrom) <= now and now < tonumber(run.qtil) then
    return tonumber(run.qtil)
  end
  local trigger = trigger_of(run.trigger)
  if not trigger or not trigger.quiet then
    return 0
  end
  local span = call('HMGET', P .. 'tr:' .. run.trigger, 'quiet_asked', 'quiet_from', 'quiet_until')
  if span[1] and tonumber(span[1]) <= now and now < tonumber(span[3]) then
    return tonumber(span[2]) <= now and tonumber(span[3]) or 0
  end
  return nil
end

-- Load a run, with the end of the quiet hours in which it may not start.
local function load_candidate(found)
  local run = load_member(found)
  run.member, run.quiet = found, 0
  if not run.begun and run.qfrom and tonumber(run.qfrom) <= now then
    run.quiet = quiet_end(run)
    if run.quiet == nil then
      unknown_quiet[run.trigger] = true
    end
  end
  return run
end

-- The head of an event without its verdicts: who executes a run needs none, and there may be a thousand.
local function without_verdicts(head)
  return head and sub(head, 1, 26 + unpack_struct('>H', head, 25))
end

-- Load the rows of the runs' events into `run.rows`, with one command per bucket, and each event once.
local function load_events(runs)
  local wanted, rows = {}, {}
  for _, run in ipairs(runs) do
    local id = run.event
    if id and not rows[id] then
      rows[id] = EMPTY
      local bucket = math.floor(id / BUCKET)
      wanted[bucket] = wanted[bucket] or {}
      local fields = wanted[bucket]
      local size = #fields
      fields[size + 1], fields[size + 2], fields[size + 3] = id, 'v' .. id, 'r' .. id
    end
  end
  for bucket, fields in pairs(wanted) do
    local found = call('HMGET', P .. 'e:' .. int(bucket), unpack(fields))
    for i = 1, #fields, 3 do
      rows[fields[i]] = { found[i], without_verdicts(found[i + 1]), found[i + 2] }
    end
  end
  for _, run in ipairs(runs) do
    run.rows = run.event and rows[run.event]
  end
end

-- Charge the run to its trigger's budget and return true; or hold it, keeping its slot, and return false.
local function charge_or_hold(run)
  local trigger = trigger_of(run.trigger)
  if trigger and trigger.budget and runs_left(run.trigger, trigger) <= 0 then
    set_state(load_run(run.id), HELD, { hold = 'budget' })
    return false
  end
  spend(run.trigger, 'runs', 1)
  call('HSET', P .. 'r:' .. run.id, 'budget', '')
  return true
end

local function take(run, queue, holder, life, duration)
  run.token = (tonumber(run.token) or 0) + 1
  local set = { 'state', '4', 'token', int(run.token), 'holder', holder, 'life', life, 'until', int(now + duration) }
  if not run.begun then
    set[#set + 1] = 'begun'
    set[#set + 1] = int(now)
  end
  call('HSET', P .. 'r:' .. run.id, unpack(set))
  taken_members[queue] = taken_members[queue] or {}
  table.insert(taken_members[queue], run.member)
  running_members[#running_members + 1] = int(now + duration)
  running_members[#running_members + 1] = run.member
  count('s' .. READY, -1)
  count('s' .. RUNNING, 1)
  if run.since then
    note_moved(run)
  end
  local event, extra, journal, gathered = run.rows or EMPTY, EMPTY, EMPTY, EMPTY
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
  claimed_bytes = claimed_bytes + #(event[1] or '') + #(extra[1] or '')
  claimed[#claimed + 1] = { run.id, run.token, run.trigger, run.rev, run.tries or '1', run.max or '3', run.parent or '',
    run.made, run.stop or '', run.event or '', event, gathered, extra, journal }
end

local function claim_from(queue, holder, life, limit, duration)
  local runs = {}
  for i, found in ipairs(call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, limit - #claimed)) do
    runs[i] = load_candidate(found)
  end
  if next(unknown_quiet) then
    -- claim nothing: no run may overtake one whose quiet hours are not known yet
    return
  end
  load_events(runs)
  for _, run in ipairs(runs) do
    if claimed_bytes > MAX_REPLY_BYTES then
      return
    end
    if run.quiet > now then
      call('ZADD', queue, run.quiet, run.member)
      call('HSET', P .. 'r:' .. run.id, 'due', run.quiet)
    elseif run.budget ~= '1' or charge_or_hold(run) then
      take(run, queue, holder, life, duration)
    end
  end
end

-- Every priority that a run has had, highest first.
local function priorities()
  local found = call('SMEMBERS', P .. 'prios')
  found[#found + 1] = '0'
  table.sort(found, function(a, b)
    return tonumber(a) > tonumber(b)
  end)
  return found
end

local function claim(holder, life, limit, duration, is_first_claim, quiet_spans)
  for _, span in ipairs(quiet_spans) do
    call('HSET', P .. 'tr:' .. span[1], 'quiet_asked', span[2], 'quiet_from', span[3], 'quiet_until', span[4])
  end
  if is_first_claim then
    requeue_earlier_life(holder, life)
  end
  wake_due()
  admit_held(limit)
  local before
  for _, priority in ipairs(priorities()) do
    if priority ~= before and #claimed < limit and not next(unknown_quiet) then
      claim_from(P .. 'q:' .. priority, holder, life, limit, duration)
    end
    before = priority
  end
  for queue, members in pairs(taken_members) do
    call('ZREM', queue, unpack(members))
  end
  if #running_members > 0 then
    call('ZADD', P .. 'running', unpack(running_members))
  end
  write_counts()
  local unknown = {}
  for uid in pairs(unknown_quiet) do
    unknown[#unknown + 1] = uid
  end
  return { claimed, unknown, int(now) }
end

-- verb: extend
-- Keep claims {run, token} for another `duration`. Return for each 'kept', 'lost', or 'cancel' if it shall stop.
local function extend(duration, claims)
  local answers = {}
  for i, claim in ipairs(claims) do
    local id = name(claim[1])
    local row = call('HMGET', P .. 'r:' .. id, 'state', 'token', 'stop', 'seq')
    if row[1] ~= '4' or tonumber(row[2]) ~= claim[2] then
      answers[i] = 'lost'
    else
      call('HSET', P .. 'r:' .. id, 'until', now + duration)
      call('ZADD', P .. 'running', now + duration, row[4] .. id)
      answers[i] = row[3] and 'cancel' or 'kept'
    end
  end
  return answers
end

-- verb: next_due
-- When the next run becomes due or a budget gets a new window; '' if no run waits for time.
local HOUR = 3600000000

local function next_due()
  local soonest
  local function consider(key)
    local due = tonumber(call('ZRANGEBYSCORE', key, '-inf', '(inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
    if due and (not soonest or due < soonest) then
      soonest = due
    end
  end
  consider(P .. 'wake')
  consider(P .. 'q:0')
  for _, priority in ipairs(call('SMEMBERS', P .. 'prios')) do
    consider(P .. 'q:' .. priority)
  end
  for _, uid in ipairs(call('SMEMBERS', P .. 'short')) do
    if call('ZCARD', P .. 'h:' .. uid .. ':budget') > 0 then
      -- budgets are per hour or per day, and a day begins with an hour
      local hour = now - now % HOUR + HOUR
      soonest = math.min(soonest or hour, hour)
    end
  end
  return soonest and int(soonest) or ''
end
