-- with: prelude
-- The hash of a run, and the one index that its state puts it into.
local GATHERING, HELD, READY, BLOCKED, RUNNING, WAITING, DONE, FAILED, DEAD, CANCELLED = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
local NEVER = 9007199254740992

local function load_run(id)
  local flat = call('HGETALL', P .. 'r:' .. id)
  if #flat == 0 then
    return nil
  end
  local run = { id = id }
  for i = 1, #flat, 2 do
    run[flat[i]] = flat[i + 1]
  end
  run.state = tonumber(run.state)
  run.due = tonumber(run.due)
  return run
end

-- A run as a member of a sorted set. Members with equal scores sort by their text, so the number (12 digits) comes
-- first: older runs before younger ones.
local function member(run)
  return run.seq .. run.id
end

local function load_member(found)
  return load_run(sub(found, 13))
end

-- A run as a member of its slot's queue: by priority (the score), then due time, then age.
local function blocked_member(run)
  return format('%016.0f', run.due) .. run.seq .. run.id
end

local function load_blocked(found)
  return load_run(sub(found, 29))
end

local function ready_key(run)
  return P .. 'q:' .. (run.prio or '0')
end

local function held_key(trigger, hold)
  return P .. 'h:' .. trigger .. ':' .. hold
end

local function remove_from_index(run)
  local state = run.state
  if state == READY then
    call('ZREM', ready_key(run), member(run))
  elseif state == GATHERING then
    call('ZREM', P .. 'wake', member(run))
    call('HDEL', P .. 'g:' .. run.trigger, run.gather)
  elseif state == HELD then
    call('ZREM', held_key(run.trigger, run.hold), member(run))
  elseif state == BLOCKED then
    call('ZREM', P .. 'b:' .. run.slot, blocked_member(run))
  elseif state == RUNNING then
    call('ZREM', P .. 'running', member(run))
  elseif state == WAITING then
    call('ZREM', P .. 'wake', member(run))
  elseif state ~= DONE then
    call('ZREM', P .. 'ended:' .. state, member(run))
  end
end

local function add_to_index(run)
  local state = run.state
  if state == READY then
    call('ZADD', ready_key(run), run.due, member(run))
  elseif state == GATHERING then
    call('ZADD', P .. 'wake', run.due, member(run))
    call('HSET', P .. 'g:' .. run.trigger, run.gather, run.id)
  elseif state == HELD then
    call('ZADD', held_key(run.trigger, run.hold), run.due, member(run))
    call('SADD', P .. 'hk:' .. run.trigger, run.hold)
    if run.hold == 'budget' then
      call('SADD', P .. 'short', run.trigger)
    end
  elseif state == BLOCKED then
    call('ZADD', P .. 'b:' .. run.slot, -tonumber(run.prio or '0'), blocked_member(run))
  elseif state == RUNNING then
    call('ZADD', P .. 'running', run['until'], member(run))
  elseif state == WAITING then
    if run.due < NEVER then
      call('ZADD', P .. 'wake', run.due, member(run))
    end
  elseif state ~= DONE then
    call('ZADD', P .. 'ended:' .. state, run.seq, member(run))
  end
end

-- Note that a watched run has another state: `moved` lists it until somebody has dealt with it. Such a run has the field
-- `since`, when it came into its state.
local function note_moved(run)
  call('HSET', P .. 'r:' .. run.id, 'since', int(now))
  call('ZADD', P .. 'moved', run.seq, run.id)
end

-- Watch a run from now on, unless it is watched already.
local function watch(run)
  if not run.since then
    run.since = now
    note_moved(run)
  end
end

-- Give the run another state, set the given fields (false: delete the field), and move it to the index of that state.
local function set_state(run, state, fields)
  remove_from_index(run)
  if run.state < DONE and state >= DONE then
    call('ZREM', P .. 'open', member(run))
  elseif run.state >= DONE and state < DONE then
    call('ZADD', P .. 'open', run.seq, member(run))
  end
  count('s' .. run.state, -1)
  count('s' .. state, 1)
  local set, deleted = { 'state', int(state) }, {}
  for field, value in pairs(fields or {}) do
    if value == false then
      deleted[#deleted + 1] = field
      run[field] = nil
    else
      set[#set + 1] = field
      set[#set + 1] = type(value) == 'number' and int(value) or value
      run[field] = value
    end
  end
  run.state = state
  call('HSET', P .. 'r:' .. run.id, unpack(set))
  if #deleted > 0 then
    call('HDEL', P .. 'r:' .. run.id, unpack(deleted))
  end
  add_to_index(run)
  if run.since then
    note_moved(run)
  end
end

-- Fields that end a claim.
local UNCLAIMED = { ['until'] = false, holder = false, life = false }

-- Wake the run that waits for this ended sub-run, with its result. A parent that is not parked yet checks when it is.
local function notify_parent(parent, child)
  local waiting = load_run(parent)
  if not waiting or waiting.state ~= WAITING or waiting.wait_run ~= child.id then
    return
  end
  local result = call('HMGET', P .. 'x:' .. child.id, 'output', 'error')
  local fields = { 'told', child.id, 'told_state', child.state, 'told_why', child.why or '' }
  for i, field in ipairs({ 'told_output', 'told_error' }) do
    if result[i] then
      fields[#fields + 1] = field
      fields[#fields + 1] = result[i]
    end
  end
  call('HSET', P .. 'x:' .. parent, unpack(fields))
  set_state(waiting, READY, { due = now, x = '1', ans = '1' })
end

-- Delete the answer that woke the run: its workflow has used it.
local function forget_answer(run)
  if run.ans then
    call('HDEL', P .. 'x:' .. run.id, 'answer', 'told', 'told_state', 'told_why', 'told_output', 'told_error')
    call('HDEL', P .. 'r:' .. run.id, 'ans')
  end
end
