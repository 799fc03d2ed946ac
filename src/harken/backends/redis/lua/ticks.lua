-- with: prelude
-- The history of reads: a row (tick) per read that mattered, one open span for consecutive reads that found nothing,
-- and the coverage, i.e. the spans of time that reads have proven to be complete.
local MAX_SPANS = 200

local function add_tick(feed, started, ended, times, result, seen, new, seconds, error)
  local row = pack('>I8I8I4BI4I4d', started, ended, times, result, seen, new, seconds) .. error
  call('RPUSH', P .. 't:' .. feed, row)
  -- the order over all feeds, in which pruning deletes ticks
  call('RPUSH', P .. 'tq', feed)
end

local function close_span(feed)
  local span = call('HMGET', P .. 'f:' .. feed, 'span', 'span_start', 'span_end', 'span_count', 'span_seen')
  if span[1] then
    add_tick(feed, span[2], span[3], span[4], span[1], span[5], 0, 0, '')
    call('HDEL', P .. 'f:' .. feed, 'span')
  end
end

-- Add a span to the coverage of a feed and merge it with spans that it touches. The newest span has fields of its own,
-- so that extending it, the usual case, needs no sorting.
local function add_coverage(feed, begin, finish)
  local key = P .. 'f:' .. feed
  local row = call('HMGET', key, 'cover_start', 'cover_end', 'coverage')
  local first, last = tonumber(row[1]), tonumber(row[2])
  if first and first <= begin and last >= begin then
    call('HSET', key, 'cover_end', math.max(last, finish))
    return
  end
  local spans = { { begin, finish } }
  if first then
    spans[2] = { first, last }
  end
  for from, to in string.gmatch(row[3] or '', '(%d+)-(%d+)') do
    spans[#spans + 1] = { tonumber(from), tonumber(to) }
  end
  table.sort(spans, function(a, b)
    return a[1] < b[1]
  end)
  local merged = {}
  for _, span in ipairs(spans) do
    local newest = merged[#merged]
    if newest and span[1] <= newest[2] then
      newest[2] = math.max(newest[2], span[2])
    else
      merged[#merged + 1] = span
    end
  end
  local older = {}
  for i = math.max(1, #merged - MAX_SPANS), #merged - 1 do
    older[#older + 1] = int(merged[i][1]) .. '-' .. int(merged[i][2])
  end
  local newest = merged[#merged]
  call('HSET', key, 'cover_start', newest[1], 'cover_end', newest[2], 'coverage', table.concat(older, ','))
end
