-- mgpu.load and mgpu.save. golden/arrays was written by NumPy, safetensors and h5py (golden/make_arrays.py), which also
-- read files of mgpu.save there.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test

local FOLDER = "tests/golden/arrays/"
local expected = (core.store_load(FOLDER .. "expected.npz"))
local DTYPES = { "bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64" }
local WIDER = { int8 = "int32", int16 = "int32", uint16 = "int32", uint32 = "int64", uint64 = "int64" }
expected = (function() -- as tables, since the tensors would outlive the tests
  local list = {}
  for name, t in pairs(expected) do list[name] = { dtype = t:dtype(), shape = t:shape(), values = t:totable() } end
  return list
end)()

local can, problem = pcall(core.h5_read, FOLDER .. "types.h5")
local has_h5 = can or core.error_code() ~= "unsupported"
local ENDINGS = has_h5 and { "npy", "npz", "safetensors", "h5", "hdf5" } or { "npy", "npz", "safetensors" }
local function needs_h5() if not has_h5 then check.skip(problem) end end

-- Compares with the file's values. NaN equals NaN.
local function same(t, name)
  local wanted = assert(expected[name], name)
  check.equal(t:dtype(), wanted.dtype, name)
  check.equal(t:shape(), wanted.shape, name)
  local got = t:totable()
  local function compare(a, b)
    if type(b) ~= "table" then return check.truthy(a == b or a ~= a and b ~= b, name) end
    for i = 1, #b do compare(a[i], b[i]) end
  end
  compare(got, wanted.values)
end

test("integers of NumPy are widened, in every layout, and the types of the file are told", function()
  local tensors, widened = mgpu.load(FOLDER .. "stored.npz")
  local n = 0
  for name, t in pairs(tensors) do
    local dtype = name:match "^[^_]*"
    same(t, "npz/" .. name)
    check.equal({ widened[name], t:dtype() }, { dtype, WIDER[dtype] })
    n = n + 1
  end
  check.equal(n, 25) -- 5 types, each in 5 layouts
  for name, t in pairs(mgpu.load(FOLDER .. "deflated.npz")) do same(t, "npz/" .. name) end
  for name, wider in pairs(WIDER) do
    local t, stored = mgpu.load(FOLDER .. name .. ".npy")
    same(t, "npz/" .. name)
    check.equal({ stored, t:dtype() }, { name, wider })
  end
  local _, stored = mgpu.load "tests/golden/npy/float32.npy"
  check.equal(stored, nil)
end)

test("rows of arrays are widened as whole arrays are, from the file and from memory", function()
  local data = mgpu.data
  for name in pairs(WIDER) do
    for _, ds in ipairs { data.npy(FOLDER .. name .. ".npy"), data.npz(FOLDER .. "stored.npz", name),
      data.npz(FOLDER .. "stored.npz", name .. "_big"), data.npz(FOLDER .. "stored.npz", name .. "_fortran"),
      data.npz(FOLDER .. "deflated.npz", name) } do
      same(ds:batch(2):iter()(), "npz/" .. name)
    end
  end
  same(data.npy(FOLDER .. "uint16_big.npy"):batch(2):iter()(), "npz/uint16")
  local it = data.npy(FOLDER .. "too_large.npy"):iter()
  it()
  check.equal(it():totable(), 2 ^ 63) -- 2^63 - 1 as a Lua number
  check.raises(it, "npy: .*large.npy: row 2: element 0 is 9223372036854775808, which no dtype of tensors holds",
    "unsupported")
end)

test("every dtype of safetensors is read", function()
  local tensors, widened = mgpu.load(FOLDER .. "types.safetensors")
  local n = 0
  for name, t in pairs(tensors) do
    same(name == "bfloat16" and t:to "float32" or t, "types/" .. name)
    n = n + 1
  end
  check.equal(n, 15)
  check.equal(widened, { int8 = "int8", int16 = "int16", uint16 = "uint16", uint32 = "uint32", uint64 = "uint64",
    scalar = "int8", empty = "uint32" })
end)

test("float8 kinds are widened on request only", function()
  local path = FOLDER .. "float8.safetensors"
  local tensors, widened = mgpu.load(path, { widen = true })
  local n = 0
  for name, t in pairs(tensors) do
    same(t, "float8/" .. name) -- all 256 codes
    check.equal(widened[name], "float8_" .. name:sub(4):lower())
    n = n + 1
  end
  check.equal(n, 5)
  check.raises(function() mgpu.load(path) end, "has dtype F8_.*, which is widened to float32 on request only: "
    .. "mgpu.load%(path, {widen = true}%)", "unsupported")
  local file = core.store_open(path, true)
  local _, nonfinite = file:read()
  file:close()
  table.sort(nonfinite)
  check.equal(nonfinite, { "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ", "F8_E8M0" })
end)

test("integers of HDF5 are widened, and the types of the file are told", function()
  needs_h5()
  local tensors, widened = mgpu.load(FOLDER .. "types.h5")
  for name, wider in pairs(WIDER) do
    same(tensors["ints/" .. name], "npz/" .. name)
    check.equal({ widened["ints/" .. name], tensors["ints/" .. name]:dtype() }, { name, wider })
  end
  same(tensors["ints/big"], "npz/int16")
  check.equal({ tensors.scalar:item(), widened.scalar, tensors.empty:shape() }, { 65535, "uint16", { 0, 3 } })
  check.equal({ tensors.yes:totable(), tensors.yes:dtype() }, { { true, false }, "bool" })
  check.equal(widened.yes, nil)
end)

test("an integer that no dtype holds is an error that names it", function()
  check.raises(function() mgpu.load(FOLDER .. "too_large.npy") end,
    'large.npy: arr_0: element 2 is 9223372036854775808, which no dtype of tensors holds', "unsupported")
  check.raises(function() mgpu.load(FOLDER .. "too_large.safetensors") end,
    'large.safetensors: x: element 1 is 18446744073709551615, which no dtype of tensors holds', "unsupported")
  if has_h5 then
    check.raises(function() mgpu.load(FOLDER .. "too_large.h5") end,
      '"x": element 1 is 9223372036854775808, which no dtype of tensors holds', "data")
  end
end)

test("what tensors cannot hold is refused by name", function()
  local function refused(name, expected_text, code)
    check.raises(function() mgpu.load(FOLDER .. name) end, expected_text, code or "unsupported")
  end
  local COMPLEX = "complex numbers: save x.real and x.imag as two arrays"
  refused("complex64.npy", 'dtype "<c8" %(' .. COMPLEX)
  refused("complex128.npy", 'dtype "<c16" %(' .. COMPLEX)
  refused("longdouble.npy", 'dtype "<f16" %(longer floats: save x.astype%("float64"%)')
  refused("text.npy", 'dtype "<U2" %(text%)')
  refused("bytes.npy", 'dtype "|S2" %(text%)')
  refused("dates.npy", 'dtype "<M8%[D%]" %(dates: save x.astype%("int64"%)')
  refused("times.npy", 'dtype "<m8%[s%]" %(times: save x.astype%("int64"%)')
  refused("void.npy", 'dtype "<V2" %(bfloat16%?: save')
  refused("C64.safetensors", "dtype C64: complex numbers: save the real and the imaginary parts as two tensors")
  refused("F4.safetensors", "dtype F4: several elements share a byte")
  refused("F6.safetensors", "dtype F6_E2M3: several elements share a byte")
  if has_h5 then
    refused("complex.h5", '"x" has a type that tensors do not have: a compound type; save the parts of complex', "data")
    refused("text.h5", '"x" has a type that tensors do not have: text', "data")
    refused("longdouble.h5", '"x" has a type that tensors do not have: a float of a size that', "data")
    refused("lists.h5", '"x" has a type that tensors do not have: neither numbers nor booleans', "data")
    refused("colors.h5", '"x" has a type that tensors do not have: an enumeration', "data")
  end
end)

test("tensors of every dtype come back from every format", function()
  for _, dtype in ipairs(DTYPES) do
    local x = mgpu.tensor({ { 0, 1, 1 }, { 1, 0, 1 } }):to(dtype)
    for _, ending in ipairs(ENDINGS) do
      local path = check.path("x." .. ending)
      local numpy = ending:find "np"
      if dtype == "bfloat16" and numpy then
        check.raises(function() mgpu.save(path, ending == "npy" and x or { x = x }) end, "NumPy has no bfloat16",
          "unsupported")
      elseif ending == "npy" then
        for _, t in ipairs { x, x[1][2], mgpu.zeros({ 0, 3 }, { dtype = dtype }) } do
          mgpu.save(path, t)
          local again = mgpu.load(path)
          check.equal({ again:dtype(), again:shape() }, { dtype, t:shape() })
          if t:count() > 0 then check.truthy(again:eq(t):all():item()) end
        end
      else
        mgpu.save(path, { ["a/b/x"] = x, ["a/one"] = x[1][2], empty = mgpu.zeros({ 2, 0 }, { dtype = dtype }),
          v = mgpu.variable(mgpu.ones { 2 }) })
        local again, widened = mgpu.load(path)
        check.equal(widened, {})
        check.truthy(again["a/b/x"]:dtype() == dtype and again["a/b/x"]:eq(x):all():item())
        check.equal({ again["a/one"]:shape(), again.empty:shape(), again.empty:dtype() }, { {}, { 2, 0 }, dtype })
        check.equal(again.v, { 1, 1 })
      end
    end
  end
end)

test("a single tensor in a .npz file is called arr_0, and a table may be empty", function()
  local path = check.path "x.npz"
  mgpu.save(path, mgpu.ones { 2 })
  check.equal(mgpu.load(path).arr_0, { 1, 1 })
  for _, ending in ipairs(ENDINGS) do
    if ending ~= "npy" then
      path = check.path("none." .. ending)
      mgpu.save(path, {})
      check.equal(mgpu.load(path), {})
    end
  end
end)

test("contents decide the format of a file to be read", function()
  local path = check.path "x.bin"
  mgpu.save(check.path "x.npy", mgpu.ones { 2 })
  os.rename(check.path "x.npy", path)
  check.equal(mgpu.load(path), { 1, 1 })
  mgpu.save(check.path "x.safetensors", { a = mgpu.ones { 2 } })
  os.rename(check.path "x.safetensors", path)
  check.equal(mgpu.load(path).a, { 1, 1 })
  check.write(path, check.read(FOLDER .. "types.h5"))
  check.raises(function() mgpu.load(path) end, "is an HDF5 file: give its name the ending .h5", "unsupported")
end)

test("weights of a model are tensors", function()
  local model = mgpu.Sequential { mgpu.layers.Dense { 2, input_shape = { 3 } } }
  local path = check.path "w.safetensors"
  model:save_weights(path)
  check.equal(mgpu.load(path)["dense/kernel"], model:get_weights()[1]:totable())
end)

test("wrong calls are refused, and nothing is written", function()
  local one = mgpu.ones { 2 }
  local function refused(expected_text, name, tensors)
    local path = check.path("wrong_" .. name)
    check.raises(function() mgpu.save(path, tensors) end, expected_text, "usage")
    check.falsy(core.file_exists(path), name)
  end
  refused("the ending of the name must be one of .npy, .npz, .safetensors, .h5", "x.t7", one)
  refused("the ending of the name must be one of", "x", one)
  check.raises(function() mgpu.save(check.path "wrong_o.npz", { x = one }, { compress = true }) end,
    "it takes a path and tensors, and has no options; got a table more$", "usage")
  mgpu.save(check.path "right.npz", { x = one })
  check.raises(function() mgpu.save(check.path "copy.npz", mgpu.load(check.path "right.npz")) end,
    "take only its first result, as in (mgpu.load(path))", "usage")
  refused("is a file of a model: model:save%(path%) writes it", "x.keras", { x = one })
  refused("expected a tensor, or a table of tensors by name; got a nil", "x.npz")
  refused("got a table of a class: a model is saved by model:save%(path%)", "x.h5", mgpu.layers.Dense(3))
  refused("holds one tensor, without a name", "x.npy", { x = one })
  refused("give the tensor a name, as in {x = tensor}", "x.h5", one)
  refused("give the tensor a name, as in {x = tensor}", "x.safetensors", one)
  refused("the names of tensors are texts, as in {weights = x}; got the number 1", "x.npz", { one })
  refused('entry "x" must be a tensor, got a number', "x.npz", { x = 3 })
  refused('entry "x" must be a tensor, got a table %(names in groups are "group/name"%)', "x.h5", { x = { y = one } })
  refused('the name "" cannot be in the file: it is empty', "x.npz", { [""] = one })
  refused("it has a zero byte", "x.npz", { ["a\0b"] = one })
  refused("it is not UTF%-8 text", "x.npz", { ["\255"] = one })
  refused('the tensor name "__metadata__" is reserved', "x.safetensors", { __metadata__ = one })
  for _, name in ipairs { "/a", "a/", "a//b", "a/./b", "..", "a/.." } do
    refused("the parts of a name between slashes are groups, and must not be empty", "x.h5", { [name] = one })
  end
  refused('the name "a/b/c" cannot be in the file: "a" is a tensor', "x.h5", { a = one, ["a/b/c"] = one })
  check.raises(function() mgpu.save(one, "x.npy") end,
    "the path comes first, as in mgpu.save \"x.npz\"; got a userdata", "usage")
  check.raises(function() mgpu.load() end, "the path comes first, as in mgpu.load \"x.npz\"; got nothing", "usage")
  check.raises(function() mgpu.load "m.keras" end, "m.keras is a file of a model: mgpu.load_model%(path%) reads it",
    "usage")
  check.raises(function() mgpu.load("x.npz", true) end, "options are a table such as {widen = true}, got a boolean",
    "usage")
  check.raises(function() mgpu.load("x.npz", { wide = true }) end, 'unknown option "wide"', "usage")
  check.raises(function() mgpu.load(check.path "missing.npz") end, "cannot open", "io")
  check.raises(function() mgpu.save(check.path "none/x.npz", { x = one }) end, "cannot write to the folder", "io")
  check.write(check.path "x.bin", "hello")
  check.raises(function() mgpu.load(check.path "x.bin") end, "in no known file format", "data")
end)

test("a failing disk leaves the old file, or the whole new one", function()
  for _, ending in ipairs { "npy", "npz", "safetensors", has_h5 and "h5" } do
    local path, failures = check.path("x." .. ending), 0
    local x = ending == "npy" and mgpu.ones { 4 } or { x = mgpu.ones { 4 } }
    mgpu.save(path, x)
    local whole = check.read(path)
    for at = 1, 40 do
      check.write(path, "old")
      core.file_fault { at = at, error = "ENOSPC" }
      local ok = pcall(mgpu.save, path, x)
      if not core.file_fault() then break end
      local now = check.read(path)
      check.truthy(now == whole or not ok and now == "old", ending .. ": a part of a file")
      failures = failures + (ok and 0 or 1)
    end
    check.truthy(failures > 1, ending)
  end
end)

test("files of widened types that are cut anywhere are refused", function()
  local path = check.path "cut"
  for _, name in ipairs { "uint16.npy", "int8.npy", "types.safetensors", "float8.safetensors" } do
    local bytes = check.read(FOLDER .. name)
    for n = 0, #bytes - 1, #bytes > 500 and 13 or 1 do
      check.write(path, bytes:sub(1, n))
      check.raises(function() mgpu.load(path, { widen = true }) end, ".", "data")
    end
  end
end)
