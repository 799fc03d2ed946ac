-- with: run_states
-- What the runs of a trigger have spent of its budget, per calendar hour or day in UTC.
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

-- How many more runs may start now; unlimited if only tokens or money are limited and not spent yet.
local function runs_left(uid, trigger)
  if trigger.tokens and spent(uid, 'tokens') >= trigger.tokens then
    return 0
  end
  if trigger.usd and spent(uid, 'usd') >= trigger.usd then
    return 0
  end
  return trigger.runs and trigger.runs - spent(uid, 'runs') or math.huge
end

-- The budget is spent, or older runs are already held for it.
local function over_budget(uid, trigger)
  return call('ZCARD', held_key(uid, 'budget')) > 0 or runs_left(uid, trigger) <= 0
end

-- The trigger whose budget a run spends: for a sub-run that of the run which started it.
local function payer(run)
  while run and (run.trigger or '') == '' and run.parent do
    run = load_run(run.parent)
  end
  return run and run.trigger or ''
end

-- Append a step {record, tokens, usd, charge name (false: nothing spent)} to the journal of a run. Because of the
-- charge name, a record that a worker writes twice is charged once.
local function append_step(run, step)
  local record, tokens, usd, charge = unpack(step)
  if charge and call('SADD', P .. 'jc:' .. run.id, name(charge)) == 1 then
    local uid = payer(run)
    if uid ~= '' then
      if tokens > 0 then
        spend(uid, 'tokens', tokens)
      end
      if usd > 0 then
        spend(uid, 'usd', usd)
      end
    end
  end
  call('RPUSH', P .. 'j:' .. run.id, text(record))
  if not run.journal then
    call('HSET', P .. 'r:' .. run.id, 'journal', '1')
    run.journal = '1'
  end
end
