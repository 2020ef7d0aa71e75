--- Events of the dashboard as lines of JSON, which the page reads (page/data.js lists them).
--
-- Names and messages come from scripts and files. They become valid UTF-8 of bounded length without control
-- characters, and "<" is written as an escape, so that no text can end the script element that holds the events in a
-- saved page.
local core = require "mgpu.core"
local svg = require "mgpu.plot.svg"

local M = {}

local MOST_TEXT = 4000 -- bytes of a text
local MOST_NAME = 200 -- and of a name

local function quoted(text)
  return '"' .. text:gsub('[%c"\\<>&]', function(c) return ("\\u%04x"):format(c:byte()) end) .. '"'
end

--- text(value, most = 4000) -> the text as JSON, on as many lines as it has.
function M.text(value, most)
  return quoted(svg.shortened(svg.plain(core.printable(tostring(value))), most or MOST_TEXT))
end

--- name(value) -> a name as JSON: short, and on one line.
function M.name(value)
  return quoted(svg.shortened(svg.plain(core.printable(tostring(value), true)), MOST_NAME))
end

--- number(x) -> the number as JSON. What JSON lacks is a text that JavaScript's Number takes.
function M.number(x)
  if x ~= x then return '"NaN"' end
  if x - x ~= 0 then return x > 0 and '"Infinity"' or '"-Infinity"' end
  return ("%.9g"):format(x)
end

--- line(n, fields) -> an event: a line of JSON. fields: n names and values in turn; a value is a number, a boolean, a
--- name, nil (the field is left out), or {json = text}.
function M.line(n, fields)
  local out = {}
  for i = 1, n, 2 do
    local value = fields[i + 1]
    if value ~= nil then
      local kind = type(value)
      local text = kind == "number" and M.number(value) or kind == "table" and value.json
        or kind == "boolean" and tostring(value) or M.name(value)
      out[#out + 1] = ('"%s":%s'):format(fields[i], text)
    end
  end
  return "{" .. table.concat(out, ",") .. "}\n"
end

--- texts(list) -> {json =}: an array of texts, of numbers, or of such arrays.
function M.texts(list)
  local out = {}
  for i = 1, #list do
    local value = list[i]
    out[i] = type(value) == "table" and M.texts(value).json or type(value) == "number" and M.number(value)
      or M.text(value)
  end
  return { json = "[" .. table.concat(out, ",") .. "]" }
end

--- bytes(text) -> {json =}: bytes as base64.
function M.bytes(text) return { json = '"' .. require "mgpu.io.base64".encode(text) .. '"' } end

--- values(each, values) -> {json =}: an object of the numbers of the logs; of a value with several numbers {name_1 =,
--- name_2 =}. Others are left out. ARGS each: logs.each.
function M.values(each, values)
  local out = {}
  local function add(name, value)
    if type(value) == "number" then
      out[#out + 1] = M.name(name) .. ":" .. M.number(value)
    elseif type(value) == "table" then
      for i, item in ipairs(value) do add(name .. "_" .. i, item) end
    end
  end
  for name, value in each(values) do add(name, value) end
  return { json = "{" .. table.concat(out, ",") .. "}" }
end

return M
