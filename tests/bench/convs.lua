-- Convolutions beside PyTorch's, one pass at a time: forward, the gradient of the input, the gradient of the filters.
--
--     build/mgpulua tests/bench/convs.lua [--only PART OF A NAME] [the options of turns.lua]
--
-- Most shapes have no Winograd kernel, two of them have one. ratio = PyTorch's time in its better layout / ours.
-- MGPU_ISA=avx2 limits both sides (isa.lua).

package.path = "tests/bench/?.lua;" .. package.path
local turns = require "turns"
local options = turns.options { only = "" }
local mgpu = require "mgpu"
local ops = require "mgpu.core".ops

-- Name, images {n, side, channels}, kernels, {size, stride, padding, groups}.
local rows = {
  { "1x1 64 to 256", { 16, 28, 64 }, 256, { 1, 1, 0, 1 } },
  { "1x1 256 to 64", { 16, 28, 256 }, 64, { 1, 1, 0, 1 } },
  { "1x1 stride 2", { 16, 28, 128 }, 256, { 1, 2, 0, 1 } },
  { "5x5 32 to 64", { 16, 28, 32 }, 64, { 5, 1, 2, 1 } },
  { "5x5 6 to 16", { 128, 14, 6 }, 16, { 5, 1, 0, 1 } },
  { "7x7 stride 2, 3 to 64", { 8, 112, 3 }, 64, { 7, 2, 3, 1 } },
  { "3x3 stride 2", { 16, 28, 64 }, 128, { 3, 2, 1, 1 } },
  { "3x3 1 to 32", { 128, 28, 1 }, 32, { 3, 1, 0, 1 } },
  { "3x3 3 to 32", { 64, 32, 3 }, 32, { 3, 1, 1, 1 } },
  { "3x3 8 to 16", { 32, 32, 8 }, 16, { 3, 1, 1, 1 } },
  { "3x3 16 to 16", { 32, 32, 16 }, 16, { 3, 1, 1, 1 } },
  { "3x3 depthwise 64", { 32, 28, 64 }, 64, { 3, 1, 1, 64 } },
  { "3x3 depthwise stride 2", { 32, 28, 64 }, 64, { 3, 2, 1, 64 } },
  { "3x3 in 4 groups", { 16, 28, 64 }, 64, { 3, 1, 1, 4 } },
  { "3x3 64 to 64", { 16, 28, 64 }, 64, { 3, 1, 1, 1 } },
  { "3x3 256 to 256", { 16, 14, 256 }, 256, { 3, 1, 1, 1 } },
}
local PASSES = { "forward", "input", "filters" }

-- Our step of each pass.
local function make_steps(images, kernels, geometry)
  local n, side, channels = unpack(images)
  local size, stride, padding, groups = unpack(geometry)
  local attributes = { strides = { stride, stride }, groups = groups,
    pads = { padding, padding, padding, padding } }
  local input_shape, kernel_shape = { n, side, side, channels }, { size, size, channels / groups, kernels }
  local function with(extra)
    for k, v in pairs(attributes) do extra[k] = v end
    return extra
  end
  local x, w = mgpu.randn(input_shape), mgpu.randn(kernel_shape)
  local dy = mgpu.randn(ops.conv2d(x, w, with {}):shape())
  mgpu.eval(x, w, dy)
  local passes = {
    forward = mgpu.jit(function(a, b) return ops.conv2d(a, b, with {}) end),
    input = mgpu.jit(function(a, b) return ops.conv2d_grad_input(a, b, with { input_shape = input_shape }) end),
    filters = mgpu.jit(function(a, b) return ops.conv2d_grad_weight(a, b, with { kernel_shape = kernel_shape }) end),
  }
  local operands = { forward = { x, w }, input = { dy, w }, filters = { x, dy } }
  local steps = {}
  for pass, f in pairs(passes) do
    steps[pass] = function() mgpu.eval(f(unpack(operands[pass]))):free() end
  end
  return steps
end

print(("\nconvolutions, float32, %s threads, %s times; PyTorch's better layout"):format(options.threads, options.take))
print(("  %-26s %s"):format("ours ms / torch ms / ratio:", table.concat(PASSES, ", ")))
local peer = turns.start "tests/bench/peer_torch_convs.py"
for _, row in ipairs(rows) do
  local name, images, kernels, geometry = unpack(row)
  if name:find(options.only, 1, true) then
    local steps, cells = make_steps(images, kernels, geometry), {}
    for _, pass in ipairs(PASSES) do
      turns.ask(peer, ("case %s %s %d %s"):format(pass, table.concat(images, " "), kernels,
        table.concat(geometry, " ")))
      local ours, theirs, ratio = turns.race(steps[pass], peer, { "planes", "channels_last" })
      cells[#cells + 1] = ("%8.3f %8.3f %5.2f"):format(ours, theirs, ratio)
    end
    print(("  %-24s %s%s"):format(name, table.concat(cells, "  |"), peer.cores.mark()))
    io.flush()
    collectgarbage()
  end
end
turns.stop(peer)
