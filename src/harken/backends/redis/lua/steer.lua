-- with: begin run queue
-- What people do to triggers. Asked: {pause | resume | reset, trigger, reason or whether the cursor goes}.
local uid = uid_named(ask[2])
if not uid then
  return { '!', 'trigger', ask[2] }
end
local key, feed = P .. 'tr:' .. uid, trigger_of(uid).feed
local feed_key = P .. 'f:' .. feed

local function wipe_memory()
  local listening = 0
  for _, each in ipairs(call('SMEMBERS', P .. 'ft:' .. feed)) do
    if not trigger_of(each).removed then
      listening = listening + 1
    end
  end
  if call('HGET', feed_key, 'identity') == 'transition' and listening > 1 then
    -- keys count the changes of a subject: beginning again would give the others' next change an old key
    return
  end
  call('UNLINK', P .. 'm:' .. feed, P .. 'mo:' .. feed)
  call('HSET', feed_key, 'base', '')
end

local exists = call('EXISTS', feed_key) == 1
if ask[1] == 'pause' then
  call('HSET', key, 'paused', text(ask[3]))
else
  call('HSET', key, 'paused', '')
  let_go(uid, 'paused', false)
  if ask[1] == 'reset' and ask[3] then
    local epoch_event = call('HGET', P .. 'n', 'event') or '1'
    call('HINCRBY', key, 'epoch', 1)
    call('HSET', key, 'epoch_event', epoch_event, 'start', now, 'reads', now, 'reset', now, 'backfilling', '')
    if exists then
      call('HDEL', feed_key, 'cursor', 'watermark')
      wipe_memory()
    end
  end
  if exists then
    call('HDEL', feed_key, 'health', 'clean')
    call('HSET', feed_key, 'due', now)
  end
end
if exists then
  call('HINCRBY', feed_key, 'revision', 1)
end
write_counts()
return uid
