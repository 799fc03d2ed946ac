-- with: prelude
-- Listings, newest first.

-- verb: rows_below
-- Rows with a number below `before` (false: all), from the hashes <prefix><bucket>, at most `limit`; `buckets` is the
-- sorted set of the buckets that exist. Return {{number, row}..., number to go on below, or 0 at the end}.
local NUMBERS_PER_READ, BUCKETS_PER_CALL = 50, 50

local function rows_below(prefix, field, buckets, before, limit)
  before = before or 9007199254740992
  local found = {}
  local existing = call('ZREVRANGEBYSCORE', P .. buckets, int(math.floor((before - 1) / BUCKET)), '-inf', 'LIMIT', 0,
    BUCKETS_PER_CALL)
  for _, bucket in ipairs(existing) do
    local key, top = P .. prefix .. bucket, math.min(before - 1, bucket * BUCKET + BUCKET - 1)
    for first = top, bucket * BUCKET, -NUMBERS_PER_READ do
      local fields = {}
      for number = first, math.max(first - NUMBERS_PER_READ + 1, bucket * BUCKET), -1 do
        fields[#fields + 1] = field .. int(number)
      end
      for i, value in ipairs(call('HMGET', key, unpack(fields))) do
        if value then
          found[#found + 1] = { int(first - i + 1), value }
          if #found == limit then
            return { found, 0 }
          end
        end
      end
    end
  end
  -- after so many buckets that were nearly empty there may be more
  return { found, #existing == BUCKETS_PER_CALL and int(existing[BUCKETS_PER_CALL] * BUCKET) or 0 }
end

-- verb: entries_below
-- Entries of a list of rising numbers, newest first, below the number `before` (false: all), at most `limit`. The
-- number is the first `digits` characters of an entry (0: the whole entry).
local function entries_below(list, before, limit, digits)
  local key = P .. list
  local function number(at)
    local entry = call('LINDEX', key, at)
    return tonumber(digits > 0 and sub(entry, 1, digits) or entry)
  end
  local last = call('LLEN', key)
  if before then
    local low, high = 0, last
    while low < high do
      local middle = math.floor((low + high) / 2)
      if number(middle) < before then
        low = middle + 1
      else
        high = middle
      end
    end
    last = low
  end
  if last == 0 then
    return {}
  end
  local found, newest_first = call('LRANGE', key, math.max(0, last - limit), last - 1), {}
  for i = #found, 1, -1 do
    newest_first[#newest_first + 1] = found[i]
  end
  return newest_first
end

-- verb: entries_above
-- Entries of a list of rising numbers, oldest first, above the number `after`, at most `limit`.
local function entries_above(list, after, limit)
  local key = P .. list
  local low, high = 0, call('LLEN', key)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if tonumber(call('LINDEX', key, middle)) > after then
      high = middle
    else
      low = middle + 1
    end
  end
  return call('LRANGE', key, low, low + limit - 1)
end

-- verb: fields
-- The values of these fields of each of the hashes.
local function fields(keys, wanted)
  local found = {}
  for place, key in ipairs(keys) do
    found[place] = call('HMGET', P .. key, unpack(wanted))
  end
  return found
end

-- verb: hashes
-- All fields of these hashes, of each its fields and values in turn.
local function hashes(keys)
  local found = {}
  for place, key in ipairs(keys) do
    found[place] = call('HGETALL', P .. key)
  end
  return found
end
