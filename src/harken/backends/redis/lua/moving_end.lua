-- with: begin
-- All of a copy is there: from now on the store may be used.
call('UNLINK', P .. 'half')
call('HDEL', P .. 'd:moving', 'here')
return 'done'
