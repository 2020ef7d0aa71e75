-- Error texts of the binding (runtime/bind) that no other spec brings about: calls of mgpu.core, and of what is built
-- on it with values that the Lua side passes on.
local cases = require "error_cases"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local function numbers(n)
  local list = {}
  for i = 1, n do list[i] = i end
  return list
end

local function many(n)
  local list = {}
  for i = 1, n do list[i] = mgpu.tensor(i) end
  return list
end

cases {
  { "an empty path", function() core.file_exists "" end, "file_exists: the path is empty" },
  { "a path with a zero byte", function() core.file_exists "a\0b" end,
    'file_exists: the path "a..." contains a zero byte' },
  { "more tensors than an op takes", function() core.ops.concat(unpack(many(256))) end,
    "concat: at most 255 tensors can be given, got 256" },
  { "an array of more tensors than an op takes", function() core.ops.concat(many(256)) end,
    "concat: the array must hold at most 255 tensors, got 256" },
  { "a step on more devices than can share it", function()
    local names = {}
    for i = 1, 65 do names[i] = "cpu:0" end
    core.jit(function(x) return x end, { devices = names })
  end, "mgpu.jit: at most 64 devices can share a step, got 65" },
  { "a function of too much", function() mgpu.jit(function(list) return list[1] end)(many(600)) end,
    "mgpu.jit: the arguments are too many or too long: put tensors, not long strings or tables of numbers" },
  { "a saved tensor whose name has a zero byte", function()
    core.store_save(check.path "a.safetensors", { ["a\0b"] = mgpu.ones { 2 } })
  end, "store_save: the keys of the tensors must be strings without zero bytes" },
  { "a saved tensor without a name", function() core.store_save(check.path "a.safetensors", { mgpu.ones { 2 } }) end,
    "store_save: the keys of the tensors must be strings without zero bytes" },
  { "a saved text with a zero byte", function()
    core.store_save(check.path "a.safetensors", { a = mgpu.ones { 2 } }, { note = "a\0b" })
  end, 'store_save: metadata "note" must be text, got a string with zero bytes' },
  { "a file format that is not there", function()
    core.store_save(check.path "a.safetensors", { a = mgpu.ones { 2 } }, nil, "elf")
  end, 'a.safetensors: there is no format "elf"' },
  { "a file with too long a name", function() core.write_file(check.path(("x"):rep(300)), "text") end,
    "cannot write .*: File name too long", code = "io" },
  { "an HDF5 file with another ending", function()
    local path = check.path "model.bin"
    check.write(path, "\137HDF\r\n\26\n" .. ("\0"):rep(100))
    core.store_open(path)
  end, "model.bin is an HDF5 file: give its name the ending .h5", code = "unsupported" },
  { "a list with names as JSON", function() core.json_encode { 1, 2, a = 3 } end,
    "json_encode: a table mixes positions with names, or has holes" },
  { "a text that is not UTF-8 as JSON", function() core.json_encode { a = "\255" } end,
    'json_encode: the string "\255" is not UTF-8 text' },
  { "a key that is not UTF-8 as JSON", function() core.json_encode { ["\255"] = 1 } end,
    'json_encode: the key "\255" is not UTF-8 text' },
  { "a key with a zero byte as JSON", function() core.json_encode { ["a\0b"] = 1 } end,
    "json_encode: a key contains a zero byte" },
  { "infinity as JSON", function() core.json_encode { a = math.huge } end,
    "json_encode: inf cannot be written as JSON" },
  { "a function as JSON", function() core.json_encode { a = print } end,
    "json_encode: a function cannot be written as JSON" },
  { "a table that contains itself as JSON", function()
    local t = {}
    t.t = t
    core.json_encode(t)
  end, "does one contain itself?" },
  { "a stack of nothing", function() core.stack {} end, "stack: expected tensors, got none" },
  { "a stack of numbers", function() core.stack { 1 } end, "stack: entry 1 is a number, not a tensor" },
  { "the rows of one number", function() core.unstack(mgpu.tensor(1)) end,
    "unstack: expected a tensor with rows, got a single number" },
  { "the rows of no tensor", function() core.unstack(1) end, "unstack: expected a tensor with rows, got number" },
  { "gradients for no list", function() mgpu.value_and_grad(function() end, 1) end,
    "value_and_grad: expected an array of variables, got number" },
  { "an empty list of devices", function() core.set_devices {} end, "set_devices: the list is empty" },
  -- what lua/mgpu/data/augment_options.lua refuses before
  { "a number of an augmentation that is not finite", function() core.augment { cval = 0 / 0 } end,
    "augment: cval must be finite, got %-?nan" },
  { "a seed below 0", function() core.augment { seed = -1 } end,
    "augment: seed must be a whole number from 0 to 9007199254740992, got -1" },
  { "a range of three numbers", function() core.augment { rotation = { 1, 2, 3 } } end,
    "augment: rotation has 3 numbers, at most 2 are possible" },
  { "a range that is too far", function() core.augment { zoom_rows = { 1, 1e13 } } end,
    "augment: zoom_rows must be from -1e+12 to 1e+12, got 1e+13" },
  { "an image that is too large", function() core.augment { resize = { 70000, 1 } } end,
    "augment: resize must be at most 65500, got 70000" },
  { "a shift without choices", function() core.augment { width_shift_kind = "choice" } end,
    "augment: width_shift has no numbers" },
  { "a number for each of too many channels", function() core.augment { mean = numbers(2 ^ 20 + 1) } end,
    "augment: mean has too many numbers" },
  { "a whitening that is no square", function() core.augment { whitening = mgpu.ones { 2, 3 } } end,
    "augment: the whitening must be a float32 matrix {n, n}, got float32 {2, 3}" },
  { "a turned image by areas", function() core.augment { interpolation = "area" } end,
    "augment: interpolation must be bilinear or nearest" },
  { "the choices of no transform", function() core.augment_choose(1, 0, 0, 4, 4) end,
    "augment_choose: expected a transform, got a number" },
  { "the eigenvectors of no square", function() core.eigen_symmetric(mgpu.ones { 2, 3 }) end,
    "eigen_symmetric: expected a float64 matrix {n, n} with n from 1 to %d+, got float32 {2, 3}" },
}
