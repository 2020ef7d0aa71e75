-- The gradients of a layer norm with respect to x, gamma and beta, which the cpu device computes in one step. They are
-- compared with ref for each instruction set of this processor and several numbers of threads, each in a separate
-- process, and must not depend on the number of threads.
local check = require "check"
local test = check.test
check.needs "cpu"

-- A script that prints the cases that differ from ref, and all results of the cpu device.
local CHILD = [[
  local core = require "mgpu.core"
  local mgpu = require "mgpu"
  local function list(t) return t:to("float64"):reshape({ -1 }):totable() end
  -- {dx, dgamma, dbeta}; `moved`: gamma is computed in the step, so that dbeta may be computed before it.
  local function on(device, dtype, shape, moved)
    core.default_device(device)
    mgpu.seed(1)
    local c = shape[#shape]
    local x = mgpu.variable(mgpu.randn(shape, { dtype = dtype }))
    local gamma = mgpu.variable(mgpu.rand({ c }, { dtype = dtype }) + 0.5)
    local beta = mgpu.variable(mgpu.randn({ c }, { dtype = dtype }))
    local dy = mgpu.eval(mgpu.randn(shape, { dtype = dtype }))
    local results = { mgpu.eval(mgpu.jit(function()
      local scale = moved and gamma * core.ops.cumsum(gamma * gamma, { axis = 1 }) or gamma
      local _, grads = mgpu.value_and_grad(function()
        return (x:layer_norm(scale, beta, { epsilon = 1e-3 }) * dy):sum()
      end, { x, gamma, beta })()
      return unpack(grads)
    end)()) }
    for i, t in ipairs(results) do results[i] = list(t) end
    return results
  end
  local function compare(dtype, tolerance, shape, moved)
    local got, expected = on("cpu:0", dtype, shape, moved), on("ref:0", dtype, shape, moved)
    for i, values in ipairs(expected) do
      local largest = 1
      for _, e in ipairs(values) do largest = math.max(largest, math.abs(e)) end
      for k, e in ipairs(values) do
        if not (math.abs(got[i][k] - e) <= tolerance * largest) then
          print(("differs: %s, {%s}, gradient %d"):format(dtype, table.concat(shape, ","), i))
          break
        end
      end
      local text = {}
      for k, g in ipairs(got[i]) do text[k] = ("%.17g"):format(g) end
      print(table.concat(text, " "))
    end
  end
  for _, shape in ipairs { { 0, 4 }, { 1, 7 }, { 3, 5, 40 }, { 260, 100 }, { 300, 256 }, { 20, 2100 } } do
    compare("float32", 1e-5, shape)
    compare("float64", 1e-12, shape)
  end
  compare("float16", 2e-3, { 30, 20 })
  compare("float32", 1e-4, { 300, 64 }, true)
  print "compared"
]]

-- The standard output and error of the script.
local function run(settings)
  local script = check.path "layer_norm.lua"
  check.write(script, CHILD)
  return check.run(("%s timeout -k 5 120 %s %s 2>&1"):format(settings, check.program, script))
end

for _, isa in ipairs { "avx512", "avx2", "baseline" } do
  test("the gradients of a layer norm are right with " .. isa, function()
    local first
    for threads = 1, 3 do
      local output, status = run(("MGPU_ISA=%s MGPU_THREADS=%d"):format(isa, threads))
      if output:find("MGPU_ISA", 1, true) then check.skip("this processor lacks " .. isa) end
      check.equal(status, 0)
      check.equal(output:match "differs[^\n]*", nil)
      check.equal(output:match "(%w+)\n$", "compared")
      first = first or output
      check.equal(output == first, true)
    end
  end)
end

test("the gradients of a layer norm are one step", function()
  local output = run "MGPU_LOG=dispatch"
  check.equal(output:match "layer_norm_grad float32{300, 256}[^\n]*: (layer_norm_gradients)\n", "layer_norm_gradients")
  check.equal(output:match "layer_norm_reduce float32{300, 256}", nil)
  check.equal(output:match "layer_norm_grad float16{30, 20}[^\n]*: (layer_norm_gradients)\n", "layer_norm_gradients")
end)
