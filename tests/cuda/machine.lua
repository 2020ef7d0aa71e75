-- A GPU and its libraries: properties, and the two rates that bound every kernel.
--
--     mgpulua tests/cuda/machine.lua FILE [SIZE]
--
-- Writes the properties that cuDNN reads of cuda:0 into FILE, as JSON: with such a file cuDNN makes plans where there
-- is no GPU (tests/cuda/h200-device-properties.json, for test_cuda_dnn_plans). Prints the bandwidth of a generated
-- kernel, counting what is read and written, and the rates of products of SIZE (8192) rows and columns of random
-- numbers.
local ffi = require "ffi"
local mgpu = require "mgpu"
local core = require "mgpu.core"

core.default_device "cuda:0"
io.stdout:setvbuf "line"
local size = tonumber(arg[2] or 8192)

ffi.cdef [[
  int cudnnBackendCreateDescriptor(int type, void **descriptor);
  int cudnnBackendSetAttribute(void *descriptor, int attribute, int type, int64_t count, const void *values);
  int cudnnBackendGetAttribute(const void *descriptor, int attribute, int type, int64_t wanted, int64_t *count,
                               void *values);
  int cudnnBackendFinalize(void *descriptor);
  int cudnnBackendDestroyDescriptor(void *descriptor);
]]
-- Of cudnn_graph.h.
local DEVICEPROP_DESCRIPTOR, DEVICE_ID, JSON_REPRESENTATION, TYPE_CHAR, TYPE_INT32 = 38, 2700, 2702, 24, 23

local function call(what, status)
  if status ~= 0 then error(("%s: status %d"):format(what, status), 0) end
end

-- The JSON text that cuDNN makes of the GPU's properties.
local function properties()
  local cudnn = ffi.load "libcudnn.so.9" -- the one that the plug-in has loaded
  local made, id, count = ffi.new "void *[1]", ffi.new("int32_t[1]", 0), ffi.new "int64_t[1]"
  call("cudnnBackendCreateDescriptor", cudnn.cudnnBackendCreateDescriptor(DEVICEPROP_DESCRIPTOR, made))
  call("cudnnBackendSetAttribute", cudnn.cudnnBackendSetAttribute(made[0], DEVICE_ID, TYPE_INT32, 1, id))
  call("cudnnBackendFinalize", cudnn.cudnnBackendFinalize(made[0]))
  local text = ffi.new "char[16384]"
  call("cudnnBackendGetAttribute", cudnn.cudnnBackendGetAttribute(made[0], JSON_REPRESENTATION, TYPE_CHAR, 16384, count,
    text))
  cudnn.cudnnBackendDestroyDescriptor(made[0])
  return ffi.string(text)
end

-- Seconds of a call of fn, the best of five runs of `n`; fn returns a tensor, of which one number is read.
local function seconds(n, fn)
  local best = math.huge
  for _ = 1, 5 do
    local start, last = core.clock(), nil
    for _ = 1, n do
      last = fn()
      mgpu.eval(last)
    end
    last:reshape({ -1 }):slice({ { 1, 1 } }):item()
    best = math.min(best, (core.clock() - start) / n)
  end
  return best
end

local failed = 0
local function attempt(what, fn)
  local ok, result = pcall(fn)
  if ok then
    print(("= %s: %s\n1 passed, 0 failed"):format(what, result))
  else
    failed = failed + 1
    print(("FAIL %s: %s\n0 passed, 1 failed"):format(what, result))
  end
end

attempt("a convolution", function()
  local x, w = mgpu.rand { 8, 16, 16, 64 }, mgpu.rand { 3, 3, 64, 64 }
  return ("its largest number is %.4g"):format(core.ops.conv2d(x, w):max():item())
end)

attempt("properties", function()
  local text = properties()
  local file = assert(io.open(arg[1], "w"))
  file:write(text)
  file:close()
  return text
end)

attempt("a generated kernel that reads a tensor and writes another", function()
  local x = mgpu.rand { 16 * size, size } -- far more than a cache holds
  mgpu.eval(x)
  return ("%.0f GB/s"):format(128 * size ^ 2 / seconds(10, function() return -x end) / 1e9)
end)

local PRODUCTS = { { "float32", "fast" }, { "float32", "highest" }, { "float16", "fast" }, { "bfloat16", "fast" } }
for _, row in ipairs(PRODUCTS) do
  attempt(("products of %s, precision %s"):format(unpack(row)), function()
    core.precision(row[2])
    local a = (mgpu.rand { size, size } - 0.5):to(row[1])
    mgpu.eval(a)
    return ("%.1f TFLOP/s"):format(2 * size ^ 3 / seconds(5, function() return core.ops.matmul(a, a) end) / 1e12)
  end)
end
os.exit(failed == 0 and 0 or 1, true)
