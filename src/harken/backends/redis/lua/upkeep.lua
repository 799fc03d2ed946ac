-- with: begin run queue spending ticks resolving memory committing
-- Delete a slice of what is old. Asked: {runs before, ticks before, events before, how many}.
-- Numbers rise with time, so the old ones are found at the beginning; the next slice goes on where this one ended.
local SLICE = ask[4]
local BUCKETS = 10
local gone = 0

-- Call `each` on a slice of rows from the oldest on, until it says that one is young.
local function sweep(what, key, field, buckets, each)
  local begin = tonumber(call('HGET', P .. 'n', what)) or 0
  local looked, going_on = 0, 0
  local list = call('ZRANGEBYSCORE', P .. buckets, int(math.floor(begin / BUCKET)), '+inf', 'LIMIT', 0, BUCKETS)
  for _, bucket in ipairs(list) do
    local row = P .. key .. bucket
    for number = math.max(begin, bucket * BUCKET), bucket * BUCKET + BUCKET - 1 do
      local value = call('HGET', row, field .. int(number))
      if value then
        looked = looked + 1
        if looked > SLICE then
          going_on = number
          break
        end
        if each(number, value, row) == 'young' then
          looked = SLICE + 1
          break
        end
      end
    end
    if call('EXISTS', row) == 0 then
      call('ZREM', P .. buckets, bucket)
    end
    if looked > SLICE then
      break
    end
  end
  if looked <= SLICE and #list == BUCKETS then
    going_on = (list[BUCKETS] + 1) * BUCKET
  end
  call('HSET', P .. 'n', what, going_on)
end

local function forget_run(number, id, row)
  local run = load_run(id)
  if tonumber(run.made) >= ask[1] then
    return 'young'
  end
  if run.state < DONE or tonumber(run.over) >= ask[1] then
    return nil
  end
  local parent = run.parent and call('HGET', P .. 'r:' .. run.parent, 'state')
  if parent and tonumber(parent) < DONE then
    return nil
  end
  local events = call('LRANGE', P .. 're:' .. id, 0, -1)
  events[#events + 1] = run.event
  for _, event in ipairs(events) do
    call('SREM', P .. 'er:' .. event, id)
  end
  leave(run)
  call('UNLINK', P .. 'r:' .. id, P .. 'x:' .. id, P .. 'j:' .. id, P .. 'jc:' .. id, P .. 're:' .. id)
  call('HDEL', row, int(number))
  if run.trigger ~= '' then
    call('LREM', P .. 'rt:' .. run.trigger, 1, member(run))
  end
  count('s' .. run.state, -1)
  gone = gone + 1
  return nil
end

local function is_open(id)
  local state = tonumber(call('HGET', P .. 'r:' .. id, 'state'))
  return state and state < DONE
end

-- A run that is not over has need of it.
local function is_needed(event, frames)
  for _, verdict in ipairs(read_frames(frames)) do
    if verdict.run ~= '' and verdict.outcome ~= DUPLICATE and is_open(verdict.run) then
      return true
    end
  end
  for _, id in ipairs(call('SMEMBERS', P .. 'er:' .. int(event))) do
    if is_open(id) then
      return true
    end
  end
  return false
end

local function forget_event(event, value, row)
  if unpack_struct('>I8', value) >= ask[3] then
    return 'young'
  end
  local size = unpack_struct('>H', value, 25)
  if is_needed(event, sub(value, 27 + size)) then
    return nil
  end
  local id = int(event)
  call('HDEL', row, id, 'v' .. id, 'r' .. id)
  call('ZREM', P .. 'ek', sub(value, 9, 24) .. pack('>I8', event))
  call('LREM', P .. 'ef:' .. sub(value, 27, 26 + size), 1, id)
  call('UNLINK', P .. 'er:' .. id)
  count('events', -1)
  gone = gone + 1
  return nil
end

-- What was gathered is known by its key for as long as its event is there.
local function forget_gathered()
  for _, noted in ipairs(call('LRANGE', P .. 'gq', 0, SLICE - 1)) do
    local event, key, uid = unpack_struct('>I8', noted), sub(noted, 9, 24), sub(noted, 25)
    if call('HEXISTS', bucket_of(event), 'v' .. int(event)) == 1 then
      return
    end
    call('LPOP', P .. 'gq')
    local found = call('HGET', P .. 'gb:' .. uid, key)
    if found and unpack_struct('>I8', found) == event then
      call('HDEL', P .. 'gb:' .. uid, key)
    end
  end
end

local function forget_ticks()
  for _ = 1, SLICE do
    local feed = call('LINDEX', P .. 'tq', 0)
    local row = feed and call('LINDEX', P .. 't:' .. feed, 0)
    if not feed or (row and unpack_struct('>I8', row, 9) >= ask[2]) then
      return
    end
    call('LPOP', P .. 'tq')
    call('LPOP', P .. 't:' .. feed)
    gone = gone + 1
  end
end

local function forget_buried()
  for _, number in ipairs(call('ZRANGE', P .. 'bz', 0, SLICE - 1)) do
    local row = call('HGET', P .. 'buried', number)
    if unpack_struct('>I8', row) >= ask[3] then
      return
    end
    call('HDEL', P .. 'buried', number)
    call('ZREM', P .. 'bz', number)
    call('HDEL', P .. 'bk', sub(row, 9, 24))
    gone = gone + 1
  end
end

local function forget_absent()
  for _, at in ipairs(call('ZRANGEBYSCORE', P .. 'ma', '-inf', '(' .. int(ask[1]), 'LIMIT', 0, SLICE)) do
    local key, mid = P .. 'm:' .. sub(at, 17), sub(at, 1, 16)
    local value = call('HGET', key, mid)
    local known = value and read_memory(value)
    if known and known.kind == ABSENT and known.last < ask[1] then
      gone = gone + call('HDEL', key, mid)
    end
    call('ZREM', P .. 'ma', at)
  end
end

sweep('swept_run', 'rn:', '', 'rb', forget_run)
sweep('swept_event', 'e:', 'v', 'eb', forget_event)
forget_gathered()
forget_ticks()
forget_buried()
forget_absent()
write_counts()
return gone
