-- with: begin
-- Write a document, if its revision is the expected one. Asked: {kind, name, value, expect (false: any)}.
local key = P .. 'd:' .. ask[1]
local row = call('HGET', key, ask[2])
local revision = row and unpack_struct('>I4', row) or 0
if ask[4] and ask[4] ~= revision then
  return ''
end
row = pack('>I4I8', revision + 1, now) .. text(ask[3])
call('HSET', key, ask[2], row)
return row
