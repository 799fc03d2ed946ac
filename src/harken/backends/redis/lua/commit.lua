-- One page of a feed. First everything is checked and planned, then everything is written: Redis undoes nothing.
-- A commit is {feed, revision, token, entries, advance, release, claim, holder, life, backfilled, looks back, part}.
-- An entry is {again, memory name, expect, seq, state kind, mark, state, key, body, decisions}; a decision is an
-- intent, or {0, verdict, trigger, outcome}.
local function mark_of(entry)
  return entry[6] and text(entry[6]) or ''
end

-- What has no state, and what is no longer listed, are alike.
local function same_state(known, entry)
  local stateless = known.kind == 0 or known.kind == ABSENT
  if entry[5] == 0 or stateless then
    return entry[5] == 0 and stateless
  end
  return known.mark == mark_of(entry)
end

local function recall(commit)
  local places, asked = {}, {}
  for _, entry in ipairs(commit[4]) do
    if entry[2] and not entry[1] then
      local mid = name(entry[2])
      if not places[mid] then
        asked[#asked + 1] = mid
        places[mid] = #asked
      end
    end
  end
  local known = {}
  if #asked > 0 then
    local values = call('HMGET', P .. 'm:' .. commit[1], unpack(asked))
    for i, mid in ipairs(asked) do
      known[mid] = values[i] and read_memory(values[i]) or nil
    end
  end
  return known
end

-- Note the subject's new state in `known`. The first event's id when it is known already, false when memory moved.
local function remember(known, entry, event, transitions)
  local mid = name(entry[2])
  local before = known[mid]
  if entry[3] == 0 and before then
    return (not transitions or same_state(before, entry)) and before.event
  elseif entry[3] ~= 0 and not (before and before.seq == entry[3]) then
    return before and same_state(before, entry) and before.event or false
  end
  known[mid] = {
    first = before and before.first or now, last = now, event = event, seq = entry[4], kind = entry[5],
    mark = mark_of(entry), state = entry[7] and text(entry[7]) or '', fresh = true,
  }
  return nil
end

-- Parts of a page that was too long for one call and never came to its end: its events without memory are known by key.
local function in_earlier_part(commit, entry)
  local noted = call('HGET', P .. 'pt:' .. commit[1], name(entry[8]))
  if noted and (not commit[12] or sub(noted, 9) ~= commit[12][1]) then
    return (unpack_struct('>I8', noted))
  end
  return nil
end

-- The plan of a commit, or nil and why not.
local function plan(commit)
  local feed = call('HMGET', P .. 'f:' .. commit[1], 'revision', 'identity', 'pushed', 'shard')
  if not feed[1] then
    return nil, { '!', 'feed', commit[1] }
  end
  if commit[3] and lease_is_lost(commit[3], feed[4]) then
    return nil, { '!', 'lease' }
  end
  if tonumber(feed[1]) ~= commit[2] then
    return nil, { 'stale', tonumber(feed[1]) }
  end
  for _, entry in ipairs(commit[4]) do
    for _, decision in ipairs(entry[10]) do
      if decision[1] ~= 0 and not trigger_of(decision[1]) then
        return nil, { '!', 'uid', decision[1] }
      end
    end
  end
  local interrupted = call('EXISTS', P .. 'pt:' .. commit[1]) == 1
  local planned = { pushed = feed[3] == '1', first = {}, event = {}, known = recall(commit), interrupted = interrupted }
  for i, entry in ipairs(commit[4]) do
    if not entry[1] then
      local event, first = next_id('event'), nil
      if entry[2] then
        first = remember(planned.known, entry, event, feed[2] == 'transition')
      elseif interrupted then
        first = in_earlier_part(commit, entry)
      end
      if first == nil then
        planned.event[i] = event
      else
        ids.event = event
        if first == false then
          return nil, { 'stale', tonumber(feed[1]) }
        end
        planned.first[i] = first
      end
    end
  end
  return planned
end

local function bucket_of(event)
  return P .. 'e:' .. int(math.floor(event / BUCKET))
end

local function verdicts_of(event)
  local row = call('HGET', bucket_of(event), 'v' .. int(event))
  if not row then
    return nil
  end
  local size = unpack_struct('>H', row, 25)
  return sub(row, 27 + size), sub(row, 1, 26 + size)
end

-- The same occurrence as an earlier event: counted there.
local function repeat_event(first, entry)
  local verdicts = verdicts_of(first)
  if verdicts then
    local key, field = bucket_of(first), 'r' .. int(first)
    local times = string.match(call('HGET', key, field) or '0:', '^(%d+):')
    call('HSET', key, field, (times + 1) .. ':' .. int(now))
  end
  local triggers = {}
  for i, decision in ipairs(entry[10]) do
    triggers[i] = decision[1] == 0 and decision[3] or trigger_of(decision[1]).name
  end
  return { first, 'd', verdicts or '', triggers }
end

local function read_frames(frames)
  local found, at = {}, 1
  while at <= #frames do
    local outcome, trigger, run, reason = unpack_struct('>BHBI4I4', frames, at)
    local size = 12 + trigger + run + reason
    found[#found + 1] = { outcome = outcome, trigger = sub(frames, at + 12, at + 11 + trigger),
      run = sub(frames, at + 12 + trigger, at + 11 + trigger + run), whole = sub(frames, at, at + size - 1) }
    at = at + size
  end
  return found
end

-- Decide a stored event for those triggers that had nothing to do with it before.
local function decide_again(entry)
  local frames, head = verdicts_of(entry[1])
  if not frames then
    return { 0, 'n', '' }
  end
  local said, order = {}, {}
  for _, verdict in ipairs(read_frames(frames)) do
    said[verdict.trigger] = verdict
    order[#order + 1] = verdict.trigger
  end
  for _, decision in ipairs(entry[10]) do
    local given = decision[1] == 0
    local trigger = given and decision[3] or trigger_of(decision[1]).name
    if not said[trigger] then
      order[#order + 1] = trigger
    end
    if not said[trigger] or said[trigger].outcome == BEFORE_START then
      local whole = given and text(decision[2]) or resolve(decision, entry[1], nil)
      said[trigger] = { whole = whole, outcome = string.byte(whole, 1) }
    end
  end
  local whole = {}
  for i, trigger in ipairs(order) do
    whole[i] = said[trigger].whole
  end
  frames = table.concat(whole)
  call('HSET', bucket_of(entry[1]), 'v' .. int(entry[1]), head .. frames)
  return { entry[1], 'n', frames }
end

local function write_rows(commit, planned, rows, order, keys, parts)
  for key, list in pairs(rows) do
    call_all('HSET', key, list)
    local bucket = sub(key, #P + 3)
    call('ZADD', P .. 'eb', bucket, bucket)
  end
  if #order > 0 then
    call_all('RPUSH', P .. 'ef:' .. commit[1], order)
    call_all('ZADD', P .. 'ek', keys)
    count('events', #order)
  end
  if #parts > 0 then
    call_all('HSET', P .. 'pt:' .. commit[1], parts)
  end
  local memory, fresh = {}, {}
  for mid, known in pairs(planned.known) do
    if known.fresh then
      memory[#memory + 1] = mid
      memory[#memory + 1] = write_memory(known)
      fresh[#fresh + 1] = pack('>I8', now) .. mid
    end
  end
  if #fresh > 0 then
    call_all('HSET', P .. 'm:' .. commit[1], memory)
    if planned.pushed then
      call_all('RPUSH', P .. 'mo:' .. commit[1], fresh)
    end
  end
end

local function advance(commit, new)
  local key, moved = P .. 'f:' .. commit[1], commit[5]
  local set = { 'ok', int(now), 'tick', int(now) }
  local function put(field, value)
    set[#set + 1] = field
    set[#set + 1] = value
  end
  if moved[1] then put('cursor', text(moved[1])) end
  if moved[2] then put('watermark', int(moved[2])) end
  if moved[3] then put('due', moved[3] < 0 and '' or int(moved[3])) end
  if moved[4] then
    put('health', text(moved[4]))
    put('clean', moved[5] and '1' or '')
  end
  if moved[6] then put('base', '1') end
  call('HSET', key, unpack(set))
  if new > 0 then call('HINCRBY', key, 'seen', new) end
  if moved[6] then call('HINCRBY', key, 'reads', 1) end
  local tick = moved[7]
  if tick then
    close_span(commit[1])
    add_tick(commit[1], tick[1], now, 1, tick[2], tick[3], tick[4], tick[5], '')
    if tick[6] then
      cover(commit[1], tick[6], tick[7])
    end
  end
end

-- Write what was planned. For each entry {event, kind, verdicts}; then the runs that were handed over.
local function write_commit(commit, planned)
  local feed, answers = commit[1], {}
  local hands = { holder = commit[8], life = commit[9] }
  local rows, order, keys, parts = {}, {}, {}, {}
  local head, tail = pack('>I8', now), pack('>H', #feed) .. feed
  for i, entry in ipairs(commit[4]) do
    local event = planned.event[i]
    if entry[1] then
      answers[i] = decide_again(entry)
    elseif event then
      local frames = {}
      for d, decision in ipairs(entry[10]) do
        if decision[1] == 0 then
          frames[d] = text(decision[2])
        else
          frames[d] = resolve(decision, event, #hands < commit[7] and hands or nil)
        end
      end
      local whole, key, id = table.concat(frames), name(entry[8]), int(event)
      local bucket = bucket_of(event)
      later(rows, bucket, id, text(entry[9]))
      later(rows, bucket, 'v' .. id, head .. key .. tail .. whole)
      order[#order + 1] = id
      keys[#keys + 1] = '0'
      keys[#keys + 1] = key .. pack('>I8', event)
      if commit[12] and not commit[12][2] and not entry[2] then
        parts[#parts + 1] = key
        parts[#parts + 1] = pack('>I8', event) .. commit[12][1]
      end
      answers[i] = { event, 'n', whole }
    end
  end
  write_rows(commit, planned, rows, order, keys, parts)
  -- only now: it may be a repeat of an event of this very page
  for i in pairs(planned.first) do
    answers[i] = repeat_event(planned.first[i], commit[4][i])
  end
  if commit[5][7] or not commit[11] then
    if not commit[3] and not commit[5][7] then
      call('HSET', P .. 'f:' .. feed, 'ok', int(now), 'tick', int(now))
    else
      advance(commit, #order)
    end
  end
  if #commit[10] > 0 then
    for _, uid in ipairs(commit[10]) do
      call('HSET', P .. 'tr:' .. uid, 'backfilling', '')
    end
    call('HINCRBY', P .. 'f:' .. feed, 'revision', 1)
  end
  write_later()
  for _, release in ipairs(commit[6]) do
    release_flood(release[1], release[2])
  end
  if planned.interrupted and not (commit[12] and not commit[12][2]) and (commit[5][1] or commit[5][6]) then
    call('UNLINK', P .. 'pt:' .. feed)
  end
  local handed = {}
  for i, id in ipairs(hands) do
    handed[i] = id
  end
  return { answers, handed }
end
