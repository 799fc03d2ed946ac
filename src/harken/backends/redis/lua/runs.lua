-- with: prelude
-- What workers and people do to runs.

-- verb: journal
-- with: commit
-- Append steps to the journal of a claimed run, with the commits they cause and the sub-runs they start.
local function journal(run_id, token, steps, commits, new_runs)
  local run = load_run(name(run_id))
  if not run or run.state ~= RUNNING or tonumber(run.token) ~= token then
    return { '!', 'lost' }
  end
  for _, commit in ipairs(commits) do
    local _, refused = plan(commit)
    if refused then
      return refused
    end
  end
  for _, new in ipairs(new_runs) do
    local refused = start_refusal(new)
    if refused then
      return refused
    end
  end
  ids = nil -- the plans were only a check: give back the ids they took
  for _, commit in ipairs(commits) do
    -- plan again: an earlier commit of this call may have changed the memory
    write_commit(commit, (plan(commit)))
  end
  for _, new in ipairs(new_runs) do
    start_run(new)
  end
  for _, step in ipairs(steps) do
    append_step(run, step)
  end
  write_collected()
  write_counts()
  return 'done'
end

-- verb: park
-- with: budgets
-- Set a claimed run aside until it is due (false: until it is answered), or until the sub-run `child` has ended.
local function park(run_id, token, due, waiting_for, child, step)
  local run = load_run(name(run_id))
  if not run or run.state ~= RUNNING or tonumber(run.token) ~= token then
    return { '!', 'lost' }
  end
  if step then
    append_step(run, step)
  end
  forget_answer(run)
  local child_id = child and name(child)
  set_state(run, WAITING, {
    due = due or NEVER, wait = waiting_for, wait_run = child_id or false,
    ['until'] = false, holder = false, life = false,
  })
  local sub_run = child_id and load_run(child_id)
  if sub_run and sub_run.state >= DONE then
    -- the sub-run ended before its parent was parked
    notify_parent(run.id, sub_run)
  end
  write_counts()
  return 'done'
end

-- verb: answer
-- with: run_states
-- Wake a run that waits for a person or a sub-run. Return 0 if it does not wait.
local function answer(run_id, value)
  local run = load_run(name(run_id))
  if not run or run.state ~= WAITING or (run.wait or '') == '' then
    return 0
  end
  call('HSET', P .. 'x:' .. run.id, 'answer', text(value))
  set_state(run, READY, { due = now, x = '1', ans = '1' })
  write_counts()
  return 1
end

-- verb: settle
-- with: commit
-- End the attempts of claimed runs. A settlement is {run, token, new state (ready: try again), due, whether it counts
-- as an attempt, error, output, step, commits, trigger to count it for}. Return for each 'settled', 'lost' or
-- {'stale', revision}; the last two are not written.
local ended_members, released_members, done_counts = {}, {}, {}

-- Whether the run has a reason from whoever asked it to stop, which is its error unless it ends otherwise.
local function keeps_reason(run, state)
  if not run.stop or (state ~= READY and state ~= CANCELLED) then
    return false
  end
  return run.x and call('HEXISTS', P .. 'x:' .. run.id, 'error') == 1
end

-- The fields of the run's hash after this attempt; its error and output go into `x:<run>`.
local function result_fields(run, state, due, counts, error, output)
  local set = { 'state', int(state) }
  local function put(field, value)
    set[#set + 1] = field
    set[#set + 1] = value
  end
  if state == READY then
    put('due', int(due))
    put('tries', (tonumber(run.tries) or 1) + (counts and 1 or 0))
  else
    put('over', int(now))
  end
  local result = {}
  if run.stop == 'replaced' and state == CANCELLED then
    run.why = 'replaced'
    put('why', 'replaced')
  end
  if keeps_reason(run, state) then
    put('x', '1')
  elseif error then
    result = { 'error', text(error) }
  elseif run.x then
    call('HDEL', P .. 'x:' .. run.id, 'error')
  end
  if output then
    result[#result + 1] = 'output'
    result[#result + 1] = text(output)
  elseif run.x then
    call('HDEL', P .. 'x:' .. run.id, 'output')
  end
  if #result > 0 then
    call('HSET', P .. 'x:' .. run.id, unpack(result))
    put('x', '1')
  end
  return set
end

local function index_settled(run, state, due)
  local at = member(run)
  released_members[#released_members + 1] = at
  if state == READY then
    run.due = due
    call('ZADD', ready_key(run), run.due, at)
  else
    ended_members[#ended_members + 1] = at
    if state ~= DONE then
      call('ZADD', P .. 'ended:' .. state, run.seq, at)
    end
  end
  count('s' .. RUNNING, -1)
  count('s' .. state, 1)
end

local function settle_one(settlement)
  local run_id, token, state, due, counts, error, output, step, commits, trigger = unpack(settlement)
  local id = name(run_id)
  local row = call('HMGET', P .. 'r:' .. id, 'state', 'token', 'seq', 'slot', 'parent', 'ans', 'x', 'since', 'stop')
  if row[1] ~= '4' or tonumber(row[2]) ~= token then
    return 'lost'
  end
  local run = {
    id = id, seq = row[3], slot = row[4] or nil, parent = row[5] or nil, ans = row[6] or nil, x = row[7] or nil,
    since = row[8] or nil, stop = row[9] or nil,
  }
  if step or state == READY then
    run = load_run(id)
  end
  for _, commit in ipairs(commits) do
    local planned, refused = plan(commit)
    if not planned then
      return refused
    end
    write_commit(commit, planned)
  end
  if step then
    append_step(run, step)
  end
  forget_answer(run)
  call('HSET', P .. 'r:' .. id, unpack(result_fields(run, state, due, counts, error, output)))
  index_settled(run, state, due)
  run.state = state
  if run.since then
    note_moved(run)
  end
  if state == READY then
    return 'settled'
  end
  if trigger then
    done_counts[trigger] = (done_counts[trigger] or 0) + 1
  end
  if run.slot then
    free_slot(run.slot, id)
  end
  if run.parent then
    notify_parent(run.parent, run)
  end
  return 'settled'
end

local function settle(settlements)
  for _, settlement in ipairs(settlements) do
    for _, commit in ipairs(settlement[9]) do
      local _, refused = plan(commit)
      if refused and refused[1] == '!' then
        return refused
      end
    end
  end
  ids = nil -- the plans were only a check: give back the ids they took
  local answers = {}
  for i, settlement in ipairs(settlements) do
    answers[i] = settle_one(settlement)
  end
  if #released_members > 0 then
    call('ZREM', P .. 'running', unpack(released_members))
  end
  if #ended_members > 0 then
    call('ZREM', P .. 'open', unpack(ended_members))
  end
  for trigger, times in pairs(done_counts) do
    local uid = call('HGET', P .. 'tn', trigger)
    if uid then
      call('HINCRBY', P .. 'tr:' .. uid, 'done', times)
    end
  end
  write_counts()
  return answers
end

-- verb: start
-- with: new_runs
-- Start a run that no event asked for; an existing id is left as it is. The arguments are those of `start_run`.
local function start(new)
  local refused = start_refusal(new)
  if refused then
    return refused
  end
  start_run(new)
  write_collected()
  write_counts()
  return 'done'
end

-- verb: cancel
-- with: queue
-- Cancel a run that is not running, ask a running one to stop: its error is the reason from now on, and `settle` keeps
-- it. Return 0 if it has ended already.
local function cancel(run_id, reason)
  local run = load_run(name(run_id))
  if not run then
    return { '!', 'run' }
  end
  if run.state == RUNNING then
    if not run.stop then
      call('HSET', P .. 'x:' .. run.id, 'error', text(reason))
      call('HSET', P .. 'r:' .. run.id, 'stop', '1', 'x', '1')
    end
    return 1
  end
  if run.state >= DONE then
    return 0
  end
  call('HSET', P .. 'x:' .. run.id, 'error', text(reason))
  set_state(run, CANCELLED, { over = now, x = '1' })
  if run.slot then
    free_slot(run.slot, run.id)
  end
  if run.parent then
    notify_parent(run.parent, run)
  end
  write_counts()
  return 1
end

-- verb: retry
-- with: queue
-- Make a failed, dead or cancelled run ready again. Another workflow revision ('': the same) starts from an empty
-- journal. It may be tried `tries` times more, and its tries count on. The same request ('': none) retries it once. Return
-- 0 if the run is in another state.
local function retry(run_id, revision, tries, request, note)
  local run = load_run(name(run_id))
  if not run then
    return { '!', 'run' }
  end
  if request ~= '' and call('HEXISTS', P .. 'd:retried', request) == 1 then
    return 1
  end
  if run.state ~= FAILED and run.state ~= DEAD and run.state ~= CANCELLED then
    return 0
  end
  if request ~= '' then
    call('HSET', P .. 'd:retried', request, pack('>I4I8', 1, now) .. text(note))
  end
  if revision ~= '' then
    call('UNLINK', P .. 'j:' .. run.id, P .. 'jc:' .. run.id)
    call('HSET', P .. 'r:' .. run.id, 'rev', revision)
    call('HDEL', P .. 'r:' .. run.id, 'journal')
  end
  call('HDEL', P .. 'x:' .. run.id, 'error')
  local before = run.begun and tonumber(run.tries or '1') or 0
  call('HSET', P .. 'r:' .. run.id, 'tries', int(before + 1), 'max', int(before + tries), 'due', now)
  call('HDEL', P .. 'r:' .. run.id, 'why', 'over', 'stop', 'budget', 'qfrom', 'qtil')
  run.due = now
  admit(run)
  write_counts()
  return 1
end

-- verb: release
-- with: queue budgets
-- Release the held runs of a trigger, or with `drop` cancel them. Return how many.
local function release(trigger, drop, hold)
  local uid = uid_of(trigger)
  if not uid then
    return { '!', 'trigger', trigger }
  end
  if not drop then
    for _, each in ipairs(holds_of(uid, hold)) do
      for _, found in ipairs(call('ZRANGE', held_key(uid, each), 0, -1)) do
        -- a person decided: the run is charged now, so that no budget holds it again
        local key = P .. 'r:' .. sub(found, 13)
        if call('HGET', key, 'budget') == '1' then
          spend(uid, 'runs', 1)
          call('HSET', key, 'budget', '')
        end
      end
    end
  end
  local released = release_held(uid, hold, drop)
  write_counts()
  return released
end

-- verb: release_run
-- with: queue budgets
-- Release one held run. Return 0 if it is not held.
local function release_run(run_id)
  local run = load_run(name(run_id))
  if not run then
    return { '!', 'run' }
  end
  if run.state ~= HELD then
    return 0
  end
  if run.budget == '1' then
    spend(run.trigger, 'runs', 1)
    call('HSET', P .. 'r:' .. run.id, 'budget', '')
  end
  admit(run, run.due)
  write_counts()
  return 1
end

-- verb: drop_dead_letter
-- with: run_states
-- Drop a dead letter that is a run: it becomes cancelled. Return 0 if it is not dead.
local function drop_dead_letter(run_id)
  local run = load_run(name(run_id))
  if not run or run.state ~= DEAD then
    return 0
  end
  set_state(run, CANCELLED)
  write_counts()
  return 1
end

-- verb: drop_refused_event
-- Drop a dead letter that is an event which the store refused. Return 0 if there is none of this number.
local function drop_refused_event(number)
  local row = call('HGET', P .. 'buried', int(number))
  if not row then
    return 0
  end
  call('HDEL', P .. 'buried', int(number))
  call('ZREM', P .. 'bz', int(number))
  call('HDEL', P .. 'bk', sub(row, 9, 24))
  return 1
end
