-- with: leases ticks memory resolve
-- The commit of one page of a feed: events, verdicts, runs, memory and cursor. It is planned and checked completely
-- before the first write, because Redis rolls nothing back.
--
-- A commit has the fields feed, revision, token, entries, advance, release, claim, holder, life, backfilled,
-- looks_back, part. `part` is {page id, whether it is the last} for a page that takes several calls, else false.
--
-- An entry is {stored event to decide again, memory name, expected number of changes, new number, kind of state, mark,
-- state, name of the key, body, decisions}. A decision is an intent (see resolve.lua), or {0, verdict, trigger} if
-- matching alone decided. Many of these are one decision, the first, without a trigger; its frame is never changed.

local function mark_of(entry)
  return entry[6] and text(entry[6]) or ''
end

-- Whether the entry shows the state that is known. No state and a subject that is no longer listed count as equal.
local function same_state(known, entry)
  local kind = entry[5]
  local stateless = known.kind == 0 or known.kind == ABSENT
  if kind == 0 or stateless then
    return kind == 0 and stateless
  end
  return known.mark == mark_of(entry)
end

-- The memory of the subjects on this page, by name.
local function recall(commit)
  local positions, names = {}, {}
  for _, entry in ipairs(commit.entries) do
    if entry[2] and not entry[1] then
      local mid = name(entry[2])
      if not positions[mid] then
        names[#names + 1] = mid
        positions[mid] = #names
      end
    end
  end
  local known = {}
  if #names > 0 then
    local values = call('HMGET', P .. 'm:' .. commit.feed, unpack(names))
    for i, mid in ipairs(names) do
      known[mid] = values[i] and read_memory(values[i]) or nil
    end
  end
  return known
end

-- Put the subject's new state into `known` and return nil. If this occurrence is known already return its event, and
-- false if the memory changed since it was matched.
local function remember(known, entry, event, transitions)
  local _, memory_name, expected, seq, kind, _, state = unpack(entry)
  local mid = name(memory_name)
  local before = known[mid]
  if expected == 0 and before then
    return (not transitions or same_state(before, entry)) and before.event
  elseif expected ~= 0 and not (before and before.seq == expected) then
    return before and same_state(before, entry) and before.event or false
  end
  known[mid] = {
    first = before and before.first or now, last = now, event = event, seq = seq, kind = kind,
    mark = mark_of(entry), state = state and text(state) or '', fresh = true,
  }
  return nil
end

-- The event that an earlier part of an interrupted page wrote for this entry. `pt:<feed>` lists such events by key,
-- because without memory nothing else tells that they were written.
local function find_in_earlier_part(commit, entry)
  local noted = call('HGET', P .. 'pt:' .. commit.feed, name(entry[8]))
  if noted and (not commit.part or sub(noted, 9) ~= commit.part[1]) then
    return (unpack_struct('>I8', noted))
  end
  return nil
end

-- Return the plan of a commit, or nil and the reply that refuses it. `event` has the ids of new events by entry,
-- `first` those of earlier events that the entries repeat.
local function plan(commit)
  local revision, identity, pushed, shard = unpack(
    call('HMGET', P .. 'f:' .. commit.feed, 'revision', 'identity', 'pushed', 'shard'))
  if not revision then
    return nil, { '!', 'feed', commit.feed }
  end
  if commit.token and lease_is_lost(commit.token, shard) then
    return nil, { '!', 'lease' }
  end
  if tonumber(revision) ~= commit.revision then
    return nil, { 'stale', tonumber(revision) }
  end
  for _, entry in ipairs(commit.entries) do
    for _, decision in ipairs(entry[10]) do
      if decision[1] ~= 0 and not trigger_of(decision[1]) then
        return nil, { '!', 'uid', decision[1] }
      end
    end
  end
  local interrupted = call('EXISTS', P .. 'pt:' .. commit.feed) == 1
  local planned = { pushed = pushed == '1', first = {}, event = {}, known = recall(commit), interrupted = interrupted }
  for i, entry in ipairs(commit.entries) do
    if not entry[1] then
      local event, first = next_id('event'), nil
      if entry[2] then
        first = remember(planned.known, entry, event, identity == 'transition')
      elseif interrupted then
        first = find_in_earlier_part(commit, entry)
      end
      if first == nil then
        planned.event[i] = event
      else
        ids.event = event
        if first == false then
          return nil, { 'stale', tonumber(revision) }
        end
        planned.first[i] = first
      end
    end
  end
  return planned
end

-- The entry shows the same occurrence as an earlier event: count it there.
local function repeat_event(first, entry)
  local verdicts = read_verdicts(first)
  if verdicts then
    local key, field = bucket_key(first), 'r' .. int(first)
    local times = string.match(call('HGET', key, field) or '0:', '^(%d+):')
    call('HSET', key, field, (times + 1) .. ':' .. int(now))
  end
  local triggers = {}
  for i, decision in ipairs(entry[10]) do
    triggers[i] = decision[1] == 0 and decision[3] or trigger_of(decision[1]).name
  end
  return { first, 'd', verdicts or '', triggers }
end

-- Decide a stored event for triggers that have no verdict about it yet, or only that it was before their start.
local function decide_again(entry)
  local event, decisions = entry[1], entry[10]
  local frames, head = read_verdicts(event)
  if not frames then
    return { 0, 'n', '' }
  end
  local verdicts, order = {}, {}
  for _, verdict in ipairs(split_frames(frames)) do
    verdicts[verdict.trigger] = verdict
    order[#order + 1] = verdict.trigger
  end
  for _, decision in ipairs(decisions) do
    local decided = decision[1] == 0
    local trigger = decided and decision[3] or trigger_of(decision[1]).name
    if not verdicts[trigger] then
      order[#order + 1] = trigger
    end
    if not verdicts[trigger] or verdicts[trigger].outcome == BEFORE_START then
      local whole = decided and text(decision[2]) or resolve(decision, event, nil)
      verdicts[trigger] = { whole = whole, outcome = string.byte(whole, 1) }
    end
  end
  local whole = {}
  for i, trigger in ipairs(order) do
    whole[i] = verdicts[trigger].whole
  end
  frames = table.concat(whole)
  call('HSET', bucket_key(event), 'v' .. int(event), head .. frames)
  return { event, 'n', frames }
end

-- Write the rows of new events: by bucket, by feed, by key, and those that a later part of the page may repeat.
local function write_events(feed, rows, order, keys, parts)
  for key, list in pairs(rows) do
    call_all('HSET', key, list)
    local bucket = sub(key, #P + 3)
    call('ZADD', P .. 'eb', bucket, bucket)
  end
  if #order > 0 then
    call_all('RPUSH', P .. 'ef:' .. feed, order)
    call_all('ZADD', P .. 'ek', keys)
    count('events', #order)
  end
  if #parts > 0 then
    call_all('HSET', P .. 'pt:' .. feed, parts)
  end
end

local function write_memories(feed, planned)
  local memory, fresh = {}, {}
  for mid, known in pairs(planned.known) do
    if known.fresh then
      memory[#memory + 1] = mid
      memory[#memory + 1] = write_memory(known)
      fresh[#fresh + 1] = pack('>I8', now) .. mid
    end
  end
  if #fresh > 0 then
    call_all('HSET', P .. 'm:' .. feed, memory)
    if planned.pushed then
      call_all('RPUSH', P .. 'mo:' .. feed, fresh)
    end
  end
end

-- Move the feed forward. `advance` is {cursor, watermark, due (-1: never), health, clean, whether the read is complete,
-- tick}; a tick is {started, result, seen, new, seconds, covered from, covered until}.
local function advance_feed(feed, advance, new)
  local cursor, watermark, due, health, clean, done, tick = unpack(advance)
  local key = P .. 'f:' .. feed
  local set = { 'ok', int(now), 'tick', int(now) }
  local function put(field, value)
    set[#set + 1] = field
    set[#set + 1] = value
  end
  if cursor then put('cursor', text(cursor)) end
  if watermark then put('watermark', int(watermark)) end
  if due then put('due', due < 0 and '' or int(due)) end
  if health then
    put('health', text(health))
    put('clean', clean and '1' or '')
  end
  if done then put('base', '1') end
  call('HSET', key, unpack(set))
  if new > 0 then call('HINCRBY', key, 'seen', new) end
  if done then call('HINCRBY', key, 'reads', 1) end
  if tick then
    local started, result, seen, new_events, seconds, covered_from, covered_until = unpack(tick)
    close_span(feed)
    add_tick(feed, started, now, 1, result, seen, new_events, seconds, '')
    if covered_from then
      add_coverage(feed, covered_from, covered_until)
    end
  end
end

-- Write what was planned. Return {event, kind, verdicts} for each entry, the ids of the runs that are handed over, and of
-- those that are over.
local function write_commit(commit, planned)
  local feed, part, answers = commit.feed, commit.part, {}
  local unfinished = part and not part[2]
  local handover = { holder = commit.holder, life = commit.life, most = commit.claim, over = {} }
  local rows, order, keys, parts = {}, {}, {}, {}
  local head, tail = pack('>I8', now), pack('>H', #feed) .. feed
  for i, entry in ipairs(commit.entries) do
    local event = planned.event[i]
    if entry[1] then
      answers[i] = decide_again(entry)
    elseif event then
      local frames = {}
      for d, decision in ipairs(entry[10]) do
        if decision[1] == 0 then
          frames[d] = text(decision[2])
        else
          frames[d] = resolve(decision, event, handover)
        end
      end
      local whole, key, id = table.concat(frames), name(entry[8]), int(event)
      local bucket = bucket_key(event)
      append_pair(rows, bucket, id, text(entry[9]))
      append_pair(rows, bucket, 'v' .. id, head .. key .. tail .. whole)
      order[#order + 1] = id
      keys[#keys + 1] = '0'
      keys[#keys + 1] = key .. pack('>I8', event)
      if unfinished and not entry[2] then
        parts[#parts + 1] = key
        parts[#parts + 1] = pack('>I8', event) .. part[1]
      end
      answers[i] = { event, 'n', whole }
    end
  end
  write_events(feed, rows, order, keys, parts)
  write_memories(feed, planned)
  -- after the rows are written: an entry may repeat an event of this very page
  for i in pairs(planned.first) do
    answers[i] = repeat_event(planned.first[i], commit.entries[i])
  end
  local cursor, done, tick = commit.advance[1], commit.advance[6], commit.advance[7]
  if tick or not commit.looks_back then
    if not commit.token and not tick then
      call('HSET', P .. 'f:' .. feed, 'ok', int(now), 'tick', int(now))
    else
      advance_feed(feed, commit.advance, #order)
    end
  end
  if #commit.backfilled > 0 then
    for _, uid in ipairs(commit.backfilled) do
      if trigger_of(uid).feed == feed then
        call('HSET', P .. 'tr:' .. uid, 'backfilling', '')
      else
        call('HDEL', P .. 'tr:' .. uid, 'backfilling:' .. feed)
      end
    end
    call('HINCRBY', P .. 'f:' .. feed, 'revision', 1)
  end
  write_collected()
  for _, release in ipairs(commit.release) do
    release_flood(release[1], release[2])
  end
  if planned.interrupted and not unfinished and (cursor or done) then
    call('UNLINK', P .. 'pt:' .. feed)
  end
  local claimed = {}
  for i, id in ipairs(handover) do
    claimed[i] = id
  end
  return { answers, claimed, handover.over }
end

-- verb: commit
local function commit(page)
  local planned, refused = plan(page)
  if not planned then
    return refused
  end
  local written = write_commit(page, planned)
  write_counts()
  return { 'done', written[1], written[2], written[3], int(now) }
end
