--- mgpulua --doctor: what is installed, what is missing and how to get it, limits, and a short test of each part.
--
-- doctor(report) calls report(line) for each line and RETURNS whether all self-tests passed. A missing library is not a
-- failure: whatever needs it reports that when it is used.
local core = require "mgpu.core"
local program = require "mgpu.program"

-- ---- versions -------------------------------------------------------------------------------------

local function read(path)
  local file = io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  return text
end

-- Shared libraries: the pattern of the file's name; what it is for; our file that is linked with it, which knows the
-- name that it had when mgpulua was built (nil: it is opened by name); the Debian package that brings it; and how it
-- tells its version: C declarations and a function of the loaded library.
local LIBRARIES = {
  { "libdnnl%.so%.[%d.]+", "kernels of oneDNN 2 for the cpu device", "mgpu-cpu.so", "libdnnl-dev",
    "typedef struct { int major, minor, patch; } mg_dnnl_version_t; const mg_dnnl_version_t *dnnl_version(void);",
    function(c, ffi)
      local v = ffi.cast("const mg_dnnl_version_t *", c.dnnl_version())
      return ("%d.%d.%d"):format(v.major, v.minor, v.patch)
    end },
  { "libg?omp%.so%.[%d.]+", "threads of the cpu device", "mgpu-cpu.so", "libgomp1" },
  { "libz%.so%.[%d.]+", "compressed files", "libmgpu.so", "zlib1g-dev", "const char *zlibVersion(void);",
    function(c, ffi) return ffi.string(c.zlibVersion()) end },
  { "libjansson%.so%.[%d.]+", "JSON", "libmgpu.so", "libjansson-dev", "const char *jansson_version_str(void);",
    function(c, ffi) return ffi.string(c.jansson_version_str()) end },
  { "libcurl%.so%.[%d.]+", "downloads", "mgpu-fetch.so", "libcurl4-openssl-dev", "const char *curl_version(void);",
    function(c, ffi) return ffi.string(c.curl_version()):match "^libcurl/(%S+)" end },
  { "libcrypto%.so%.[%d.]+", "checksums of downloads", "mgpu-fetch.so", "libssl-dev",
    "const char *OpenSSL_version(int);",
    function(c, ffi) return ffi.string(c.OpenSSL_version(0)):match "%d[%w.]+" end },
  { "libpng%d*%.so%.[%d.]+", "PNG images", "mgpu-image.so", "libpng-dev",
    "const char *png_get_libpng_ver(const void *);",
    function(c, ffi) return ffi.string(c.png_get_libpng_ver(nil)) end },
  { "libjpeg%.so%.[%d.]+", "JPEG images", "mgpu-image.so", "libjpeg-dev" },
  { "libgif%.so%.[%d.]+", "GIF images", "mgpu-gif.so", "libgif-dev" },
  { "libwebp%.so%.[%d.]+", "WebP images", "mgpu-webp.so", "libwebp-dev", "int WebPGetDecoderVersion(void);",
    function(c)
      local v = c.WebPGetDecoderVersion()
      return ("%d.%d.%d"):format(math.floor(v / 65536), math.floor(v / 256) % 256, v % 256)
    end },
  { "libmicrohttpd%.so%.[%d.]+", "the HTTP server", "mgpu-httpd.so", "libmicrohttpd-dev",
    "const char *MHD_get_version(void);", function(c, ffi) return ffi.string(c.MHD_get_version()) end },
  { "libhdf5[%w_]*_hl%.so%.[%d.]+", "Keras's .h5 and .keras files", "mgpu-h5", "libhdf5-dev" },
  { "libreadline.so.8", "line editing of the prompt", nil, "libreadline8", "extern const char *rl_library_version;",
    function(c, ffi) return ffi.string(c.rl_library_version) end },
}

-- The folder of libmgpu, where the other built files are.
local function built_folder() return (read "/proc/self/maps" or ""):match "(/[^\n]*)/libmgpu%.so" or "." end

-- The name of the library's file in this build; nil: the build does not use it. The names of the libraries that an
-- ELF file needs are in it as C strings.
local function file_of(library)
  local pattern, _, user = unpack(library, 1, 3)
  if not user then return pattern end
  return (read(built_folder() .. "/" .. user) or ""):match("%z(" .. pattern .. ")%z")
end

-- The version that the library tells, "" if it does not; nil if it cannot be loaded.
local function version_of(file, declarations, ask)
  local has_ffi, ffi = pcall(require, "ffi")
  if not has_ffi then return nil end
  local ok, loaded = pcall(ffi.load, file)
  if not ok then return nil end
  if declarations then pcall(ffi.cdef, declarations) end
  local told, version = pcall(ask or tostring, loaded, ffi)
  return ask and told and version or ""
end

-- Libraries of NVIDIA: what they are, file, function for the version and its form (core.version_of), the version
-- as text, and what installs them.
local function dotted(big, small)
  return function(n) return ("%d.%d"):format(math.floor(n / big), math.floor(n % big / small)) end
end
local NVIDIA = {
  { "the NVIDIA driver", "libcuda.so.1", "cuDriverGetVersion", "pointer", dotted(1000, 10),
    "apt-get install nvidia-driver (580 or newer, for CUDA 13)" },
  { "NVRTC", "libnvrtc.so.13", "nvrtcVersion", "pair", dotted(1000, 1), "apt-get install cuda-nvrtc-13-0" },
  { "cuBLASLt", "libcublasLt.so.13", "cublasLtGetVersion", "result", dotted(10000, 100),
    "apt-get install libcublas-13-0" },
  { "cuDNN", "libcudnn.so.9", "cudnnGetVersion", "result", dotted(10000, 100),
    "apt-get install libcudnn9-cuda-13" },
  { "NCCL", "libnccl.so.2", "ncclGetVersion", "pointer", dotted(10000, 100), "apt-get install libnccl2" },
}

local function line(report, state, name, text) report(("%-8s %-26s %s"):format(state, name, text)) end

local function report_versions(report)
  report(("mgpulua %s, %s, %s %s"):format(core.version, jit.version, jit.os, jit.arch))
  report("Lua files and models: " .. tostring(core.root))
  report ""
  for _, library in ipairs(LIBRARIES) do
    local pattern, purpose, _, package = unpack(library, 1, 4)
    local file = file_of(library)
    local version = file and version_of(file, library[5], library[6])
    if not file then
      line(report, "left out", pattern:match "^%a+",
        ("%s: not in this build, which needs %s for it"):format(purpose, package))
    elseif version then
      line(report, "ok", file, (version .. "  " .. purpose):gsub("^  ", ""))
    else
      line(report, "missing", file, ("%s: apt-get install %s"):format(purpose, package))
    end
  end
  for _, library in ipairs(NVIDIA) do
    local name, file, fn, form, text, install = unpack(library)
    local number, why = core.version_of(file, fn, form)
    if number then
      line(report, "ok", file, text(number) .. "  " .. name)
    elseif why:find "is missing" then
      line(report, "missing", file, ("%s, only for GPUs: %s"):format(name, install))
    else
      line(report, "ok", file, name)
    end
  end
end

-- ---- the machine ----------------------------------------------------------------------------------

local function gib(bytes) return ("%.1f GiB"):format(bytes / 2 ^ 30) end

-- The smallest limit of memory among the cgroup of this process and those around it, in bytes; nil: none.
local function cgroup_memory()
  local text, least = read "/proc/self/cgroup" or "", nil
  local path = text:match "0::([^\n]*)" or ""
  local v1 = text:match "memory:([^\n]*)"
  local function consider(file)
    local bytes = tonumber(((read(file) or ""):match "%d+"))
    if bytes and bytes < 2 ^ 60 and (not least or bytes < least) then least = bytes end
  end
  while true do
    consider("/sys/fs/cgroup" .. path .. "/memory.max")
    if path == "" or path == "/" then break end
    path = path:match "^(.*)/[^/]*$"
  end
  consider "/sys/fs/cgroup/memory/memory.limit_in_bytes"
  if v1 then consider("/sys/fs/cgroup/memory" .. v1 .. "/memory.limit_in_bytes") end
  return least
end

-- The limits of this process: name of the line in /proc/self/limits, the least number that is enough, and the unit.
local LIMITS = { { "Max address space", 1, "bytes" }, { "Max data size", 1, "bytes" }, { "Max open files", 256 },
  { "Max processes", 256 }, { "Max file size", 1, "bytes" }, { "Max cpu time", 1, "seconds" } }

local function report_limits(report)
  local limits = read "/proc/self/limits" or ""
  for _, limit in ipairs(LIMITS) do
    local name, least, unit = unpack(limit)
    local soft = limits:match(name .. "%s+(%S+)")
    local number = tonumber(soft)
    if number and (unit or number < least * 4) then
      line(report, "limit", name, soft .. (unit and " " .. unit or "") .. " (ulimit)")
    end
  end
end

local function report_machine(report)
  local model = (read "/proc/cpuinfo" or ""):match "model name%s*:%s*([^\n]*)"
  local allowed = (read "/proc/self/status" or ""):match "Cpus_allowed_list:%s*(%S+)"
  local total = tonumber((read "/proc/meminfo" or ""):match "MemTotal:%s*(%d+)")
  local free = tonumber((read "/proc/meminfo" or ""):match "MemAvailable:%s*(%d+)")
  report ""
  if model then line(report, "cpu", "logical CPUs " .. (allowed or "?"), model) end
  if total then line(report, "memory", gib(total * 1024), gib((free or 0) * 1024) .. " available") end
  local limit = cgroup_memory()
  if limit then line(report, "limit", "cgroup's memory", gib(limit)) end
  report_limits(report)
  for _, name in ipairs { "MGPU_THREADS", "OMP_NUM_THREADS", "MGPU_ISA", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA",
    "MGPU_MEMORY", "MGPU_PLUGINS", "MGPU_DATA", "MGPU_CACHE", "MGPU_CUDA_LIBRARIES", "CUDA_VISIBLE_DEVICES",
    "MGPULUA_INIT", "LUA_INIT", "LUA_PATH" } do
    if os.getenv(name) then line(report, "set", name, os.getenv(name)) end
  end
end

-- ---- many processes -------------------------------------------------------------------------------

-- Which launcher started this process and why it is believed, and the plug-ins that carry messages between processes.
-- The tests that follow run in this process alone, since the others may not be there.
local function report_world(report)
  report ""
  local known, launch = pcall(core.launch)
  if not known then
    line(report, "WRONG", "launcher", (tostring(launch):gsub("^[^:\n]*:%d+: ", "")))
  elseif launch.by == "none" then
    line(report, "launcher", "none", launch.seen)
  else
    line(report, "launcher", launch.by, ("%s, messages by %s"):format(launch.seen, launch.transport))
  end
  local transports = core.transports()
  for _, transport in ipairs(transports) do
    line(report, transport.problem and "missing" or "ok", "mgpu-" .. transport.name .. ".so",
      transport.problem or "messages between processes")
  end
  if #transports == 0 then
    line(report, "left out", "mgpu-ucx.so, -openmpi, -mpich",
      "many processes: not in this build, which needs libucx-dev, libopenmpi-dev or libmpich-dev for it")
  end
  core.launch_none()
end

-- ---- self-tests -----------------------------------------------------------------------------------

-- Checks a small matrix product and a convolution, trains a step, then times matrix products for half a second.
local function test_device(name)
  local mgpu = require "mgpu"
  local n, rounds = 256, 0
  local a = mgpu.tensor({ { 1, 2 }, { 3, 4 } }, { device = name })
  local got = mgpu.matmul(a, a):totable()
  assert(got[1][1] == 7 and got[2][2] == 22, "WRONG: {{1,2},{3,4}} squared is off")
  local L = mgpu.layers
  local model = mgpu.Sequential { L.Input { 6, 6, 1 }, L.Conv2D { 2, 3 }, L.Flatten {}, L.Dense { 1 } }
  model:compile { optimizer = "sgd", loss = "mse", devices = { name } }
  local logs = model:train_on_batch(mgpu.ones { 4, 6, 6, 1 }, mgpu.ones { 4, 1 })
  assert(logs.loss == logs.loss, "WRONG: the loss of a training step is not a number")
  local x, start = mgpu.ones { n, n }:to(name), core.clock()
  repeat
    mgpu.eval(mgpu.matmul(x, x))
    rounds = rounds + 1
  until core.clock() - start > 0.5
  local rate = 2 * n ^ 3 * rounds / (core.clock() - start) / 1e9
  return ("works, trains, matmul of 256 x 256 at %.1f GFLOP/s"):format(rate)
end

-- Calls fn with the path of a temporary file of this ending, which is removed afterwards.
local function with_file(ending, fn)
  local base = os.tmpname()
  local path = base .. ending
  local ok, result = pcall(fn, path)
  os.remove(path)
  os.remove(base)
  if not ok then error(result, 0) end
  return result
end

-- Writes a tensor of small whole numbers with `save`, reads it with `load`, and compares.
local function round_trip(ending, save, load)
  return with_file(ending, function(path)
    save(path)
    assert(load(path), "WRONG: what was read is not what was written")
    return "works"
  end)
end

local function test_image(ending)
  local mgpu = require "mgpu"
  local x = mgpu.full({ 8, 8, 3 }, 100, { dtype = "uint8" })
  return round_trip(ending, function(path) mgpu.image.save(path, x) end, function(path)
    return mgpu.image.load(path, { channels = 3 }):to "float32":sub(100):abs():max():item() <= 3 -- JPEG rounds
  end)
end

-- Decodes an image of one gray pixel.
local function test_decoder(bytes)
  local pixel = require "mgpu".image.decode(bytes, { channels = 3 })
  assert(pixel:sum():item() == 300, "WRONG: the pixel has another color")
  return "works"
end

local function test_model_file(ending)
  local mgpu = require "mgpu"
  local model = mgpu.Sequential { mgpu.layers.Input { 3 }, mgpu.layers.Dense { 2 } }
  local x = mgpu.ones { 1, 3 }
  return round_trip(ending, function(path) model:save(path) end, function(path)
    return mgpu.load_model(path):predict(x):sub(model:predict(x)):abs():max():item() < 1e-6
  end)
end

local TESTS = {
  { ".safetensors files", test_model_file, ".safetensors" },
  { ".h5 files", test_model_file, ".h5" },
  { "PNG images", test_image, ".png" },
  { "JPEG images", test_image, ".jpg" },
  { "GIF images", test_decoder, "GIF89a\1\0\1\0\128\0\0ddd\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;" },
  { "WebP images", test_decoder, "RIFF\30\0\0\0WEBPVP8L\17\0\0\0/\0\0\0\0\7P\178\146\149\172\255\129\136\232\127\0\0" },
}

-- Runs a test. RETURNS false if it failed; true if it passed, or if it needs something that is not installed.
local function try(report, name, fn, argument)
  local works, words = pcall(fn, argument)
  local code = not works and core.error_code()
  local reason = tostring(words):gsub("^[^:\n]*:%d+: ", "")
  if not works and code == "unsupported" then
    line(report, "missing", name, reason)
    return true
  end
  report(("%-18s %s"):format(name, works and words or "FAILS: " .. reason))
  return works
end

local function report_tests(report)
  local all = true
  report ""
  for _, kind in ipairs(core.device_kinds()) do
    for _, name in ipairs(core.devices(kind)) do all = try(report, name, test_device, name) and all end
  end
  for _, test in ipairs(TESTS) do all = try(report, unpack(test)) and all end
  return all
end

--- doctor(report): see the top.
return function(report)
  report_versions(report)
  report_machine(report)
  report_world(report)
  report ""
  program.list_devices(report)
  return report_tests(report)
end
