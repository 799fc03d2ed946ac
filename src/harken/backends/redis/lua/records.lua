-- with: begin
-- Entries of a list of rising numbers, newest first, below a number.
-- Asked: {key, before (false: all), how many, digits}.
-- `digits`: the number is so many characters at the beginning of an entry; 0 for all of it.
local key, last = P .. ask[1], nil
local function number(at)
  local entry = call('LINDEX', key, at)
  return tonumber(ask[4] > 0 and sub(entry, 1, ask[4]) or entry)
end
local size = call('LLEN', key)
last = size
if ask[2] then
  local low, high = 0, size
  while low < high do
    local middle = math.floor((low + high) / 2)
    if number(middle) < ask[2] then
      low = middle + 1
    else
      high = middle
    end
  end
  last = low
end
if last == 0 then
  return {}
end
local found, newest_first = call('LRANGE', key, math.max(0, last - ask[3]), last - 1), {}
for i = #found, 1, -1 do
  newest_first[#newest_first + 1] = found[i]
end
return newest_first
