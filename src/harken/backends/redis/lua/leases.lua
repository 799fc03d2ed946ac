-- with: prelude
-- Leases of shards: who reads which feeds. A lease with the end 0 was released by its holder.

local function lease_is_lost(token, shard)
  local lease = call('HMGET', P .. 'lease:' .. (shard or '0'), 'token', 'until')
  return tonumber(lease[1]) ~= token or tonumber(lease[2]) < now
end

-- verb: lease
-- Take or renew the lease of a shard. Return {token, end, whether an expired lease of another holder was taken over},
-- or {} if it is not ours: another holder has it, or the store is at another `generation` ('' matches any).
local function lease(number, holder, duration, generation)
  local shard = int(number)
  local key = P .. 'lease:' .. shard
  local row = call('HMGET', key, 'holder', 'token', 'until')
  local ends = tonumber(row[3])
  local held, ours = row[1] and ends >= now, row[1] == holder
  if generation ~= '' and (call('HGET', P .. 'gen', 'name') or '') ~= generation then
    if ours then
      call('HSET', key, 'until', 0)
    end
    return {}
  end
  if held and not ours then
    return {}
  end
  local token = tonumber(row[2]) or 0
  -- an expired lease that nobody took meanwhile keeps its token
  if not (ours and ends ~= 0) then
    -- tokens are unique over all shards, so that the token of one shard is never valid for another
    token = math.max(token, tonumber(call('HGET', P .. 'n', 'token')) or 0) + 1
    call('HSET', P .. 'n', 'token', token)
  end
  call('SADD', P .. 'shards', shard)
  call('HSET', key, 'holder', holder, 'token', token, 'until', now + duration)
  return { token, int(now + duration), row[1] and not ours and ends ~= 0 and 1 or 0 }
end

-- verb: release_lease
-- End the lease now, if it is still ours.
local function release_lease(shard, holder, token)
  local key = P .. 'lease:' .. int(shard)
  local row = call('HMGET', key, 'holder', 'token')
  if row[1] == holder and tonumber(row[2]) == token then
    call('HSET', key, 'until', 0)
  end
  return 'done'
end

-- verb: leases
-- Leases that are neither expired nor released, as {shard, holder, token, end}.
local function leases()
  local found = {}
  for _, shard in ipairs(call('SMEMBERS', P .. 'shards')) do
    local row = call('HMGET', P .. 'lease:' .. shard, 'holder', 'token', 'until')
    if tonumber(row[3]) >= now then
      found[#found + 1] = { shard, row[1], row[2], row[3] }
    end
  end
  return found
end
