-- with: prelude
-- Events of an object by hashes of its names. For 16 buckets of events, a part, the names are in 64 strings `o:<part>:<n>`
-- by the first bits of their hash: four bytes of it, and two of the event's place in the part. The counter `objects` is
-- the first bucket that has none yet.
local ENTRY, HASH, PART = 6, 4, 16

-- verb: put
-- Add the entries of a bucket, {n, entries} each, unless another process did.
local function put(bucket, groups)
  if (tonumber(call('HGET', P .. 'n', 'objects')) or 0) > bucket then
    return 'known'
  end
  local part = int(math.floor(bucket / PART))
  for _, group in ipairs(groups) do
    call('APPEND', P .. 'o:' .. part .. ':' .. group[1], text(group[2]))
  end
  call('HSET', P .. 'n', 'objects', int(bucket + 1))
  return 'done'
end

-- verb: find
-- Events that have one of these hashes {hash, n}, in up to `limit` parts below the part `before` (false: all). Return
-- {part to go on below, or 0 at the end, events}.
local function find_in(entries, part, wanted, found)
  local at = 1
  while true do
    at = string.find(entries, wanted, at, true)
    if not at then
      return
    end
    if (at - 1) % ENTRY == 0 then
      found[#found + 1] = int(part * PART * BUCKET + unpack_struct('>H', entries, at + HASH))
    end
    at = at + 1
  end
end

local function find(hashes, before, limit)
  local found = {}
  local oldest = call('ZRANGE', P .. 'eb', 0, 0)[1]
  local following = tonumber(call('HGET', P .. 'n', 'objects')) or 0
  if not oldest or following == 0 then
    return { '0', found }
  end
  local first = math.floor(oldest / PART)
  local last = math.min(math.floor((following - 1) / PART), before and before - 1 or following)
  local stop = math.max(first, last - limit + 1)
  for part = last, stop, -1 do
    for _, each in ipairs(hashes) do
      local entries = call('GET', P .. 'o:' .. int(part) .. ':' .. each[2])
      if entries then
        find_in(entries, part, pack('>I4', each[1]), found)
      end
    end
  end
  return { stop > first and int(stop) or '0', found }
end
