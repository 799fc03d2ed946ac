-- with: prelude
-- The further feeds that a trigger listens to, beside its own: the parts of its join may come from several.
local function further_feeds(uid)
  local found = {}
  for feed in string.gmatch(call('HGET', P .. 'tr:' .. uid, 'feeds') or '', '[^\n]+') do
    found[#found + 1] = feed
  end
  return found
end
