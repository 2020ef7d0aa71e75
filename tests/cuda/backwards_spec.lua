-- Kernels whose threads and blocks come in the opposite order: what then differs is a race. And on a
-- GPU as wide as the large ones, where work is cut into many more pieces than on the fake CUDA's few.
local check = require "check"
local ffi = require "ffi"
ffi.cdef "int setenv(const char *name, const char *value, int overwrite);"
if os.getenv "MGPU_TEST_GPU" then check.skip "a GPU goes by an order of its own: there racecheck looks" end
ffi.C.setenv("MGPU_FAKE_CUDA_ORDER", "backwards", 1)
ffi.C.setenv("MGPU_FAKE_CUDA_MULTIPROCESSORS", "132", 1)
require "tests.cuda.device"

for _, name in ipairs { "ops", "generated", "conv", "matmul", "sums" } do
  dofile("tests/cuda/" .. name .. "_spec.lua")
end
