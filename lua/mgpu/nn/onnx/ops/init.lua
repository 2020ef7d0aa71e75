--- The ops of ONNX that models are made of: the table of all rows, and their declarations.
--
-- A row is {declaration, fn}. The declaration says how many inputs an op takes, and its attributes:
--     Softmax = { "1 | axis:int=-1", function(c, x) ... end }
--     Concat = { "1+ | axis:int", function(c, ...) ... end }
-- "2-3" are two or three inputs, "1+" at least one. An attribute has a type (int, float, text, ints, floats, texts,
-- tensor), and behind it a default, or "?" where it may be missing. The function gets the call c and the inputs, values
-- of onnx/values.lua or nil, and returns values. c has the attributes by name, c.opset (of the op's domain), c.outputs
-- (how many are used) and c.run. An op that changed with the opset has all attributes and inputs that it ever had, and
-- asks c.opset where they mean different things.
local ordered_keys = require "mgpu.ordered_keys"

local M = {}

local DOMAINS = { [""] = { "elementwise", "reductions", "movement", "picking", "windows", "normalizations", "matrices",
  "recurrent", "images", "attention" }, ["ai.onnx.ml"] = { "learners", "trees" } }

-- The value that a default stands for.
local function default_of(kind, text)
  if kind == "text" then return text:match '^"(.*)"$' end
  return tonumber(text)
end

-- {least =, most =, attributes = {name = {kind =, default =, required =}}} of a declaration.
local function read(declaration)
  local counts, rest = declaration:match "^(%S+)%s*|?%s*(.*)$"
  local least, most = counts:match "^(%d+)%-(%d+)$"
  local out = { attributes = {} }
  if least then
    out.least, out.most = tonumber(least), tonumber(most)
  else
    out.least = tonumber(counts:match "%d+")
    out.most = counts:find "%+" and math.huge or out.least
  end
  for name, kind, ending in rest:gmatch "([%w_]+):(%a+)(%S*)" do
    local default = ending:sub(1, 1) == "=" and default_of(kind, ending:sub(2)) or nil
    out.attributes[name] = { kind = kind, default = default, required = ending == "" }
  end
  return out
end

local rows

local function load_rows()
  rows = {}
  for domain, files in pairs(DOMAINS) do
    rows[domain] = {}
    for _, file in ipairs(files) do
      for name, row in pairs(require("mgpu.nn.onnx.ops." .. file)) do
        local entry = read(row[1])
        entry.run = row[2]
        rows[domain][name] = entry
      end
    end
  end
end

--- find(domain, op) -> {least =, most = inputs, attributes =, run =}, or nil.
function M.find(domain, op)
  if not rows then load_rows() end
  return rows[domain] and rows[domain][op]
end

--- names(domain) -> the names of the domain's ops, sorted; nil for an unknown domain.
function M.names(domain)
  if not rows then load_rows() end
  return rows[domain] and ordered_keys(rows[domain])
end

return M
