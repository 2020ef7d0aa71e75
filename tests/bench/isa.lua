-- The instruction set of a benchmark. `require "isa"` limits the peers as MGPU_ISA limits us, through the environment
-- of the processes started from here: PyTorch (its own kernels and torch.compile's), MKL, oneDNN inside PyTorch
-- and TensorFlow, and XLA. A limit that is set already is kept. TensorFlow's own kernels (Eigen) are compiled for one
-- instruction set and cannot be limited.

local ffi = require "ffi"
ffi.cdef "int setenv(const char *, const char *, int);"

-- By MGPU_ISA. ONEDNN_MAX_CPU_ISA replaced DNNL_MAX_CPU_ISA, which old versions read.
local LIMITS = {
  avx512 = { ATEN_CPU_CAPABILITY = "avx512" },
  avx2 = { ONEDNN_MAX_CPU_ISA = "AVX2", DNNL_MAX_CPU_ISA = "AVX2", ATEN_CPU_CAPABILITY = "avx2",
    MKL_ENABLE_INSTRUCTIONS = "AVX2", XLA_FLAGS = "--xla_cpu_max_isa=AVX2" },
  baseline = { ONEDNN_MAX_CPU_ISA = "SSE41", DNNL_MAX_CPU_ISA = "SSE41", ATEN_CPU_CAPABILITY = "default",
    MKL_ENABLE_INSTRUCTIONS = "SSE4_2", XLA_FLAGS = "--xla_cpu_max_isa=SSE4_2" },
}

local M = {}
local set = os.getenv "MGPU_ISA"

--- Sets a variable of the environment of this process and of those that it starts.
function M.setenv(name, value) ffi.C.setenv(name, value, 1) end

-- Sets the limits that are not set yet. RETURNS all of them as text.
local function set_limits(limits)
  local names = {}
  for name in pairs(limits) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do
    if not os.getenv(name) then M.setenv(name, limits[name]) end
    names[i] = name .. "=" .. os.getenv(name)
  end
  return table.concat(names, " ")
end

--- The limits of all contenders, as a line of a report.
M.text = "instruction set: " .. (set and ("MGPU_ISA=%s; peers: %s"):format(set, LIMITS[set] and set_limits(LIMITS[set])
  or "not limited") or "the widest of each contender")

return M
