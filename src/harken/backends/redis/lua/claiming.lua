-- Who may start: not in quiet hours, and not beyond the trigger's budget, which every run is counted against.
-- When the quiet hours end that it is now; 0 when it is not quiet, nil when only the trigger's calendar can tell.
-- A span is {asked at, begins, ends}: the quiet hours of that instant, or the next ones. It holds until its end.
local function quiet_until(run)
  if run.qtil and tonumber(run.qfrom) <= now and now < tonumber(run.qtil) then
    return tonumber(run.qtil)
  end
  local trigger = trigger_of(run.trigger)
  if not trigger or not trigger.quiet then
    return 0
  end
  local span = call('HMGET', P .. 'tr:' .. run.trigger, 'quiet_asked', 'quiet_from', 'quiet_until')
  if span[1] and tonumber(span[1]) <= now and now < tonumber(span[3]) then
    return tonumber(span[2]) <= now and tonumber(span[3]) or 0
  end
  return nil
end

-- Count the run and let it start; or hold it, and the slot that it may have stays its own.
local function enters(run)
  local trigger = trigger_of(run.trigger)
  if trigger and trigger.budget and room(run.trigger, trigger) <= 0 then
    move(load_run(run.id), HELD, { hold = 'budget' })
    return false
  end
  spend(run.trigger, 'runs', 1)
  call('HSET', P .. 'r:' .. run.id, 'budget', '')
  return true
end

-- Make held runs ready for which there is room again, oldest first, a few at a time.
local function let_in(limit)
  for _, uid in ipairs(call('SMEMBERS', P .. 'short')) do
    local trigger = trigger_of(uid)
    if not trigger.paused then
      local few = math.min(limit, trigger.budget and room(uid, trigger) or limit)
      if few > 0 then
        for _, at in ipairs(call('ZRANGE', held_key(uid, 'budget'), 0, few - 1)) do
          local run = load_run(sub(at, 13))
          admit(run, run.due)
        end
      end
    end
    if call('ZCARD', held_key(uid, 'budget')) == 0 then
      call('SREM', P .. 'short', uid)
    end
  end
end
