-- with: begin
-- Append to the audit trail. Asked: {entry}.
return call('RPUSH', P .. 'audit', pack('>I8', now) .. text(ask[1]))
