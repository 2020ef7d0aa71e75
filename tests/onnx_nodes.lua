-- ONNX's own tests of single ops: runs those of a folder that golden/make_onnx_nodes.py has written.
--
--     build/mgpulua tests/onnx_nodes.lua /tmp/nodes           a line for each test that does not pass, then the numbers
--     build/mgpulua tests/onnx_nodes.lua /tmp/nodes relu      only tests whose names contain "relu", with all lines
-- A test passes, differs, is refused (the error says what is not supported), or has no tensors: inputs or outputs of
-- types that tensors here do not have. An input that the op needs as a number, such as the axes of ReduceSum, is given
-- as a constant, as real models have it.
local core = require "mgpu.core"
local check = require "mgpu.nn.onnx.check"
local error_line = require "mgpu.error_line"
local model_file = require "mgpu.nn.onnx.model_file"
local mgpu = require "mgpu"
local run = require "mgpu.nn.onnx.run"
local values = require "mgpu.nn.onnx.values"

local M = {}

-- ONNX's own runner allows 1e-3 of a number and 1e-7; the latter is below the rounding of sums in float32.
local RELATIVE, ABSOLUTE = 1e-3, 1e-5
local HALF = 2e-3 -- float16 has 11 bits

-- Why the tensors differ, or nil.
local function difference(got, wanted)
  local a, b = table.concat(got:shape(), ", "), table.concat(wanted:shape(), ", ")
  if a ~= b then return ("shape {%s}, expected {%s}"):format(a, b) end
  if got:dtype() ~= wanted:dtype() then return ("%s, expected %s"):format(got:dtype(), wanted:dtype()) end
  if got:count() == 0 then return nil end
  local relative, absolute = RELATIVE, ABSOLUTE
  if got:dtype() == "float16" then relative, absolute = HALF, HALF end
  local x, y = got:to "float64":flatten():totable(), wanted:to "float64":flatten():totable()
  for i, p in ipairs(x) do
    local q = y[i]
    local same = p == q or p ~= p and q ~= q or math.abs(p - q) <= relative * math.abs(q) + absolute
    if not same then return ("element %d is %.9g, expected %.9g"):format(i, p, q) end
  end
end

-- The parts of a run: inputs, weights and constants of the graph by name.
local function parts_of(graph, tensors, read, data)
  local given = { inputs = {}, weights = {}, constants = {}, device = mgpu.devices()[1] }
  for _, input in ipairs(graph.inputs) do given.inputs[input.name] = values.plain(data["in/" .. input.name]) end
  for part, list in pairs { weights = graph.weights, constants = graph.constants } do
    for _, entry in ipairs(list) do
      local own = tensors[entry.name]
      local t = read[own.entry] or core.tensor(own.values, { dtype = own.dtype }):reshape { shape = entry.shape }
      given[part][entry.name] = part == "weights" and values.plain(t) or core.place(t, "cpu:0")
    end
  end
  return given
end

-- The outputs; where an op needs the numbers of an input, integers and single numbers become constants.
local function outputs_of(checked, given)
  local ok, outputs = pcall(run.run, checked, given)
  if ok or not tostring(outputs):find("must be a constant", 1, true) then return ok, outputs end
  for name, v in pairs(given.inputs) do
    if not v:dtype():find "float" or v:count() <= 8 then
      given.constants[name], given.inputs[name] = core.place(v:tensor(), "cpu:0"), nil
    end
  end
  return pcall(run.run, checked, given)
end

local function load_graph(path, data)
  local file = core.onnx_open(path)
  local graph, tensors = model_file.graph(path, core.json_decode(file:notes().model), file:tensors())
  local read = file:read()
  file:close()
  model_file.fill(path, graph, tensors, read)
  for _, input in ipairs(graph.inputs) do -- models have a batch, which these tests need not
    if not input.shape or #input.shape == 0 then input.shape = { -1 } end
  end
  return check.check(graph), parts_of(graph, tensors, read, data)
end

--- run(path, data) -> "passes", "differs", "refused" or "fails", and why. data: "in/X" or "out/Y" -> tensor.
function M.run(path, data)
  local ok, checked, given = pcall(load_graph, path, data)
  local outputs = checked
  if ok then ok, outputs = outputs_of(checked, given) end
  if not ok then
    local refused = core.error_code() == "unsupported"
    return refused and "refused" or "fails", error_line(tostring(outputs))
  end
  for i, name in ipairs(checked.outputs) do
    local why = difference(outputs[i], data["out/" .. name])
    if why then return "differs", ("%s: %s"):format(name, why) end
  end
  return "passes"
end

--- each(folder, scratch, fn): calls fn(name, how, why) for each test of the folder; how: as run's, or "no tensors".
-- ARGS scratch: the path of a file to be written.
function M.each(folder, scratch, fn)
  local archive, all, data = core.zip_read(folder .. "/nodes.zip"), mgpu.load(folder .. "/nodes.npz"), {}
  for key, t in pairs(all) do
    local name, rest = key:match "^([^/]+)/(.*)$"
    data[name] = data[name] or {}
    data[name][rest] = t
  end
  local names = archive:names()
  table.sort(names)
  for _, entry in ipairs(names) do
    local name = entry:match "^(.*)%.onnx$"
    if data[name] then
      local file = assert(io.open(scratch, "wb"))
      file:write(archive:read(entry))
      file:close()
      fn(name, M.run(scratch, data[name]))
    else
      fn(name, "no tensors")
    end
  end
end

if not (...) or (...) ~= "onnx_nodes" then
  local folder, part, counts = arg[1], arg[2], {}
  local scratch = os.tmpname()
  M.each(folder, scratch, function(name, how, why)
    counts[how] = (counts[how] or 0) + 1
    local shown = part and name:find(part, 1, true) or not part and how ~= "passes" and how ~= "no tensors"
    if shown then print(("%-60s %-8s %s"):format(name, how, why or "")) end
  end)
  os.remove(scratch)
  for how, n in pairs(counts) do print(("%-12s %d"):format(how, n)) end
end

return M
