-- with: prelude
-- What readers of a feed write besides commits: failures, reads that found nothing, subjects that are no longer listed,
-- and events that the store refused.

-- verb: fail
-- with: leases ticks
-- Record a failed read.
local function fail(feed, token, health, clean, due, started, result, seconds, error)
  local row = call('HMGET', P .. 'f:' .. feed, 'revision', 'shard')
  if not row[1] then
    return { '!', 'feed', feed }
  end
  if token and lease_is_lost(token, row[2]) then
    return { '!', 'lease' }
  end
  close_span(feed)
  call('HSET', P .. 'f:' .. feed, 'health', text(health), 'clean', clean and '1' or '', 'due', due or '', 'tick', now)
  add_tick(feed, started, now, 1, result, 0, 0, seconds, text(error))
  return 'done'
end

-- verb: record_idle
-- with: leases ticks
-- Record reads that found nothing: each extends the open span of its feed. An idle read is {feed, token, count, result,
-- seen, first, last, due, cursor, watermark, covered from, covered until, health, clean, revision}. Return 'done' and
-- the feeds whose revision changed meanwhile; their reads are not recorded.
local function extend_span(read)
  local feed, _, times, result, seen, first, last, due, cursor, watermark, covered_from, covered_until, health, clean =
    unpack(read)
  local key, ended = P .. 'f:' .. feed, int(last)
  local set = { 'due', due and int(due) or '', 'ok', ended, 'tick', ended, 'span_end', ended, 'span_seen', int(seen) }
  local function put(field, value)
    set[#set + 1] = field
    set[#set + 1] = value
  end
  if cursor then put('cursor', text(cursor)) end
  if watermark then put('watermark', int(watermark)) end
  if health then
    put('health', text(health))
    put('clean', clean and '1' or '')
  end
  if call('HGET', key, 'span') == int(result) then
    call('HINCRBY', key, 'span_count', times)
  else
    close_span(feed)
    put('span', int(result))
    put('span_start', int(first))
    put('span_count', int(times))
    put('base', '1')
  end
  call('HSET', key, unpack(set))
  call('HINCRBY', key, 'reads', times)
  if covered_from then
    add_coverage(feed, covered_from, covered_until)
  end
end

local function record_idle(reads)
  local stale, fresh = { 'done' }, {}
  for _, read in ipairs(reads) do
    local feed, token, revision = read[1], read[2], read[15]
    local row = call('HMGET', P .. 'f:' .. feed, 'revision', 'shard')
    if not row[1] then
      return { '!', 'feed', feed }
    end
    if lease_is_lost(token, row[2]) then
      return { '!', 'lease' }
    end
    if revision and row[1] ~= int(revision) then
      stale[#stale + 1] = feed
    else
      fresh[#fresh + 1] = read
    end
  end
  for _, read in ipairs(fresh) do
    extend_span(read)
  end
  return stale
end

-- verb: mark_listed
-- with: leases memory
-- A complete read listed the first `size` names of this call: note that their subjects were seen now.
local function mark_listed(feed, token, size)
  local row = call('HMGET', P .. 'f:' .. feed, 'revision', 'shard')
  if not row[1] then
    return { '!', 'feed', feed }
  end
  if lease_is_lost(token, row[2]) then
    return { '!', 'lease' }
  end
  local names = {}
  for i = 1, size do
    names[i] = name(i)
  end
  local seen = {}
  if #names > 0 then
    for i, value in ipairs(call('HMGET', P .. 'm:' .. feed, unpack(names))) do
      if value then
        local known = read_memory(value)
        known.last = now
        seen[#seen + 1] = names[i]
        seen[#seen + 1] = write_memory(known)
      end
    end
  end
  if #seen > 0 then
    call('HSET', P .. 'm:' .. feed, unpack(seen))
  end
  return 'done'
end

-- verb: forget
-- with: leases memory
-- Forget the subjects that were last seen before `before`, in one HSCAN page of the feed's memory. Return {cursor of
-- the next page, how many}.
local function forget(feed, token, before, cursor)
  local row = call('HMGET', P .. 'f:' .. feed, 'identity', 'shard')
  if lease_is_lost(token, row[2]) then
    return { '!', 'lease' }
  end
  local key, forgotten = P .. 'm:' .. feed, 0
  local transitions = row[1] == 'transition'
  local page = call('HSCAN', key, cursor, 'COUNT', 500)
  for i = 1, #page[2], 2 do
    local mid, known = page[2][i], read_memory(page[2][i + 1])
    if known.last < before then
      if not transitions then
        forgotten = forgotten + call('HDEL', key, mid)
      else
        if known.kind ~= ABSENT then
          -- delete the state only: with the number of changes kept, the subject gets a new key when it comes back
          known.kind, known.mark, known.state = ABSENT, '', ''
          call('HSET', key, mid, write_memory(known))
          forgotten = forgotten + 1
        end
        call('ZADD', P .. 'ma', 'NX', known.last, mid .. feed)
      end
    end
  end
  return { page[1], forgotten }
end

-- verb: dead_letter
-- Keep an event that the store refused as a dead letter; once, although a listing shows it again with every read.
local function dead_letter(feed, key, letter)
  if call('EXISTS', P .. 'f:' .. feed) == 0 then
    return { '!', 'feed', feed }
  end
  if call('HSETNX', P .. 'bk', name(key), '1') == 0 then
    return 'known'
  end
  local number = call('HINCRBY', P .. 'n', 'buried', 1)
  call('HSET', P .. 'buried', number, pack('>I8', now) .. name(key) .. text(letter))
  call('ZADD', P .. 'bz', number, number)
  return 'done'
end
