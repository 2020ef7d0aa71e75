-- Error texts of the binding (runtime/bind) that no other spec brings about: calls of mgpu.core, and of what is built
-- on it with values that the Lua side passes on.
local cases = require "error_cases"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

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
}
