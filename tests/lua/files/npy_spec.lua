-- NumPy's files as stores: golden/npy was written by NumPy (golden/make_npy.py).

local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"

local test = check.test

local function numpy(name) return "tests/golden/npy/" .. name end

-- The array of a .npy file.
local function load_array(name) return (core.store_load(numpy(name))).arr_0 end

local ROWS = { { 0, 1, 2 }, { 3, 4, 5 } }
local DTYPES = { "float64", "float32", "float16", "int64", "int32", "uint8" }

test("arrays of every dtype are read, and written as NumPy does, byte for byte", function()
  local path = check.path "array.npy"
  for _, dtype in ipairs(DTYPES) do
    local t = load_array(dtype .. ".npy")
    check.equal(t:dtype(), dtype)
    check.equal(t:totable(), ROWS)
    core.store_save(path, { any_name = t })
    check.truthy(check.read(path) == check.read(numpy(dtype .. ".npy")), dtype .. " as NumPy writes it")
  end
  local t = load_array "bool.npy"
  check.equal(t:dtype(), "bool")
  check.equal(t:to("int32"):totable(), { { 0, 1, 0 }, { 1, 0, 1 } })
  for _, name in ipairs { "scalar.npy", "vector.npy", "empty.npy" } do
    core.store_save(path, { any_name = load_array(name) })
    check.truthy(check.read(path) == check.read(numpy(name)), name .. " as NumPy writes it")
  end
end)

test("versions 2 and 3, Fortran's order and the other byte order are read", function()
  check.equal(load_array "version2.npy", ROWS)
  check.equal(load_array "version3.npy", ROWS)
  check.equal(load_array "big_endian.npy", ROWS)
  local t = load_array "fortran.npy"
  check.equal(t:shape(), { 2, 3, 4 })
  check.equal(t:reshape { 24 }, mgpu.arange(24):totable())
end)

test("npz files are read, stored and deflated, and written", function()
  local stored = core.store_load(numpy "stored.npz")
  check.equal(stored.a, ROWS)
  check.equal(stored["dense/kernel"]:dtype(), "int64")
  local deflated = core.store_load(numpy "deflated.npz")
  check.equal(deflated.a, ROWS)
  check.equal(deflated.b:shape(), { 1000 })
  local path = check.path "out.npz"
  core.store_save(path, { ["x/y"] = mgpu.tensor(ROWS), z = mgpu.ones({}, { dtype = "bool" }),
    empty = mgpu.zeros { 0, 3 } })
  local again = core.store_load(path)
  check.equal(again["x/y"], ROWS)
  check.equal(again.z:shape(), {})
  check.equal(again.empty:shape(), { 0, 3 })
end)

test("what NumPy's files cannot hold, and what we cannot read, is refused by name", function()
  local one = mgpu.ones { 2 }
  check.raises(function() core.store_save(check.path "a.npy", { w = one:to "bfloat16" }) end,
    'NumPy has no bfloat16, the dtype of "w"', "unsupported")
  check.raises(function() core.store_save(check.path "a.npz", { w = one:to "bfloat16" }) end, "bfloat16", "unsupported")
  check.raises(function() core.store_save(check.path "a.npy", { a = one, b = one }) end, "one array", "usage")
  check.raises(function() core.store_save(check.path "a.npz", { a = one }, { key = "text" }) end, "metadata", "usage")
  check.raises(function() load_array "structured.npy" end, "structured", "unsupported")
  local path = check.path "text.npz"
  core.zip_write(path, { { name = "readme.txt", bytes = "hello" } })
  check.raises(function() core.store_load(path) end, 'it holds "readme.txt", which is not an array', "data")
end)

test("truncated and changed headers are refused", function()
  local bytes, path = check.read(numpy "float32.npy"), check.path "bad.npy"
  for n = 6, #bytes - 1 do
    check.write(path, bytes:sub(1, n))
    check.raises(function() core.store_load(path) end, "bad.npy", "data")
  end
  local function refused(from, to, expected, code)
    local changed = bytes:gsub(from, to)
    check.truthy(changed ~= bytes, from)
    check.write(path, changed)
    check.raises(function() core.store_load(path) end, expected, code or "data")
  end
  refused("%(2, 3%)", "(3, 3)", "of shape {3, 3} needs 36 bytes, but has 24")
  refused("%(2, 3%)", "(2  3)", "is damaged")
  refused("%(2, 3%)", "(-2, )", "is damaged")
  refused("shape", "shap ", "is damaged")
  refused("False", "Falsy", "is damaged")
  refused("<f4", "|V2", "bfloat16", "unsupported")
  refused("NUMPY\1", "NUMPY\4", "has version 4.0", "unsupported")
end)

test("weights are saved to and loaded from npz files", function()
  local function network()
    return mgpu.Sequential { mgpu.layers.Input { 4 }, mgpu.layers.Dense { 3, name = "a" } }
  end
  local path, first, second, x = check.path "weights.npz", network(), network(), mgpu.rand { 2, 4 }
  first:save_weights(path)
  second:load_weights(path)
  check.equal(second(x), first(x):totable())
  check.equal(core.store_load(path)["a/kernel"]:shape(), { 4, 3 })
  check.raises(function() first:save(path) end, ".npz files are not supported here: use one of .safetensors", "usage")
  core.store_save(path, { ["a/kernel"] = mgpu.ones { 4, 3 } })
  check.raises(function() second:load_weights(path) end, "lacks the weights a/bias", "data")
end)
