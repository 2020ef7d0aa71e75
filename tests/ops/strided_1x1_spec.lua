-- The kernel gradient of a strided 1x1 convolution on the cpu device, compared with ref. One oneDNN kernel
-- computes it wrongly or never returns (uxlfoundation/oneDNN#6035), so the cpu device avoids it. The
-- instruction set and the number of threads decide which kernel oneDNN takes, and the fault does not show
-- in every process, so each combination runs in a process of its own.
local check = require "check"
local test = check.test
check.needs "cpu"

-- A script that prints the cases whose difference from ref is larger than another order of sums explains.
local CHILD = [[
  local core = require "mgpu.core"
  local mgpu = require "mgpu"
  local function on(device, dtype, channels, kernels, groups)
    core.default_device(device)
    mgpu.seed(1)
    local x = mgpu.randn({ 8, 8, 8, channels }, { dtype = dtype })
    local dy = mgpu.randn({ 8, 4, 4, kernels }, { dtype = dtype })
    return core.ops.conv2d_grad_weight(x, dy, { strides = { 2, 2 }, groups = groups,
      kernel_shape = { 1, 1, channels / groups, kernels } }):to("float64"):reshape({ -1 }):totable()
  end
  local function compare(dtype, tolerance, channels, kernels, groups)
    local got = on("cpu:0", dtype, channels, kernels, groups)
    local expected = on("ref:0", dtype, channels, kernels, groups)
    for i, e in ipairs(expected) do
      if not (math.abs(got[i] - e) <= tolerance * 20) then -- the results, sums of 128 products, are about 11
        return print(("differs: %s, %d channels, %d kernels, %d groups"):format(dtype, channels, kernels, groups))
      end
    end
  end
  for _, channels in ipairs { 1, 2, 3, 4, 7, 8, 12, 15, 16, 20 } do
    for _, kernels in ipairs { 5, 16 } do compare("float32", 1e-6, channels, kernels, 1) end
  end
  compare("float32", 1e-6, 6, 12, 2)
  compare("float32", 1e-6, 6, 6, 6)
  compare("float16", 2e-3, 3, 16, 1)
  compare("bfloat16", 1.6e-2, 3, 16, 1)
  print "compared"
]]

for _, isa in ipairs { "SSE41", "AVX2", "AVX512_CORE", "ALL" } do
  for threads = 1, 3 do
    test(("a strided 1x1 kernel gradient is right with %s and %d threads"):format(isa, threads), function()
      local script = check.path "strided_1x1.lua"
      check.write(script, CHILD)
      for _ = 1, 3 do
        local output, status = check.run(("ONEDNN_MAX_CPU_ISA=%s OMP_NUM_THREADS=%d timeout -k 5 120 %s %s")
          :format(isa, threads, check.program, script))
        check.equal({ output, status }, { "compared\n", 0 })
      end
    end)
  end
end
