-- Bad input: the error message names the mistake, its place and the remedy, and the session stays
-- usable. Other files test bad shapes (tests/ops), bad files (save_load_spec, tests/c), NaN and Ctrl-C
-- (fit_spec), and a lack of memory (state_spec).
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local L = mgpu.layers
local test = check.test

local function model() return mgpu.Sequential { L.Input { 4 }, L.Dense { 3, activation = "softmax" } } end

local function compiled()
  local m = model()
  m:compile { loss = "mse" }
  return m
end

local cases = {
  { "an unknown layer", function() local l = L.Densee { 3 }; return l end,
    'unknown layer "Densee" (did you mean "Dense"?)' },
  { "an unknown device", function() local t = mgpu.tensor({ 1 }, { device = "cpuu:0" }); return t end,
    'unknown device "cpuu:0" (did you mean "cpu"?)' },
  { "an unknown loss", function() model():compile { loss = "categorical_crosentropy" } end,
    'did you mean "categorical_crossentropy"?' },
  { "an unknown optimizer", function() model():compile { optimizer = "rmspropp", loss = "mse" } end,
    'did you mean "rmsprop"?' },
  { "an unknown option of a layer", function() local l = L.Dense { 3, activaton = "relu" }; return l end,
    'Dense: unknown option "activaton" (did you mean "activation"?)' },
  { "an unknown dtype", function() local t = mgpu.zeros({ 2 }, { dtype = "flaot32" }); return t end,
    'did you mean "float32"?' },
  { "an empty tensor", function() compiled():fit(mgpu.zeros { 0, 4 }, mgpu.zeros { 0, 3 }) end, "empty" },
  { "batch size 0", function()
    compiled():fit(mgpu.zeros { 4, 4 }, mgpu.zeros { 4, 3 }, { batch_size = 0 })
  end, 'option "batch_size" must be at least 1, got 0' },
  { "a sample of the wrong shape", function() compiled():fit(mgpu.zeros { 4, 5 }, mgpu.zeros { 4, 3 }) end,
    "the model takes {None, 4}" },
  { "integers where floats are needed", function()
    local t = mgpu.softmax(mgpu.zeros({ 2, 2 }, { dtype = "int32" }))
    return t
  end, "softmax" },
  { "an axis that is not a number", function()
    local t = mgpu.activations.sparsemax(mgpu.ones { 2 }, 0 / 0)
    return t
  end,
    "sparsemax: axis must be an integer, got " },
  { "a jitted function that calls itself without end", function()
    local f
    f = mgpu.jit(function(x) return f(x) + 1 end)
    f(mgpu.ones { 1 })
  end, "more than 100 calls of jitted functions inside one another" },
  { "a number in place of a device", function()
    local t = core.ops.place(mgpu.ones { 2 }, 2)
    return t
  end,
    'place: option "device" must be the name of a device, got number' },
}

for _, case in ipairs(cases) do
  test(case[1] .. " is an error at the user's line, and the session goes on", function()
    local message = check.raises(case[2], case[3], "usage")
    check.matches(message, "bad_input_spec.lua:")
    check.equal((mgpu.ones { 2 } + 1):totable(), { 2, 2 })
  end)
end

test("a file of no known format is a data error, a missing one an I/O error", function()
  local path = check.path "garbage.safetensors"
  check.write(path, "not a file of tensors at all")
  check.raises(function() mgpu.load_model(path) end, path, "data")
  check.raises(function() mgpu.load_model "/nonexistent.safetensors" end, "No such file", "io")
end)

test("metamethods that a script calls itself check their arguments", function()
  for _, x in ipairs { mgpu.variable(1), mgpu.ones { 2 }, mgpu.jit(function() end) } do
    local meta = getmetatable(x)
    for name, method in pairs(meta) do
      if type(method) == "function" then
        pcall(method)
        pcall(method, 5)
        if name ~= "__gc" then pcall(method, x) end
      end
    end
  end
  check.falsy(pcall(getmetatable(mgpu.variable(1)).__index, mgpu.variable(1)))
  check.equal(mgpu.ones { 2 }:sum():item(), 2) -- an evaluation lets go of the variables above
end)

test("the collector's functions check their arguments, too", function()
  core.json_encode { 1 } -- makes owners
  mgpu.jit(function(x) return x end)(mgpu.ones { 1 })
  for _, name in ipairs { "mgpu.owner", "mgpu.jit.results" } do
    local collect = debug.getregistry()[name].__gc
    check.falsy(pcall(collect))
    check.falsy(pcall(collect, mgpu.ones { 1 }))
  end
end)

test("a jitted function that returns a light userdata is refused", function()
  local pointer = require "mgpu.core".address(mgpu.ones { 1 })
  for _, result in ipairs { pointer, { a = pointer } } do
    check.raises(function() mgpu.jit(function() return result end)() end, "returned a userdata", "usage")
  end
end)

test("a forked process refuses to compute, because it lacks its parent's threads", function()
  local path = check.path "fork.lua"
  check.write(path, [[
    local ffi = require "ffi"
    local mgpu = require "mgpu"
    ffi.cdef "int fork(void); int waitpid(int pid, int *status, int options);"
    print(mgpu.ones { 3 }:sum():item())
    io.stdout:flush()
    local child = ffi.C.fork()
    if child == 0 then
      print(select(2, pcall(function() return mgpu.ones { 4 }:sum():item() end)))
    else
      local status = ffi.new "int[1]"
      ffi.C.waitpid(child, status, 0)
      print(status[0], mgpu.ones { 5 }:sum():item())
    end]])
  local output, status = check.run(check.program .. " " .. path)
  check.matches(output, "^3\n[^\n]*was forked after its parent had opened a device[^\n]*\n0\t5\n$")
  check.equal(status, 0)
end)
