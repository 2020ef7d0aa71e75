--- The names that fit what is being typed: what they have in common, and how they are listed.
--
-- listing.new(word) -> a listing of names that begin with `word`. Names with a leading underscore fit only if the word
-- has one. add costs little for a name that does not fit, so that tables of 100,000 names take milliseconds.
local core = require "mgpu.core"

local Listing = {}
Listing.__index = Listing

local MOST = 300 -- names that are listed

--- new(word, any): any: the names need not be names of Lua.
function Listing.new(word, any)
  return setmetatable({ word = word, length = #word, any = any, count = 0, seen = {}, names = {}, common = nil,
    private = word:sub(1, 1) == "_" }, Listing)
end

-- How many bytes at their starts are equal, at most n. This and is_name loop over bytes, since LuaJIT compiles neither
-- string.sub without making strings nor patterns.
local function common_length(a, b, n)
  for i = 1, n do
    if a:byte(i) ~= b:byte(i) then return i - 1 end
  end
  return n
end

local IN_NAMES = {}
for byte = 0, 255 do IN_NAMES[byte] = string.char(byte):find "[%w_\128-\255]" ~= nil end

local function is_name(text)
  for i = 1, #text do
    if not IN_NAMES[text:byte(i)] then return false end
  end
  local first = text:byte(1)
  return first ~= nil and (first < 48 or first > 57) -- no digit
end

--- listing:add(name, text, ending): text: how it is listed, if not as the name; ending: what follows the name once it
--- is the only one.
function Listing:add(name, text, ending)
  if type(name) ~= "string" or common_length(name, self.word, self.length) < self.length or self.seen[name] then
    return
  end
  if not self.any and (not is_name(name) or (not self.private and name:byte(1) == 95)) then return end
  self.seen[name] = text or true
  self.count = self.count + 1
  self.common = self.common or name
  self.n_common = common_length(self.common, name, self.n_common or #name)
  self.ending = ending
  if self.count <= MOST then self.names[self.count] = name end
end

--- option_text(option) -> how a declared option is listed: name, type, default and values.
function Listing.option_text(option)
  if option.doc then return ("%-22s %s"):format(option[1], option.doc) end
  local default = option.default
  if type(default) == "string" then default = ("%q"):format(default) end
  if type(default) == "table" then default = require "mgpu.prompt.show_value"(default) end
  local about = option.required and "required" or (default ~= nil and "= " .. tostring(default) or "")
  local kind = option.values and table.concat(option.values, ", ") or option[2]:gsub("|", " or ")
  return ("%-22s %-20s %s"):format(option[1], about, kind)
end

-- The texts in columns, ordered downwards.
local function in_columns(texts, width)
  local widest = 1
  for _, text in ipairs(texts) do widest = math.max(widest, #text) end
  local columns = math.max(1, math.floor((width + 1) / (widest + 2)))
  local rows = math.ceil(#texts / columns)
  local lines = {}
  for row = 1, rows do
    local cells = {}
    for i = row, #texts, rows do cells[#cells + 1] = texts[i] .. (" "):rep(widest - #texts[i]) end
    lines[row] = table.concat(cells, "  "):gsub("%s+$", "")
  end
  return table.concat(lines, "\n") .. "\n"
end

--- listing:text(width) -> the list of the names, in columns, or one a line if they have texts.
function Listing:text(width)
  table.sort(self.names)
  local described, lines = false, {}
  for i, name in ipairs(self.names) do
    local text = self.seen[name]
    described = described or text ~= true
    lines[i] = core.printable(text ~= true and text or name, true)
  end
  local result = described and table.concat(lines, "\n") .. "\n" or in_columns(lines, width)
  if self.count > MOST then result = result .. ("... %d of %d names\n"):format(MOST, self.count) end
  return result
end

--- listing:result(width, rest) -> insert, listing, as complete.line returns them. rest: what follows the cursor.
function Listing:result(width, rest)
  if self.count == 0 then return nil, nil end
  local insert = self.common:sub(self.length + 1, self.n_common)
  if self.count == 1 then
    local ending = self.ending or ""
    if ending ~= "" and rest:sub(1, #ending) ~= ending then insert = insert .. ending end
  end
  if insert ~= "" then return insert, nil end
  if self.count == 1 then return nil, nil end
  return nil, self:text(width)
end

return Listing
