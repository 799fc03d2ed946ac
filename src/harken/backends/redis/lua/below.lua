-- with: begin
-- Numbers that exist in buckets of rows, newest first. Asked: {key, field, buckets, before (false: all), how many}.
local SLICE = 50
local before = ask[4] or 9007199254740992
local found = {}
local buckets = call('ZREVRANGEBYSCORE', P .. ask[3], int(math.floor((before - 1) / 1000)), '-inf', 'LIMIT', 0, 50)
for _, bucket in ipairs(buckets) do
  local key, top = P .. ask[1] .. bucket, math.min(before - 1, bucket * 1000 + 999)
  for first = top, bucket * 1000, -SLICE do
    local fields = {}
    for number = first, math.max(first - SLICE + 1, bucket * 1000), -1 do
      fields[#fields + 1] = ask[2] .. int(number)
    end
    for i, value in ipairs(call('HMGET', key, unpack(fields))) do
      if value then
        found[#found + 1] = { int(first - i + 1), value }
        if #found == ask[5] then
          return { found, 0 }
        end
      end
    end
  end
end
-- where to go on, when there may be more behind so many empty buckets
return { found, #buckets == 50 and int(buckets[50] * 1000) or 0 }
