-- Makes cuda:0 the default device of a test file: a real GPU if MGPU_TEST_GPU is set, else the
-- fake CUDA (`make fake_cuda`), whose GPU is the host; MGPU_CUDA_LIBRARIES: other
-- such.
local ffi = require "ffi"
local check = require "check"
local core = require "mgpu.core"

ffi.cdef "int setenv(const char *name, const char *value, int overwrite);"

local real = os.getenv "MGPU_TEST_GPU"
if not real then
  local folder = "build/fake_cuda"
  local there = io.open(folder .. "/libcuda.so.1")
  if not there then check.skip "no fake CUDA: its build wants the CUDA headers" end
  there:close()
  ffi.C.setenv("MGPU_CUDA_LIBRARIES", folder, 0)
  ffi.C.setenv("MGPU_CACHE", "build/fake_cuda/cache", 0)
  ffi.C.setenv("MGPU_CUDA_AUTOTUNE", "1", 0) -- kernels of our own: which is fastest here says nothing
  ffi.C.setenv("MGPU_CUDA_KEPT", "0", 0) -- so that the fake CUDA sees what is used after it is freed
end
core.default_device "cuda:0"
core.precision "highest" -- TF32 would not meet the tolerances of float32

return { real = real and true or false }
