-- What every verb begins with: where the keys are, what time it is, what is asked.
-- ARGV: the time in microseconds (empty: the server's own), instructions in msgpack, names of 16 bytes, opaque texts.
local P, call = KEYS[1], redis.call
local format, sub, pack, unpack_struct = string.format, string.sub, struct.pack, struct.unpack

local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local ask = cmsgpack.unpack(ARGV[2])

local function name(at)
  return sub(ARGV[3], at * 16 - 15, at * 16)
end

local function text(at)
  return ARGV[3 + at]
end

local written = {}

-- A whole number as text. `..` would round a time to 14 digits, and Redis takes microseconds to write one itself.
local function int(number)
  local found = written[number]
  if not found then
    found = format('%.0f', number)
    written[number] = found
  end
  return found
end

-- A command with any number of arguments: Lua hands over no more than some thousand at once.
local AT_ONCE = 1000
local function call_all(command, key, list)
  for first = 1, #list, AT_ONCE do
    call(command, key, unpack(list, first, math.min(first + AT_ONCE - 1, #list)))
  end
end

local ids, counted = nil, {}

-- Ids only ever rise, also when the newest rows are gone.
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

-- The counters of this call, one write each however often they moved.
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

-- What Lua has to know of a trigger; nil when there is none of this uid.
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

-- The uid of a trigger that is not removed.
local function uid_named(trigger)
  local uid = call('HGET', P .. 'tn', trigger)
  if uid and not trigger_of(uid).removed then
    return uid
  end
  return nil
end
