-- with: begin
-- Make the feed due now. Asked: {feed}.
if call('EXISTS', P .. 'f:' .. ask[1]) == 0 then
  return { '!', 'feed', ask[1] }
end
call('HSET', P .. 'f:' .. ask[1], 'due', now)
return 'done'
