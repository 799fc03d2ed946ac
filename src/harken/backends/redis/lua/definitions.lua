-- with: prelude
-- The configured feeds and triggers: made current, paused, resumed, reset.

-- verb: open
-- with: queue memory trigger_feeds
-- Make a configuration current. Return the epoch of the store, or -1 if the definitions are no longer at `revision`.
-- Whatever depends on how far feeds have read is decided here, the rest by the caller.

-- A change of a trigger is {op, uid, name, feed, definition, earlier feeds, facts, backfill, flood limit, startup mode,
-- whether it was removed, further feeds}; `facts` are fields and values of its hash. Whether it is backfilling is noted
-- for each further feed too.
local function write_trigger(change)
  local op, uid, trigger, feed, definition, earlier_feeds, facts, backfill = unpack(change)
  local further = change[12]
  local key = P .. 'tr:' .. uid
  if op == 'new' then
    local begin = now - backfill
    call('HSET', key, 'name', trigger, 'epoch', 1, 'epoch_event', 0, 'start', begin, 'reads', begin, 'made', now,
      'paused', '', 'backfilling', backfill > 0 and '1' or '')
    call('HSET', P .. 'tn', trigger, uid)
  end
  for _, earlier in ipairs(earlier_feeds) do
    call('SREM', P .. 'ft:' .. earlier, uid)
  end
  call('SADD', P .. 'ft:' .. feed, uid)
  for _, each in ipairs(further) do
    call('SADD', P .. 'ft:' .. each, uid)
    if op == 'new' and backfill > 0 then
      call('HSET', key, 'backfilling:' .. each, '1')
    end
  end
  call('HSET', key, 'feed', feed, 'definition', text(definition), unpack(facts))
  call('HDEL', key, 'removed', 'quiet_asked', 'quiet_from', 'quiet_until')
  known_triggers[uid] = nil
end

-- Move the start line of a trigger as its startup mode wants it.
local function apply_startup(uid, startup, backfill, further)
  local key = P .. 'tr:' .. uid
  if startup == 'ignore_historical' then
    -- events since the last stop are still read, so that each gets its verdict
    call('HSET', key, 'start', now)
    return
  end
  local begin = math.max(now - backfill, tonumber(call('HGET', key, 'reset')) or 0)
  call('HSET', key, 'start', begin, 'reads', begin, 'backfilling', '1')
  for _, each in ipairs(further) do
    call('HSET', key, 'backfilling:' .. each, '1')
  end
end

local function change_trigger(change)
  local op, uid, _, feed, _, _, _, backfill, flood_limit, startup, was_removed = unpack(change)
  if op == 'remove' then
    -- also end its backfill: it must not continue if the trigger comes back one day
    call('HSET', P .. 'tr:' .. uid, 'removed', now, 'backfilling', '')
    for _, each in ipairs(further_feeds(uid)) do
      call('HDEL', P .. 'tr:' .. uid, 'backfilling:' .. each)
    end
    return
  end
  if op ~= 'keep' then
    write_trigger(change)
  end
  if was_removed and call('HGET', P .. 'f:' .. feed, 'base') == '1' then
    -- the first read of the feed was completed while the trigger was removed, and would have released its runs
    release_flood(uid, flood_limit)
  end
  if startup ~= '' and op ~= 'new' then
    apply_startup(uid, startup, backfill, change[12])
  end
end

local function pause_trigger(trigger, reason)
  local uid = call('HGET', P .. 'tn', trigger)
  local key = P .. 'tr:' .. uid
  if (call('HGET', key, 'paused') or '') == '' then
    call('HSET', key, 'paused', text(reason))
  end
  hold_gathering(uid)
end

-- The identity of the feed changed, so its memory knows nothing by the new keys: its triggers begin a new epoch at the
-- feed's last success, so that no occurrence is found twice.
local function begin_new_epoch(feed, baseline)
  local key = P .. 'f:' .. feed
  call('UNLINK', P .. 'm:' .. feed, P .. 'mo:' .. feed)
  if baseline then
    call('HSET', key, 'base', '')
  end
  local last = tonumber(call('HGET', key, 'ok')) or now
  local epoch_event = call('HGET', P .. 'n', 'event') or '1'
  for _, uid in ipairs(call('SMEMBERS', P .. 'ft:' .. feed)) do
    local trigger = P .. 'tr:' .. uid
    local row = call('HMGET', trigger, 'removed', 'made', 'start', 'reads')
    if not row[1] and tonumber(row[2]) < now then
      call('HINCRBY', trigger, 'epoch', 1)
      local start, reads = math.max(row[3], last), math.max(row[4], last)
      call('HSET', trigger, 'epoch_event', epoch_event, 'start', start, 'reads', reads)
    end
  end
end

local INHERITED = { 'cursor', 'watermark', 'due', 'reads', 'base', 'ok', 'cover_start', 'cover_end', 'coverage' }

-- A new feed takes over the progress of the feed that it replaces.
local function inherit(feed, from, same_identity, baseline)
  local set = {}
  for i, value in ipairs(call('HMGET', P .. 'f:' .. from, unpack(INHERITED))) do
    if value then
      set[#set + 1] = INHERITED[i]
      set[#set + 1] = value
    end
  end
  if #set > 0 then
    call('HSET', P .. 'f:' .. feed, unpack(set))
  end
  if not same_identity then
    begin_new_epoch(feed, baseline)
    return
  end
  call('COPY', P .. 'm:' .. from, P .. 'm:' .. feed)
end

-- Write the list by which the memory of a pushed feed is forgotten: each subject when it was last seen, oldest first.
local function order_memory(feed)
  local noted = {}
  local memory = call('HGETALL', P .. 'm:' .. feed)
  for i = 1, #memory, 2 do
    noted[#noted + 1] = pack('>I8', read_memory(memory[i + 1]).last) .. memory[i]
  end
  table.sort(noted)
  call('UNLINK', P .. 'mo:' .. feed)
  call_all('RPUSH', P .. 'mo:' .. feed, noted)
end

-- A change of a feed is {op, name, definition, whether it is pushed, identity, feed it inherits from or false, whether
-- the identity stays the same, whether its first read is a baseline, whether its schedule changed, shard}.
local function change_feed(change)
  local op, feed, definition, pushed, identity, from, same_identity, baseline, rescheduled, shard = unpack(change)
  local key = P .. 'f:' .. feed
  if op == 'remove' then
    call('HSET', key, 'removed', now)
    call('HINCRBY', key, 'revision', 1)
    return
  end
  local becomes_pushed = pushed and call('HGET', key, 'pushed') ~= '1'
  call('HSET', key, 'definition', text(definition), 'pushed', pushed and '1' or '', 'identity', identity,
    'shard', int(shard))
  call(pushed and 'SADD' or 'SREM', P .. 'pushed', feed)
  if op == 'new' then
    call('HSET', key, 'revision', 1, 'made', now)
    call('SADD', P .. 'feeds', feed)
    if from then
      inherit(feed, from, same_identity, baseline)
      if pushed then
        order_memory(feed)
      end
    end
    return
  end
  call('HDEL', key, 'removed')
  call('HINCRBY', key, 'revision', 1)
  if not same_identity then
    begin_new_epoch(feed, baseline)
  end
  if becomes_pushed then
    order_memory(feed)
  end
  if rescheduled and (call('HGET', key, 'clean') or '1') == '1' then
    -- the due time was computed from the old schedule; a backoff after failures stays
    call('HSET', key, 'due', '')
  end
end

-- Set the generation of the configuration and return the epoch. For a new generation, release the leases of all other
-- holders, so that they stop reading feeds by the old one.
local function begin_generation(generation, holder)
  local known = call('HMGET', P .. 'gen', 'name', 'epoch')
  if (known[1] or '') == generation then
    return tonumber(known[2]) or 0
  end
  call('HSET', P .. 'gen', 'name', generation, 'since', int(now))
  for _, shard in ipairs(holder ~= '' and call('SMEMBERS', P .. 'shards') or {}) do
    local key = P .. 'lease:' .. shard
    local row = call('HMGET', key, 'holder', 'until')
    if tonumber(shard) >= 0 and row[1] ~= holder and tonumber(row[2]) >= now then
      call('HSET', key, 'until', 0)
    end
  end
  return call('HINCRBY', P .. 'gen', 'epoch', 1)
end

-- Redis stores a small sorted set as a list that every write searches from the beginning. One member of more than 64
-- bytes makes it an indexed one; the score +inf keeps that member out of all queries.
local function index_busy_sets()
  for _, set in ipairs({ 'open', 'running', 'q:0' }) do
    call('ZADD', P .. set, '+inf', string.rep('-', 65))
  end
end

local function open(revision, triggers, feeds, workflows, pauses, generation, holder)
  if tonumber(call('GET', P .. 'defs') or '0') ~= revision then
    return -1
  end
  for _, change in ipairs(triggers) do
    change_trigger(change)
  end
  for _, pause in ipairs(pauses) do
    pause_trigger(pause[1], pause[2])
  end
  for _, change in ipairs(feeds) do
    change_feed(change)
  end
  for _, workflow in ipairs(workflows) do
    call('HSETNX', P .. 'd:workflow', workflow[1], pack('>I4I8', 1, now) .. text(workflow[2]))
  end
  index_busy_sets()
  call('INCR', P .. 'defs')
  write_counts()
  if not generation then
    -- a part of the configuration that is current
    return tonumber(call('HGET', P .. 'gen', 'epoch')) or 0
  end
  return begin_generation(generation, holder)
end

-- verb: unknown_workflows
-- Those of these revisions of workflows that the store does not have.
local function unknown_workflows(revisions)
  local unknown = {}
  for _, revision in ipairs(revisions) do
    if call('HEXISTS', P .. 'd:workflow', revision) == 0 then
      unknown[#unknown + 1] = revision
    end
  end
  return unknown
end

-- verb: spending
-- {uid, what its runs have spent} of each of these triggers whose runs have spent anything.
local function spending(uids)
  local found = {}
  for _, uid in ipairs(uids) do
    local spent = call('HGETALL', P .. 'sp:' .. uid)
    if #spent > 0 then
      found[#found + 1] = { uid, spent }
    end
  end
  return found
end

-- verb: listeners
-- {revision and definition of a feed, its triggers as {uid, hash, spending}, time}, all at one moment.
local function listeners(feed)
  local row = call('HMGET', P .. 'f:' .. feed, 'revision', 'definition')
  if not row[1] then
    return { '!', 'feed', feed }
  end
  local found = {}
  for _, uid in ipairs(call('SMEMBERS', P .. 'ft:' .. feed)) do
    local trigger = call('HGETALL', P .. 'tr:' .. uid)
    if call('HEXISTS', P .. 'tr:' .. uid, 'removed') == 0 then
      found[#found + 1] = { uid, trigger, call('HGETALL', P .. 'sp:' .. uid) }
    end
  end
  return { row[1], row[2], found, int(now) }
end

-- verb: steer
-- with: queue trigger_feeds
-- Pause, resume or reset a trigger. Return its uid.
local function wipe_memory(feed)
  local listening = 0
  for _, each in ipairs(call('SMEMBERS', P .. 'ft:' .. feed)) do
    if not trigger_of(each).removed then
      listening = listening + 1
    end
  end
  if call('HGET', P .. 'f:' .. feed, 'identity') == 'transition' and listening > 1 then
    -- keys contain the number of the subject's changes: starting at 1 again would repeat keys for the other triggers
    return
  end
  call('UNLINK', P .. 'm:' .. feed, P .. 'mo:' .. feed)
  call('HSET', P .. 'f:' .. feed, 'base', '')
end

-- `option` is the reason of a pause, or whether a reset also wipes cursor and memory.
local function steer(how, trigger, option)
  local uid = uid_of(trigger)
  if not uid then
    return { '!', 'trigger', trigger }
  end
  local key, wipes = P .. 'tr:' .. uid, how == 'reset' and option
  local feeds = further_feeds(uid)
  if how == 'pause' then
    call('HSET', key, 'paused', text(option))
    hold_gathering(uid)
  else
    call('HSET', key, 'paused', '')
    release_held(uid, 'paused', false)
    if wipes then
      local epoch_event = call('HGET', P .. 'n', 'event') or '1'
      call('HINCRBY', key, 'epoch', 1)
      call('HSET', key, 'epoch_event', epoch_event, 'start', now, 'reads', now, 'reset', now, 'backfilling', '')
      for _, each in ipairs(feeds) do
        call('HDEL', key, 'backfilling:' .. each)
      end
    end
  end
  feeds[#feeds + 1] = trigger_of(uid).feed
  for _, feed in ipairs(feeds) do
    local feed_key = P .. 'f:' .. feed
    if call('EXISTS', feed_key) == 1 then
      if wipes then
        call('HDEL', feed_key, 'cursor', 'watermark')
        wipe_memory(feed)
      end
      if how ~= 'pause' then
        call('HDEL', feed_key, 'health', 'clean')
        call('HSET', feed_key, 'due', now)
      end
      call('HINCRBY', feed_key, 'revision', 1)
    end
  end
  write_counts()
  return uid
end

-- verb: move_start_lines
-- with: trigger_feeds
-- Move the start lines of these triggers that are more than `future` ahead. `lines` are {trigger, new line}. Return
-- {trigger, feed, old line, new line} for each that was moved.
local function move_start_lines(lines, future)
  local moved, changed = {}, {}
  for _, wanted in ipairs(lines) do
    local trigger, uid = wanted[1], uid_of(wanted[1])
    local key = uid and P .. 'tr:' .. uid
    local row = uid and call('HMGET', key, 'feed', 'start', 'reads', 'made', 'reset')
    local start = row and tonumber(row[2])
    if start and start > now + future then
      local feed, line = row[1], math.min(wanted[2], now)
      call('HSET', key, 'start', int(line), 'reads', int(math.min(tonumber(row[3]) or line, line)), 'made',
        int(math.min(tonumber(row[4]) or line, line)), 'backfilling', '1')
      if row[5] then
        call('HSET', key, 'reset', int(math.min(tonumber(row[5]), line)))
      end
      moved[#moved + 1] = { trigger, feed, int(start), int(line) }
      changed[feed] = true
      for _, each in ipairs(further_feeds(uid)) do
        call('HSET', key, 'backfilling:' .. each, '1')
        changed[each] = true
      end
    end
  end
  for feed in pairs(changed) do
    if call('EXISTS', P .. 'f:' .. feed) == 1 then
      call('HINCRBY', P .. 'f:' .. feed, 'revision', 1)
    end
  end
  return moved
end

-- verb: seek
-- Move the start line of a trigger; with `back` its feed is read again from there, with `cursor` from that place. Return
-- its uid, or '' if its feed has another revision.
local function seek(trigger, line, revision, back, cursor)
  local uid = uid_of(trigger)
  if not uid then
    return { '!', 'trigger', trigger }
  end
  local key, feed = P .. 'tr:' .. uid, P .. 'f:' .. trigger_of(uid).feed
  if tonumber(call('HGET', feed, 'revision')) ~= revision then
    return ''
  end
  call('HSET', key, 'start', int(line))
  if back then
    local reads = tonumber(call('HGET', key, 'reads')) or line
    call('HSET', key, 'reads', int(math.min(reads, line)), 'backfilling', '1')
  end
  if back or cursor then
    call('HDEL', feed, 'cursor')
    call('HSET', feed, 'due', now)
  end
  if cursor then call('HSET', feed, 'cursor', text(cursor)) end
  call('HINCRBY', feed, 'revision', 1)
  return uid
end

-- verb: wake
-- Make a feed due now.
local function wake(feed)
  if call('EXISTS', P .. 'f:' .. feed) == 0 then
    return { '!', 'feed', feed }
  end
  call('HSET', P .. 'f:' .. feed, 'due', now)
  return 'done'
end
