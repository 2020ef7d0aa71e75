-- The op tests again, with threads and blocks of kernels in the opposite order: a result that changes shows a
-- race. They also run with the 132 multiprocessors of a large GPU instead of the fake GPU's 4, so that kernels
-- split their work into many more pieces.
local check = require "check"
local ffi = require "ffi"
ffi.cdef "int setenv(const char *name, const char *value, int overwrite);"
if os.getenv "MGPU_TEST_GPU" then
  check.skip "the order cannot be set on a real GPU; make gpu-sanitize looks for races"
end
ffi.C.setenv("MGPU_FAKE_CUDA_ORDER", "backwards", 1)
ffi.C.setenv("MGPU_FAKE_CUDA_MULTIPROCESSORS", "132", 1)
require "tests.cuda.device"

for _, name in ipairs { "ops", "generated", "conv", "matmul", "sums" } do
  dofile("tests/cuda/" .. name .. "_spec.lua")
end
