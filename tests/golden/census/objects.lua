-- Compares the losses, metrics, optimizers and the like of Keras's tests with ours, from records of record.py: see
-- tests/README.md, "Census of Keras".
--
--     build/mgpulua tests/golden/census/objects.lua FOLDER
--
-- writes FOLDER/objects.tsv, as load.lua its results, and prints which public names of Keras are missing.
package.path = "tests/golden/census/?.lua;" .. package.path
local mgpu = require "mgpu"
local comparing = require "compare"
local values = require "kinds"

local folder = arg[1]
local TOLERANCE = 2e-5
local _, try = comparing.results(folder .. "/objects.tsv")

for _, record in ipairs(comparing.read(folder .. "/objects.json")) do
  if record.left_out == nil then
    try(record.number, record.kind, function()
      local found, wanted = values(record)
      comparing.compare(found, wanted, TOLERANCE)
    end)
  end
end

local ours = { layers = mgpu.layers, losses = mgpu.losses, metrics = mgpu.metrics, optimizers = mgpu.optimizers,
  schedules = mgpu.schedules, regularizers = mgpu.regularizers, constraints = mgpu.constraints,
  initializers = mgpu.initializers, activations = mgpu.activations, callbacks = mgpu.callbacks }
for kind, names in pairs(comparing.read(folder .. "/names.json")) do
  local missing, known, all = {}, 0, 0
  local function count(name, found)
    all, known = all + 1, known + (found and 1 or 0)
    if not found then missing[#missing + 1] = name end
  end
  if kind == "ops" then -- functions that make nodes of functional models: {name = {classes of nodes}}
    for name, nodes in pairs(names) do count(name, require "mgpu.nn.operations".find(nodes[1])) end
  else
    for _, name in ipairs(names) do count(name, (pcall(function() return ours[kind][name] or error() end))) end
  end
  table.sort(missing)
  print(("%s\t%d of %d\t%s"):format(kind, known, all, table.concat(missing, " ")))
end
