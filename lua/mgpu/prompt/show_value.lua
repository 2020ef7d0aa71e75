--- What the prompt prints for a value.
--
-- show_value(value, {width = 80}) -> text. Strings stand as they are, as print shows them, but quoted inside tables.
-- Models show their summary, layers their options, datasets what their elements are, functions their place
-- (describe.lua); other values with __tostring show that. Tables show their entries, at most DEEP tables deep and MOST
-- entries of each, the array first and then the other keys in order; a table inside itself shows as <cycle>. One that
-- fits the width is on one line.
local describe = require "mgpu.prompt.describe"

local M = {}

local DEEP, MOST, MOST_NAMES = 4, 20, 60

local function quoted(text)
  return (("%q"):format(text):gsub("\\\n", "\\n"):gsub("\\r", "\\r"):gsub("%z", "\\0"):gsub("[\1-\8\11-\31\127]",
    function(c) return ("\\%03d"):format(c:byte()) end))
end

local function key_text(key)
  if type(key) == "string" then
    if key:find "^[%a_][%w_]*$" and not require "mgpu.prompt.lexer".KEYWORDS[key] then return key end
    return "[" .. quoted(key) .. "]"
  end
  return "[" .. tostring(key) .. "]"
end

local function before(a, b)
  local kind_a, kind_b = type(a), type(b)
  if kind_a ~= kind_b then return kind_a < kind_b end
  if kind_a == "number" or kind_a == "string" then return a < b end
  return tostring(a) < tostring(b)
end

-- The keys that are not of the array's n entries, in order.
local function other_keys(t, n)
  local keys = {}
  for key in next, t do
    local of_array = type(key) == "number" and key >= 1 and key <= n and key % 1 == 0
    if not of_array then keys[#keys + 1] = key end
  end
  table.sort(keys, before)
  return keys
end

local function has_text(value)
  local meta = debug.getmetatable(value)
  return type(meta) == "table" and rawget(meta, "__tostring") ~= nil
end

local entry_text

-- The texts of a table's entries.
local function entry_texts(t, width, depth, open)
  local texts, n = {}, 0
  while rawget(t, n + 1) ~= nil do n = n + 1 end
  for i = 1, math.min(n, MOST) do texts[i] = entry_text(rawget(t, i), width, depth, open) end
  if n > MOST then texts[#texts + 1] = ("... (%d in all)"):format(n) end
  local keys = other_keys(t, n)
  for i = 1, math.min(#keys, MOST_NAMES) do
    texts[#texts + 1] = key_text(keys[i]) .. " = " .. entry_text(rawget(t, keys[i]), width, depth, open)
  end
  if #keys > MOST_NAMES then texts[#texts + 1] = ("... (%d names in all)"):format(#keys) end
  return texts
end

local function table_text(t, width, depth, open)
  if next(t) == nil then return "{}" end
  if open[t] then return "<cycle>" end
  if depth == DEEP then return "{...}" end
  open[t] = true
  local texts = entry_texts(t, width - 2, depth + 1, open)
  open[t] = nil
  local line = "{ " .. table.concat(texts, ", ") .. " }"
  if #line <= width and not line:find "\n" then return line end
  return "{\n  " .. (table.concat(texts, ",\n"):gsub("\n", "\n  ")) .. "\n}"
end

function entry_text(value, width, depth, open)
  if type(value) == "string" then return quoted(value) end
  if type(value) == "function" then return describe.place(value) end
  if type(value) ~= "table" or has_text(value) then return tostring(value) end
  return table_text(value, width, depth, open)
end

--- show_value(value, options): see the top.
function M.show_value(value, options)
  local width = options and options.width or 80
  local text = describe.describe(value, function(t) return table_text(t, width, 0, {}) end)
  if text then return text end
  if type(value) ~= "table" or has_text(value) then return tostring(value) end
  return table_text(value, width, 0, {})
end

return M.show_value
