--- The operations that nodes of functional models can be: those of keras.ops that we can compute, by Keras's name.
--
-- A model's node is an operation and its arguments. Names and arguments are Keras's, so axes count from 0 and slices
-- are Python's; the layer Operation (layers/operation.lua), Keras's files (keras/operations.lua,
-- keras/tf_functions.lua) and the methods of symbolic tensors (methods.lua) all go through this table. It is in the
-- files of SUBJECTS, where a row says
--     Mean = { "x | axis? keepdims?", function(x, axis, keepdims) ... end }
-- the arguments, which the function gets in this order, and the function, which computes with our tensors. Those before
-- "|" are arguments of the call in Keras, those behind it options of the operation; "?": may be missing; "name:kind" if
-- the kind is not the one that arguments.lua gives to the name. shape: a rule for the output's shape, where calling
-- the function with zeros cannot tell it (layers/operation.lua). written: options that files of ours state, since
-- Keras's default has changed.
local arguments = require "mgpu.nn.operations.arguments"

local M = {}

-- The module of keras.ops that has the operations of a file.
local SUBJECTS = { { "elementwise", "numpy" }, { "reductions", "numpy" }, { "movement", "numpy" },
  { "picking", "numpy" }, { "products", "numpy" }, { "activations", "nn" }, { "convolutions", "nn" },
  { "normalizations", "nn" }, { "math", "math" }, { "core", "core" }, { "images", "image" }, { "linalg", "linalg" } }

local rows

local function load_rows()
  rows = {}
  for _, subject in ipairs(SUBJECTS) do
    for name, row in pairs(require("mgpu.nn.operations." .. subject[1])) do
      rows[name] = { name = name, module = subject[2], arguments = arguments.declare(row[1]), run = row[2],
        shape = row.shape, written = row.written }
    end
  end
end

--- find(name) -> the row {name =, module =, arguments =, run =, shape =}, or nil.
function M.find(name)
  if not rows then load_rows() end
  return rows[name]
end

--- names() -> the names of all operations, sorted.
function M.names()
  if not rows then load_rows() end
  local list = {}
  for name in pairs(rows) do list[#list + 1] = name end
  table.sort(list)
  return list
end

return M
