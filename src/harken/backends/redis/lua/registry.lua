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

-- verb: audit
local function audit(entry)
  return call('RPUSH', P .. 'audit', pack('>I8', now) .. text(entry))
end
