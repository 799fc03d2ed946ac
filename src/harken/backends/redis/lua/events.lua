-- with: prelude
-- How an event and its verdicts are stored. In the hash of its bucket an event has the fields <id> (its body, opaque),
-- v<id> (time, name of its key, feed, verdicts) and, if it was repeated, r<id> (times:last time).
local FIRED, DUPLICATE, BEFORE_START, GATHERED, HELD_BACK, SKIPPED = 0, 2, 3, 4, 5, 6

local function bucket_key(event)
  return P .. 'e:' .. int(math.floor(event / BUCKET))
end

local function event_exists(event)
  return call('HEXISTS', bucket_key(event), 'v' .. int(event)) == 1
end

-- The verdicts of an event, and the part of its row before them; nil if the event was deleted.
local function read_verdicts(event)
  local row = call('HGET', bucket_key(event), 'v' .. int(event))
  if not row then
    return nil
  end
  local size = unpack_struct('>H', row, 25)
  return sub(row, 27 + size), sub(row, 1, 26 + size)
end

-- A verdict as it is stored: outcome, trigger, run, reason (opaque) and a number.
local function verdict_frame(outcome, trigger, run, reason, number)
  run, reason = run or '', reason or ''
  return pack('>BHBI4I4', outcome, #trigger, #run, #reason, number or 0) .. trigger .. run .. reason
end

local function split_frames(frames)
  local found, at = {}, 1
  while at <= #frames do
    local outcome, trigger, run, reason = unpack_struct('>BHBI4I4', frames, at)
    local size = 12 + trigger + run + reason
    found[#found + 1] = { outcome = outcome, trigger = sub(frames, at + 12, at + 11 + trigger),
      run = sub(frames, at + 12 + trigger, at + 11 + trigger + run), whole = sub(frames, at, at + size - 1) }
    at = at + size
  end
  return found
end
