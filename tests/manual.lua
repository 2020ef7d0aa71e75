-- Prints a table of all ops in Markdown, from the runtime's own op table: `make doc`.
local core = require "mgpu.core"
local methods = require "mgpu.methods"
local mgpu = require "mgpu"

local rows = core.op_rows()
table.sort(rows, function(a, b) return a.name < b.name end)

local function inputs(row)
  if row.inputs < 0 then return "any" end
  return tostring(row.inputs)
end

print "# Ops\n"
print "Each is a method and a function: `t:sum(2)` = `mgpu.sum(t, {axis = 2})`.\n"
print("Integer ops compute in double: exact up to 2^53. A result beyond the dtype's limits becomes the limit.\n")
print "| op | inputs | result | options | gradient |"
print "| --- | --- | --- | --- | --- |"
local in_lua = {} -- functions of mgpu with the name of an op, which take other options
for _, row in ipairs(rows) do
  if not row.hidden and methods.inner(mgpu[row.name]) ~= methods.inner(core.ops[row.name]) then
    table.insert(in_lua, "`" .. row.name .. "`")
  elseif not row.hidden then
    local options = {}
    for i, attr in ipairs(row.attrs) do options[i] = ("`%s` %s"):format(attr.name, attr.doc) end
    print(("| `%s` | %s | %s | %s | %s |"):format(row.name, inputs(row), row.doc:gsub("|", "\\|"),
      table.concat(options, "; "), row.differentiable and "yes" or "no"))
  end
end
print("\nFunctions in Lua, which `?name` explains: " .. table.concat(in_lua, ", ") .. ".")
