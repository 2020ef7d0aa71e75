-- mgpu.data.npz and mgpu.data.npy: the files of NumPy in tests/golden/npy, large and damaged ones.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local npy, npz = mgpu.data.npy, mgpu.data.npz
local FOLDER = "tests/golden/npy/"

-- All rows at once; others are read in another order before, so that each is read at its place.
local function whole(ds)
  local values = { ds:batch(ds:length()):iter()() }
  local again = { ds:shuffle(1000, 5):batch(2):iter()() }
  check.equal(again[1]:shape()[1], math.min(2, ds:length()))
  return unpack(values)
end

test("rows of .npy files are the rows of the array, in every dtype", function()
  for _, dtype in ipairs { "float64", "float32", "float16", "int64", "int32", "uint8", "bool" } do
    local x = whole(npy(FOLDER .. dtype .. ".npy"))
    check.equal({ x:dtype(), x:totable() }, { dtype, core.store_load(FOLDER .. dtype .. ".npy").arr_0:totable() })
  end
  for _, name in ipairs { "vector", "fortran", "big_endian", "version2", "version3" } do
    local x = whole(npy(FOLDER .. name .. ".npy"))
    check.equal(x, core.store_load(FOLDER .. name .. ".npy").arr_0, name)
  end
  local x, y = whole(npy { FOLDER .. "float32.npy", FOLDER .. "fortran.npy" })
  check.equal({ x:shape(), y:shape() }, { { 2, 3 }, { 2, 3, 4 } })
end)

test("rows of .npz files, stored and compressed", function()
  for _, name in ipairs { "a", "dense/kernel" } do
    check.equal(whole(npz(FOLDER .. "stored.npz", name)), core.store_load(FOLDER .. "stored.npz")[name])
  end
  local a, kernel = whole(npz(FOLDER .. "stored.npz", { "a", "dense/kernel" }))
  check.equal({ a:dtype(), kernel:dtype() }, { "float32", "int64" })
  local deflated = core.store_load(FOLDER .. "deflated.npz")
  check.equal(whole(npz(FOLDER .. "deflated.npz", { "a" })), deflated.a)
  check.equal(whole(npz(FOLDER .. "deflated.npz", "b")), deflated.b)
end)

test("rows are read from the file, by several threads", function()
  local path, n = check.path "large.npz", 3000
  local x = mgpu.arange(n * 50):reshape { n, 50 }
  core.store_save(path, { x = x, y = mgpu.arange(n):to "int32" }, {})
  local seen = {}
  for a, b in npz(path, { "x", "y" }):shuffle(n, 2):batch(100):prefetch(2, { threads = 4 }):iter() do
    check.equal(a:slice { {}, 1 }, (b:to "float32" * 50))
    for _, row in ipairs(b:totable()) do seen[row] = true end
  end
  for row = 0, n - 1 do check.truthy(seen[row]) end
end)

test("a file that becomes shorter is an error, not a signal", function()
  local path = check.path "x.npy"
  local bytes = check.read(FOLDER .. "float64.npy")
  check.write(path, bytes)
  local ds = npy(path)
  os.execute(("truncate -s %d '%s'"):format(#bytes - 8, path)) -- the same file, shortened in place
  check.raises(ds:skip(1):iter(), "npy: .*x%.npy ends within row 1: it became shorter", "io")
  check.raises(ds:iter(), "npy: .*x%.npy has changed since the data set was opened", "io")
end)

test("a file that is written again in place is an error", function()
  local path = check.path "x.npy"
  check.write(path, check.read(FOLDER .. "float64.npy"))
  local it = npy(path):iter()
  it()
  core.sleep(0.03) -- readers look at a file once in a tick of the system's clock
  check.write(path, check.read(FOLDER .. "float64.npy"))
  os.execute(("touch -d '1 minute' '%s'"):format(path)) -- file systems count time in steps of milliseconds
  check.raises(it, "npy: .*x%.npy has changed since the data set was opened", "io")
end)

test("damaged files and other dtypes are refused", function()
  local path = check.path "x.npy"
  local bytes = check.read(FOLDER .. "float32.npy")
  for n = 0, #bytes - 1, 7 do
    check.write(path, bytes:sub(1, n))
    check.raises(function() npy(path) end, "x%.npy", "data")
  end
  check.write(path, bytes .. "x")
  check.raises(function() npy(path) end, "npy: .*needs 24 bytes, but has 25", "data")
  check.raises(function() npy "tests/golden/arrays/complex64.npy" end,
    "npy: .*has dtype \"<c8\" %(complex numbers: save", "unsupported")
  local bool = check.read(FOLDER .. "bool.npy")
  check.write(path, bool:sub(1, -2) .. "\2")
  local it = npy(path):iter()
  it()
  check.raises(it, "npy: .*byte 2 of row 1 is 2, which is not a boolean", "data")
  local zip = check.path "x.npz"
  local stored = check.read(FOLDER .. "deflated.npz")
  check.write(zip, stored:sub(1, 80) .. "xxxx" .. stored:sub(85))
  check.raises(function() npz(zip, "a") end, "npz: .*x%.npz", "data")
end)

test("wrong arrays and names are refused", function()
  check.raises(function() npz(FOLDER .. "stored.npz") end,
    'npz: .*stored%.npz holds 2 arrays: give the names of those wanted, as in {"a", .*}; there are: a, dense/kernel',
    "usage")
  check.raises(function() npz(FOLDER .. "stored.npz", { "x" }) end,
    'npz: .*: there is no array "x"; there are: a, dense/kernel', "usage")
  check.raises(function() npz(FOLDER .. "deflated.npz", { "a", "b" }) end,
    'array "b" has 1000 rows, the first array has 2', "usage")
  check.raises(function() npz(FOLDER .. "stored.npz", { 1 }) end, "npz: name 1 is a number", "usage")
  check.raises(function() npz(FOLDER .. "stored.npz", {}) end, "the list is empty", "usage")
  check.raises(function() npz(FOLDER .. "stored.npz", "a", "dense/kernel") end, "as one list, .*, got 2 arguments",
    "usage")
  check.raises(function() npy(FOLDER .. "float32.npy", FOLDER .. "float32.npy") end,
    "npy: expected a path, or one list of paths, got 2 arguments", "usage")
  check.raises(function() npz { "x.npz" } end, "npz: expected the path of a file, got a table", "usage")
  check.raises(function() npz("/nowhere/x.npz", "x") end, "npz: cannot open /nowhere/x%.npz", "io")
  check.raises(function() npz(FOLDER .. "float32.npy", "x") end, "float32%.npy", "data")
  check.raises(function() npy(FOLDER .. "scalar.npy") end, "of shape {} has no rows", "usage")
  check.raises(function() npy(FOLDER .. "empty.npy") end, "of shape {0, 3} has no rows", "usage")
  check.raises(function() npy {} end, "npy: a path, or a list of paths, is needed", "usage")
end)

test("fit trains on arrays of a .npz file", function()
  mgpu.seed(1)
  local path = check.path "fit.npz"
  local x = mgpu.rand { 64, 3 }
  core.store_save(path, { x = x, y = (x:sum { axis = 2 } * 2):reshape { 64, 1 } }, {})
  local model = mgpu.Sequential { mgpu.layers.Input { 3 }, mgpu.layers.Dense { 1 } }
  model:compile { optimizer = mgpu.optimizers.SGD { 0.2 }, loss = "mean_squared_error" }
  local h = model:fit(npz(path, { "x", "y" }):shuffle(64, 1):batch(16), { epochs = 30, verbose = 0 })
  check.truthy(h.history.loss[30] < 0.01 * h.history.loss[1])
end)
