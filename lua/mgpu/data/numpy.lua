--- Files of NumPy as datasets of rows: .npy and .npz.
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local Dataset = require "mgpu.data.dataset"
local list_of_paths = require "mgpu.data.paths"

local M = {}

-- ---- npy ----------------------------------------------------------------------------------------

--- npy(paths) -> a dataset of the rows of an array of NumPy in a .npy file, or of several, given as a list: as {x, y}.
--
--     local ds = mgpu.data.npy { "x_train.npy", "y_train.npy" }
-- A row is one entry of the first axis of each array, of the array's dtype: float64, float32, float16, int64, int32,
-- uint8 or bool. Other integers are widened: int8, int16 and uint16 to int32, uint32 and uint64 to int64. Rows are read
-- from the files when they are wanted, so that arrays may be larger than memory; an array in Fortran's order is read
-- into memory. The files must not change meanwhile.
-- Errors: a damaged file; another dtype; a uint64 above 2^63 - 1; arrays with different numbers of rows, or none; more
-- than 1024 files; when a row is read, a file that has changed.
-- Example:
--     local head = "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2), }"
--     local file = io.open("x.npy", "wb") -- a file such as numpy.save writes
--     file:write("\147NUMPY\1\0", string.char(#head, 0), head, "\1\2\3\4\5\6")
--     file:close()
--     for x in mgpu.data.npy("x.npy"):batch(3):iter() do print(x) end
--     --> tensor {3, 2} uint8 cpu:0
--     --> {{1, 2},
--     -->  {3, 4},
--     -->  {5, 6}}
function M.npy(given, ...)
  checks.one_argument("npy", "a path, or one list of paths", ...)
  local files, names = list_of_paths("npy", given), {}
  for i = 1, #files do names[i] = false end
  return Dataset.of_source(core.numpy_source("npy", files, names))
end

-- ---- npz ----------------------------------------------------------------------------------------

local function fail(message, ...) core.fail("usage", "npz: " .. message:format(...)) end

-- The names of the arrays in the file.
local function names_in(path)
  local ok, zip = pcall(core.zip_read, path)
  if not ok then checks.forward("npz", zip) end
  local names = {}
  for i, name in ipairs(zip:names()) do names[i] = name:gsub("%.npy$", "") end
  zip:close()
  return names
end

local function check_names(path, given)
  if given == nil then
    local names = names_in(path)
    if #names == 1 then return names end
    fail("%s holds %d arrays: give the names of those wanted, as in {%q, ...}; there are: %s", path, #names,
      names[1] or "x", table.concat(names, ", "))
  end
  local names = type(given) == "table" and given or { given }
  local fault = core.array_fault(names)
  if fault or #names == 0 then fail("the names of the arrays: %s", fault or "the list is empty") end
  for i, name in ipairs(names) do
    if type(name) ~= "string" then fail("name %d is a %s, not the name of an array", i, type(name)) end
  end
  return names
end

--- npz(path, names) -> a dataset of the rows of arrays of NumPy in a .npz file.
--
--     local ds = mgpu.data.npz("mnist.npz", { "x_train", "y_train" }):batch(32)
-- names: an array's name or a list of them, the fields of a row; nil if the file has one array. Dtypes and errors
-- are as for npy. Rows of an array that was saved by numpy.savez are read from the file when they are wanted. An array
-- that was saved by numpy.savez_compressed, or in Fortran's order, is read into memory.
-- Further errors: no array of that name; the message lists the names that there are.
-- Example:
--     local model = mgpu.Sequential { mgpu.layers.Dense { 2, kernel_initializer = "ones", input_shape = { 3 } } }
--     model:save_weights "weights.npz" -- a file such as numpy.savez writes
--     for x in mgpu.data.npz("weights.npz", "dense/kernel"):batch(3):iter() do print(x) end
--     --> tensor {3, 2} float32 cpu:0
--     --> {{1, 1},
--     -->  {1, 1},
--     -->  {1, 1}}
function M.npz(path, given, ...)
  checks.one_argument("npz", "the names of the arrays as one list, as in {\"x\", \"y\"}", ...)
  if type(path) ~= "string" or path == "" then
    fail("expected the path of a file, got %s", path == "" and "an empty one" or checks.kind(path))
  end
  local names, paths = check_names(path, given), {}
  for i = 1, #names do paths[i] = path end
  return Dataset.of_source(core.numpy_source("npz", paths, names))
end

return M
