-- with: prelude
-- What a feed remembers of a subject: when it was first and last seen, its event, the number of its changes and its
-- state. Kinds of state: 0 none, 1 plain (the mark is the state), 2 absent (no longer listed), 3 encrypted. Equal
-- states have equal marks.
local ABSENT = 2

local function read_memory(value)
  local first, last, event, seq, kind, size = unpack_struct('>I8I8I8I4BH', value)
  local mark, state = sub(value, 32, 31 + size), sub(value, 32 + size)
  return { first = first, last = last, event = event, seq = seq, kind = kind, mark = mark, state = state }
end

local function write_memory(known)
  local row = pack('>I8I8I8I4BH', known.first, known.last, known.event, known.seq, known.kind, #known.mark)
  return row .. known.mark .. known.state
end
