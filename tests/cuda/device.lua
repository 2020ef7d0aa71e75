-- Makes cuda:0 the default device of a test file, and returns { real = true if it is a real GPU }.
--
-- With MGPU_TEST_GPU set it is the machine's GPU. Else it is the fake GPU of tests/cuda/fake_cuda, whose
-- libraries `make fake_cuda` builds; without the CUDA headers there are none, and the file is skipped.
-- MGPU_CUDA_LIBRARIES names another folder with fake libraries.
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
  ffi.C.setenv("MGPU_CUDA_AUTOTUNE", "1", 0) -- our own kernels: timing on the fake GPU says nothing
  ffi.C.setenv("MGPU_CUDA_KEPT", "0", 0) -- freed memory goes back at once, so that use after free shows
end
core.default_device "cuda:0"
core.precision "highest" -- no TF32, which would not meet the tolerances of float32

return { real = real and true or false }
