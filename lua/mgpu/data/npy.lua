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
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local Dataset = require "mgpu.data.dataset"
local paths = require "mgpu.data.paths"

--- npy(paths): see the top.
return function(given, ...)
  checks.one_argument("npy", "a path, or one list of paths", ...)
  local files, names = paths("npy", given), {}
  for i = 1, #files do names[i] = false end
  return Dataset.of_source(core.numpy_source("npy", files, names))
end
