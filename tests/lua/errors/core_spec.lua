-- Error texts of the binding (runtime/bind) that no other spec brings about: calls of mgpu.core, and of what is built
-- on it with values that the Lua side passes on.
local cases = require "error_cases"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test

local function numbers(n)
  local list = {}
  for i = 1, n do list[i] = i end
  return list
end

local function lines()
  check.write(check.path "lines.txt", "a\nb\n")
  return core.text_lines_source({ check.path "lines.txt" }, 0)
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
    'json_encode: the string "\\255" is not UTF-8 text' },
  { "a key that is not UTF-8 as JSON", function() core.json_encode { ["\255"] = 1 } end,
    'json_encode: the key "\\255" is not UTF-8 text' },
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
  { "a fingerprint of a number", function() core.fingerprint(1) end,
    "fingerprint: expected a tensor, got a number" },
  { "a stack beyond its rows", function() core.stack({ mgpu.ones { 2 } }, nil, 0, 3, 3) end,
    "stack: 1 tensors from row 3 on are not in 3 rows" },
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
  { "a whitening that is not a square", function() core.augment { whitening = mgpu.ones { 2, 3 } } end,
    "augment: the whitening must be a float32 matrix {n, n}, got float32 {2, 3}" },
  { "a turned image by areas", function() core.augment { interpolation = "area" } end,
    "'augment' (invalid option 'area')" },
  { "the choices of no transform", function() core.augment_choose(1, 0, 0, 4, 4) end,
    "augment_choose: expected a transform, got a number" },
  { "the eigenvectors of no square", function() core.eigen_symmetric(mgpu.ones { 2, 3 }) end,
    "eigen_symmetric: expected a float64 matrix {n, n} with n from 1 to %d+, got float32 {2, 3}" },
  { "images of another size than the whitening's", function()
    core.transform_apply(core.augment { whitening = mgpu.ones { 4, 4 } }, mgpu.zeros { 3, 3, 1 }, 0, 0)
  end, "augment: the whitening was fitted to images of 4 values, but the image has 9", code = "data" },
  { "a number in place of a text", function() core.precision(3) end,
    "precision: argument 1 must be a string, got number" },
  { "a precision that is not there", function() core.precision "slow" end,
    'precision: unknown value "slow": give "fast" or "highest"' },
  { "a number among guarded variables", function() core.guard_variables({ 1 }, "x") end,
    "guard_variables: element 1 must be a variable" },
  { "a writer of checkpoints that is closed", function()
    local writer = core.checkpoint_writer(check.path "closed", 1)
    writer:close()
    writer:busy()
  end, "checkpoint_writer: it is closed" },
  { "a store that is closed", function()
    core.store_save(check.path "closed.safetensors", { a = mgpu.ones { 2 } })
    local file = core.store_open(check.path "closed.safetensors")
    file:close()
    file:tensors()
  end, "store: the file is closed" },
  { "half an image", function() core.digits(1.5) end,
    "digits: the number of images must be a whole number from 0 to %d+, got 1.5" },
  { "a stream of too many steps", function() core.stream(lines(), many(65), {}) end,
    "a dataset of 65 steps in a row; at most 64 are possible" },
  { "a stream of a number", function() core.stream(1, {}, {}) end, "stream: expected a source, got a number" },
  { "no datasets in a row", function() core.source_concatenate {} end,
    "concatenate: got 0 datasets; 1 to 1000 are possible" },
  { "no tables", function() core.csv_source({}, {}, print) end, "csv: the list of paths is empty" },
  { "no texts", function() core.text_lines_source({}, 0) end, "text_lines: the list of paths is empty" },
  { "a path that is a number", function() core.text_lines_source({ 1 }, 0) end,
    "text_lines: entry 1 of the list must be a string without zero bytes" },
  { "a record that is a number", function() core.tfrecord_append(check.path "a.tfrecord", 0, { 1 }) end,
    "tfrecord_append: entry 1 is not a string" },
  { "a batch of nine axes", function() core.stack({ mgpu.ones { 2 } }, numbers(9)) end,
    "batch: a shape of 9 axes, at most 8 are possible" },
  { "the rows of a tensor without values", function() core.unstack(mgpu.ones({ 2 }, { device = "null:0" })) end,
    "unstack: the tensor has no values in the host's memory" },
  { "a file of the wrong kind of pixels", function() core.image_encode(mgpu.ones { 2, 2 }, 0) end,
    "image: float32 of shape {2, 2} is not a uint8 image {rows, columns, channels} within the limits" },
  { "a device given twice to a step", function() core.jit(print, { devices = { "cpu:0", "cpu:0" } }) end,
    "mgpu.jit: the device cpu:0 is given twice" },
  { "no device among those of all ranks", function() core.world_devices(0) end,
    "world_devices: expected 1 to 64 devices, got 0" },
  { "groups of devices that differ", function()
    core.jit(print, { devices = { "cpu:0", "cpu:1", "cpu:2" }, stages = 2 })
  end, "mgpu.jit: 3 devices cannot be divided into 2 equal groups" },
  { "a step of no function", function() core.jit() end, "mgpu.jit: expected a function, got no value" },
  { "a seed that is not a whole number", function() core.seed(1.5) end,
    "seed: expected a whole number from 0 to 4294967295, got 1.5" },
  { "the order of less than nothing", function() core.permutation(-1) end,
    "permutation: expected a whole number from 0 to 2147483647, got -1" },
  { "a dtype of layers that is a whole number", function() core.autocast "int32" end,
    "autocast: int32 is not a floating point dtype" },
  { "an option between others", function() core.ops.sum(mgpu.ones { 2 }, { axis = 1, [2] = 5 }) end,
    "sum: the options have names, but one value has none: write NAME = value" },
  { "an option of an op that is a number", function() core.ops.cast(mgpu.ones { 2 }, { dtype = 3 }) end,
    'cast: option "dtype" must be the name of a dtype, got number' },
  { "a flag of an op that is a number", function() core.ops.sum(mgpu.ones { 2 }, { keepdims = 1 }) end,
    'sum: option "keepdims" must be true or false, got number' },
  { "a number of an op that is a text", function() core.ops.full { shape = { 2 }, value = "x" } end,
    'full: option "value" must be a number, got string' },
  { "a choice of an op that is a number", function()
    core.ops.image_resize(mgpu.ones { 1, 4, 4, 1 }, { size = { 2, 2 }, interpolation = 3 })
  end, 'image_resize: option "interpolation" must be a name, got number' },
  { "a dtype of augmented images that is a number", function() core.augment { dtype = 3 } end,
    "augment: the dtype must be a name, got number" },
  { "a row for files that are closed", function()
    local writer = core.tfrecord_writer({ check.path "closed.tfrecord" }, {})
    core.tfrecord_close(writer)
    core.tfrecord_write(writer)
  end, "write_tfrecord: the files are closed" },
  { "an axis for each of nine", function() core.ops.permute(mgpu.ones { 2 }, { order = numbers(9) }) end,
    'permute: option "order" has 9 entries, at most 8 are allowed' },
  { "a variable whose name is a number", function() mgpu.variable(mgpu.ones { 2 }, { name = 3 }) end,
    'variable: option "name" must be a string, got number' },
  { "an object of the user's in place of a tensor", function()
    mgpu.tensor(setmetatable({}, { __tostring = function() end }))
  end, "tensor: expected a tensor, got a table, which has no values" },
}

-- A file of the system's settings: its size is said to be 4096 bytes, and it has a few.
local SHORT_FILE = "/sys/kernel/mm/transparent_hugepage/enabled"

test("a file that has become shorter than it said is an error", function()
  check.needs(SHORT_FILE)
  check.raises(function()
    core.zip_write(check.path "short.zip", { { name = "a", file = SHORT_FILE } })
  end, SHORT_FILE .. " became shorter while it was read", "io")
  check.falsy(core.file_exists(check.path "short.zip"), "an archive")
  check.raises(function() mgpu.data.text_lines(SHORT_FILE):iter()() end,
    SHORT_FILE .. " has become shorter since the data set was opened", "io")
end)

test("checkpoints whose paths get too long are not saved, and the writer says why", function()
  local folder = check.path "deep"
  while #folder < 3800 do folder = folder .. "/" .. ("d"):rep(200) end
  folder = folder .. "/" .. ("d"):rep(4080 - #folder)
  local writer = core.checkpoint_writer(folder, 1)
  writer:start({ a = mgpu.ones { 1 } }, {})
  local result = writer:wait()
  writer:close()
  check.equal(result.saved, false)
  check.equal(result.message, "the path of the checkpoints is longer than 4096 bytes")
end)

test("a chain of forty links is too long to write a file at its end", function()
  local here = check.path "link"
  for i = 1, 40 do check.run(("ln -s %s%d %s%d"):format(here, i + 1, here, i)) end
  check.raises(function() core.write_file(here .. "1", "text") end, "link1: Too many levels of symbolic links", "io")
  check.falsy(core.file_exists(here .. "41"), "a file")
end)
