-- with: prelude
-- Named documents with a revision, and the audit trail.

-- verb: put
-- Write a document, unless `expect` is not its current revision (0: absent; false: write anyway). Return the new row,
-- or '' if nothing was written.
local function put(kind, document, value, expect)
  local key = P .. 'd:' .. kind
  local row = call('HGET', key, document)
  local revision = row and unpack_struct('>I4', row) or 0
  if expect and expect ~= revision then
    return ''
  end
  row = pack('>I4I8', revision + 1, now) .. text(value)
  call('HSET', key, document, row)
  return row
end

-- verb: delete
local function delete(kind, document)
  return call('HDEL', P .. 'd:' .. kind, document)
end

-- verb: change
-- Write and delete several documents, unless one of them is not at its `expect`. Return the new rows, '' for those
-- that were deleted; or '' alone if nothing was written. A change is {kind, name, value or false, expect or false}.
local function change(changes)
  for _, one in ipairs(changes) do
    local row = call('HGET', P .. 'd:' .. one[1], one[2])
    local revision = row and unpack_struct('>I4', row) or 0
    if one[4] and one[4] ~= revision then
      return ''
    end
  end
  local rows = {}
  for at, one in ipairs(changes) do
    local key = P .. 'd:' .. one[1]
    if one[3] then
      local row = call('HGET', key, one[2])
      rows[at] = pack('>I4I8', (row and unpack_struct('>I4', row) or 0) + 1, now) .. text(one[3])
      call('HSET', key, one[2], rows[at])
    else
      call('HDEL', key, one[2])
      rows[at] = ''
    end
  end
  return rows
end

-- verb: audit
local function audit(entry)
  return call('RPUSH', P .. 'audit', pack('>I8', now) .. text(entry))
end
