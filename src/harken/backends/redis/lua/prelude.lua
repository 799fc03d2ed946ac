-- Every script starts with this: its arguments, the time, the counters of the store, and facts about triggers.
--
-- KEYS[1] is the prefix of all keys. ARGV[1] is the time in microseconds (empty: use the server's), ARGV[2] the
-- arguments of the verb in msgpack, ARGV[3] names of 16 bytes each, joined; the rest are opaque texts. Arguments refer
-- to a name or a text by its position; `false` means that there is none. A script that refuses a call returns
-- {'!', what is wrong, about what}. docs/reference/stores/redis.md describes the keys.
local P, call = KEYS[1], redis.call
local format, sub, unpack = string.format, string.sub, unpack
local pack, unpack_struct = struct.pack, struct.unpack

local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local args = cmsgpack.unpack(ARGV[2])

local function name(position)
  return sub(ARGV[3], position * 16 - 15, position * 16)
end

local function text(position)
  return ARGV[3 + position]
end

local formatted = {}

-- A whole number as text. `..` would round a time to 14 digits, and Redis takes microseconds to format one itself.
local function int(number)
  local found = formatted[number]
  if not found then
    found = format('%.0f', number)
    formatted[number] = found
  end
  return found
end

-- Lua's `unpack` fails with some thousand values, so a command with a long list is sent in several calls.
local MAX_ARGUMENTS = 1000
local function call_all(command, key, list)
  for first = 1, #list, MAX_ARGUMENTS do
    call(command, key, unpack(list, first, math.min(first + MAX_ARGUMENTS - 1, #list)))
  end
end

-- Events and runs are numbered. Each hash (`e:<bucket>`, `rn:<bucket>`) holds the rows of so many numbers.
local BUCKET = 1000

local ids, counted = nil, {}

-- Ids only rise, even after the newest rows were deleted.
local function next_id(what)
  if not ids then
    local found = call('HMGET', P .. 'n', 'event', 'run')
    ids = { event = tonumber(found[1]) or 1, run = tonumber(found[2]) or 1 }
  end
  local id = ids[what]
  ids[what] = id + 1
  return id
end

local function count(what, by)
  counted[what] = (counted[what] or 0) + by
end

-- Write the counters that this call changed, each with one command.
local function write_counts()
  if ids then
    call('HSET', P .. 'n', 'event', ids.event, 'run', ids.run)
  end
  for what, by in pairs(counted) do
    if by ~= 0 then
      call('HINCRBY', P .. 'n', what, by)
    end
  end
  counted = {}
end

local known_triggers = {}

-- The fields of a trigger that scripts use; nil for an unknown uid.
local function trigger_of(uid)
  local found = known_triggers[uid]
  if found == nil then
    local row = call('HMGET', P .. 'tr:' .. uid, 'name', 'shares', 'budget', 'brun', 'btok', 'busd', 'epoch_event',
      'paused', 'quiet', 'feed', 'removed')
    found = row[1] and {
      name = row[1], shares = row[2] == '1', budget = row[3] == '1', runs = tonumber(row[4]), tokens = tonumber(row[5]),
      usd = tonumber(row[6]), epoch_event = tonumber(row[7]) or 0, paused = (row[8] or '') ~= '', quiet = row[9] == '1',
      feed = row[10], removed = row[11],
    }
    known_triggers[uid] = found
  end
  return found or nil
end

-- The uid of the trigger with this name; nil if there is none or it was removed.
local function uid_of(trigger)
  local uid = call('HGET', P .. 'tn', trigger)
  if uid and not trigger_of(uid).removed then
    return uid
  end
  return nil
end
