-- with: prelude
-- Watched runs that have moved. `moved` lists them by number until somebody has dealt with their state.

-- A run's state and the number of its claims: whatever happens to a run changes one of the two.
local function version(token, state)
  return (tonumber(token) or 0) * 16 + state
end

-- verb: deal_with
-- Take runs {run, version} off the list, but for those that have moved again. Return how many.
local function deal_with(seen)
  local dealt_with = 0
  for _, each in ipairs(seen) do
    local id = name(each[1])
    local row = call('HMGET', P .. 'r:' .. id, 'token', 'state')
    if row[2] and version(row[1], row[2]) == each[2] then
      dealt_with = dealt_with + call('ZREM', P .. 'moved', id)
    end
  end
  return dealt_with
end

-- verb: moved
-- Runs with a number above `after` and up to `last`, at most `limit`: {id, number, version, state, trigger uid, since,
-- first event or ''}.
local function first_event(id)
  local first
  for _, event in ipairs(call('LRANGE', P .. 're:' .. id, 0, -1)) do
    first = math.min(first or tonumber(event), tonumber(event))
  end
  return first and int(first) or ''
end

local function moved(after, last, limit)
  local found = {}
  for i, id in ipairs(call('ZRANGEBYSCORE', P .. 'moved', '(' .. int(after), int(last), 'LIMIT', 0, limit)) do
    local row = call('HMGET', P .. 'r:' .. id, 'seq', 'token', 'state', 'trigger', 'since', 'event')
    found[i] = { id, row[1], int(version(row[2], row[3])), row[3], row[4], row[5], row[6] or first_event(id) }
  end
  return found
end
