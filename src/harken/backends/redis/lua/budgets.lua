-- What the runs of a trigger have used of its budget: calendar hours and days, in UTC.
local HOUR, DAY = 3600000000, 86400000000
local WINDOWS = { runs = HOUR, tokens = DAY, usd = DAY }

local function spent(uid, what)
  local row = call('HMGET', P .. 'sp:' .. uid, what, what .. '@')
  if tonumber(row[2]) == now - now % WINDOWS[what] then
    return tonumber(row[1])
  end
  return 0
end

local function spend(uid, what, amount)
  call('HSET', P .. 'sp:' .. uid, what, spent(uid, what) + amount, what .. '@', now - now % WINDOWS[what])
end

-- How many runs may start now; without end while only tokens or money are limited and not used up.
local function room(uid, trigger)
  if trigger.tokens and spent(uid, 'tokens') >= trigger.tokens then
    return 0
  end
  if trigger.usd and spent(uid, 'usd') >= trigger.usd then
    return 0
  end
  return trigger.runs and trigger.runs - spent(uid, 'runs') or math.huge
end

-- Nothing is left, or others have waited for longer.
local function over_budget(uid, trigger)
  return call('ZCARD', held_key(uid, 'budget')) > 0 or room(uid, trigger) <= 0
end

-- The trigger behind a run; a sub-run spends the budget of whoever asked for it.
local function payer(run)
  while run and (run.trigger or '') == '' and run.parent do
    run = load_run(run.parent)
  end
  return run and run.trigger or ''
end

-- Append a step; what a model took for it is charged once, also when a worker writes the same record again.
-- A step is {record, tokens, usd, its name}; the last is false where nothing was spent.
local function append(run, step)
  if step[4] and call('SADD', P .. 'jc:' .. run.id, name(step[4])) == 1 then
    local uid = payer(run)
    if uid ~= '' then
      if step[2] > 0 then
        spend(uid, 'tokens', step[2])
      end
      if step[3] > 0 then
        spend(uid, 'usd', step[3])
      end
    end
  end
  call('RPUSH', P .. 'j:' .. run.id, text(step[1]))
  if not run.journal then
    call('HSET', P .. 'r:' .. run.id, 'journal', '1')
    run.journal = '1'
  end
end
