-- with: prelude
-- What store/gathering_rules.py says, in Lua: joins and throttles, and the marks that limit the next runs of a trigger.

-- A mark is kept in `mk:<uid>` by its name, as `<until>;<times>;<run>`; `mx` lists all marks by the time they end.
local function read_mark(uid, key)
  local found = call('HGET', P .. 'mk:' .. uid, key)
  if not found then
    return nil
  end
  local ends, listed, run = string.match(found, '^(%d+);([%d,]*);(.*)$')
  local times = {}
  for time in string.gmatch(listed, '%d+') do
    times[#times + 1] = tonumber(time)
  end
  return { ends = tonumber(ends), times = times, run = run }
end

local function write_mark(uid, key, ends, times, run)
  local listed = {}
  for i, time in ipairs(times) do
    listed[i] = int(time)
  end
  call('HSET', P .. 'mk:' .. uid, key, int(ends) .. ';' .. table.concat(listed, ',') .. ';' .. (run or ''))
  call('ZADD', P .. 'mx', ends, key .. uid)
end

-- When a run that is wanted at `wanted` may start under a throttle {name, most, span, whether it drops}. It counts,
-- unless it is dropped.
local function take_start(uid, throttle, wanted)
  local key, most, span, drops = name(throttle[1]), throttle[2], throttle[3], throttle[4]
  local mark = read_mark(uid, key)
  local times = mark and mark.times or {}
  local start = wanted
  if #times >= most then
    start = math.max(wanted, times[#times - most + 1] + span)
  end
  if start == wanted or not drops then
    times[#times + 1] = start
    table.sort(times)
    while #times > most do
      table.remove(times, 1)
    end
    write_mark(uid, key, times[#times] + span, times)
  end
  return start
end

-- The parts of a join are stored as `<1: run it when the time is over>;<number>:<time>;...`.
local function read_parts(found)
  local parts = {}
  for number, at in string.gmatch(found or '', '(%d+):(%d+)') do
    parts[#parts + 1] = { tonumber(number), tonumber(at) }
  end
  return parts
end

local function write_parts_text(parts, keeps)
  local whole = { keeps and '1' or '0' }
  for i, part in ipairs(parts) do
    whole[i + 1] = int(part[1]) .. ':' .. int(part[2])
  end
  return table.concat(whole, ';')
end

local function oldest_and_newest(parts)
  local oldest, newest = parts[1][2], parts[1][2]
  for _, part in ipairs(parts) do
    oldest, newest = math.min(oldest, part[2]), math.max(newest, part[2])
  end
  return oldest, newest
end

local function fits(parts, at, span)
  local oldest, newest = oldest_and_newest(parts)
  return math.max(newest, at) - math.min(oldest, at) <= span
end

-- Added to the number of a part that happened before the trigger was there.
local EARLY = 128

local function is_live(parts)
  for _, part in ipairs(parts) do
    if part[1] < EARLY then
      return true
    end
  end
  return false
end

local function in_order(parts, needs)
  local earliest = 0
  for wanted = 0, needs - 1 do
    local next_at
    for _, part in ipairs(parts) do
      if part[1] % EARLY == wanted and part[2] >= earliest and (not next_at or part[2] < next_at) then
        next_at = part[2]
      end
    end
    if not next_at then
      return false
    end
    earliest = next_at
  end
  return true
end

local function is_complete(parts, needs, ordered)
  local different, there = 0, {}
  for _, part in ipairs(parts) do
    if not there[part[1] % EARLY] then
      there[part[1] % EARLY] = true
      different = different + 1
    end
  end
  return different >= needs and is_live(parts) and (not ordered or in_order(parts, needs))
end

local function answered_by(newest, oldest, answer, span)
  return newest <= answer and answer <= oldest + span
end

-- The times at which a part happened that a join is without, with one more. Of three within one span the middle one
-- decides nothing: what it would answer is answered by one of the others too.
local MOST_ANSWERS = 64
local function with_answer(answers, at, span)
  answers[#answers + 1] = at
  table.sort(answers)
  local kept = {}
  for _, time in ipairs(answers) do
    if #kept > 1 and time - kept[#kept - 1] <= span then
      kept[#kept] = nil
    end
    kept[#kept + 1] = time
  end
  while #kept > MOST_ANSWERS do
    table.remove(kept, 1)
  end
  return kept
end
