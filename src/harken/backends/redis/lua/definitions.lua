-- with: begin run queue
-- Make a configuration current. Asked: {definitions' revision, triggers, feeds, workflows, pauses, generation,
-- holder}; answers the epoch, or -1 when somebody else did it meanwhile. What depends on how far feeds have come is
-- decided here.
if tonumber(call('GET', P .. 'defs') or '0') ~= ask[1] then
  return -1
end

-- A trigger is {op, uid, name, feed, definition, earlier feed, facts, backfill us, flood limit, startup, was removed};
-- its facts are what Lua has to know of it, field by field.
local function write_trigger(one)
  local uid, feed = one[2], one[4]
  local key = P .. 'tr:' .. uid
  if one[1] == 'new' then
    local begin = now - one[8]
    call('HSET', key, 'name', one[3], 'epoch', 1, 'epoch_event', 0, 'start', begin, 'reads', begin, 'made', now,
      'paused', '', 'backfilling', one[8] > 0 and '1' or '')
    call('HSET', P .. 'tn', one[3], uid)
  end
  if one[6] ~= '' and one[6] ~= feed then
    call('SREM', P .. 'ft:' .. one[6], uid)
  end
  call('SADD', P .. 'ft:' .. feed, uid)
  call('HSET', key, 'feed', feed, 'definition', text(one[5]), unpack(one[7]))
  call('HDEL', key, 'removed', 'quiet_asked', 'quiet_from', 'quiet_until')
  known_triggers[uid] = nil
end

local function start_again(one)
  local key = P .. 'tr:' .. one[2]
  if one[10] == 'ignore_historical' then
    -- what happened meanwhile is read all the same, so that each of it gets its verdict
    call('HSET', key, 'start', now)
    return
  end
  local begin = math.max(now - one[8], tonumber(call('HGET', key, 'reset')) or 0)
  call('HSET', key, 'start', begin, 'reads', begin, 'backfilling', '1')
end

for _, one in ipairs(ask[2]) do
  if one[1] == 'remove' then
    -- what it had yet to look back for is no longer wanted: it must not come back with a surprise
    call('HSET', P .. 'tr:' .. one[2], 'removed', now, 'backfilling', '')
  else
    if one[1] ~= 'keep' then
      write_trigger(one)
    end
    if one[11] and call('HGET', P .. 'f:' .. one[4], 'base') == '1' then
      -- the first read came to its end without it, and nobody else will let its runs go
      release_flood(one[2], one[9])
    end
    if one[10] ~= '' and one[1] ~= 'new' then
      start_again(one)
    end
  end
end
for _, pause in ipairs(ask[5]) do
  local uid = call('HGET', P .. 'tn', pause[1])
  if (call('HGET', P .. 'tr:' .. uid, 'paused') or '') == '' then
    call('HSET', P .. 'tr:' .. uid, 'paused', text(pause[2]))
  end
end

-- Another identity names everything differently: what was read up to now must not be found a second time.
local function begin_anew(feed, baseline)
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
    begin_anew(feed, baseline)
    return
  end
  call('COPY', P .. 'm:' .. from, P .. 'm:' .. feed)
  call('COPY', P .. 'mo:' .. from, P .. 'mo:' .. feed)
end

-- A feed is {op, name, definition, pushed, identity, from or false, is of the same identity, baseline, due anew,
-- shard}.
for _, one in ipairs(ask[3]) do
  local key = P .. 'f:' .. one[2]
  if one[1] == 'remove' then
    call('HSET', key, 'removed', now)
    call('HINCRBY', key, 'revision', 1)
  else
    call('HSET', key, 'definition', text(one[3]), 'pushed', one[4] and '1' or '', 'identity', one[5],
      'shard', int(one[10]))
    call(one[4] and 'SADD' or 'SREM', P .. 'pushed', one[2])
    if one[1] == 'new' then
      call('HSET', key, 'revision', 1, 'made', now)
      call('SADD', P .. 'feeds', one[2])
      if one[6] then
        inherit(one[2], one[6], one[7], one[8])
      end
    else
      call('HDEL', key, 'removed')
      call('HINCRBY', key, 'revision', 1)
      if not one[7] then
        begin_anew(one[2], one[8])
      end
      if one[9] and (call('HGET', key, 'clean') or '1') == '1' then
        -- what was due by the old schedule is not due by the new one; a wait after failures stays
        call('HSET', key, 'due', '')
      end
    end
  end
end
for _, workflow in ipairs(ask[4]) do
  call('HSETNX', P .. 'd:workflow', workflow[1], pack('>I4I8', 1, now) .. text(workflow[2]))
end

-- Be at this generation; the epoch. With a new one, whoever else reads feeds by the old one stops at once.
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

-- Redis keeps a small sorted set as a list that every write walks through. With a member as long as this one it has an
-- index from the beginning; nobody asks for what is due at the end of time.
for _, busy in ipairs({ 'open', 'running', 'q:0' }) do
  call('ZADD', P .. busy, '+inf', string.rep('-', 65))
end
call('INCR', P .. 'defs')
write_counts()
return begin_generation(ask[6], ask[7])
