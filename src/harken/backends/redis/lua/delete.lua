-- with: begin
-- Delete a document. Asked: {kind, name}.
return call('HDEL', P .. 'd:' .. ask[1], ask[2])
