-- The options that runtime/program/command_line.c hands to Lua: --devices, --list-devices, --doctor, --resume,
-- --verify.

local core = require "mgpu.core"
local devices = require "mgpu.parallel.devices"

local M = {}

-- The names of all devices of the kind. If there are none, the first name it would have: opening that device fails
-- with a message that says what is missing.
local function all_of(kind)
  local names = core.devices(kind)
  return #names > 0 and names or { kind .. ":0" }
end

--- The names in a list of devices as --devices takes it, such as "cpu:0-3,cuda". A kind without a number stands for
--- all its devices. devices.lua describes the spelling.
function M.parse_devices(text)
  local names, why = devices.parse(text, all_of)
  if not names then core.fail("usage", ("--devices %s: %s"):format(text, why)) end
  return names
end

--- --devices: restricts mgpu.devices() to this list; its first device becomes the default.
function M.set_devices(text) core.set_devices(M.parse_devices(text)) end

--- --resume: the fits of the script save in the folder and continue from there.
function M.set_resume(folder) require "mgpu.train.checkpoint.program_option".folder = folder end

--- --verify: checks the checkpoints in the folder; the program ends with status 74 if one is damaged or none is there.
function M.verify(folder, report)
  if not require "mgpu.train.checkpoint.folder".verify(folder, report or print) then os.exit(74) end
end

-- "2 threads, AVX-512, oneDNN 2.6.3, 24.0 GiB"
local function describe(name)
  local info = core.device_info(name)
  if info.memory == 0 then return info.text end
  return ("%s, %.1f GiB"):format(info.text, info.memory / 2 ^ 30)
end

--- Prints the name and description of each device, and for a kind without devices why there are none.
function M.list_devices(report)
  report = report or print
  for _, kind in ipairs(core.device_kinds()) do
    local names = core.devices(kind)
    for _, name in ipairs(names) do report(("%-8s %s"):format(name, describe(name))) end
    local available, reason = pcall(core.device_info, kind .. ":0")
    if not available then
      report(("%-8s not available: %s"):format(kind, (tostring(reason):gsub("^[^:]*:%d+: ", ""))))
    end
  end
end

-- ---- doctor -------------------------------------------------------------------------------------

-- Shared libraries that the plug-ins need: file, what it is for, and the Debian package that has it.
local LIBRARIES = {
  { "libdnnl.so.2", "the fast cpu device", "libdnnl2" },
  { "libgomp.so.1", "its threads", "libgomp1" },
  { "libcurl.so.4", "downloads", "libcurl4" },
  { "libcrypto.so.3", "checksums of downloads", "libssl3" },
  { "libpng16.so.16", "PNG images", "libpng16-16" },
  { "libturbojpeg.so.0", "JPEG images", "libturbojpeg0" },
  { "libhdf5_serial_hl.so.100", "Keras's .h5 and .keras files", "libhdf5-hl-100" },
}

-- Whether the dynamic loader finds the library.
local function library_loads(name)
  local ok, ffi = pcall(require, "ffi")
  return ok and (pcall(ffi.load, name))
end

-- Checks a small matrix product on the device, then times larger ones for half a second. Returns the result in words.
local function self_test(name)
  local mgpu = require "mgpu"
  local n, rounds, start = 256, 0, core.clock()
  local a = mgpu.tensor({ { 1, 2 }, { 3, 4 } }, { device = name })
  local got = mgpu.matmul(a, a):totable()
  if got[1][1] ~= 7 or got[2][2] ~= 22 then return "WRONG: {{1,2},{3,4}} squared is off" end
  local x = mgpu.ones { n, n }:to(name)
  repeat
    mgpu.eval(mgpu.matmul(x, x))
    rounds = rounds + 1
  until core.clock() - start > 0.5
  local rate = 2 * n ^ 3 * rounds / (core.clock() - start) / 1e9
  return ("works, matmul of 256 x 256 at %.1f GFLOP/s"):format(rate)
end

--- --doctor: versions, libraries, devices, and a short test of each device.
function M.doctor(report)
  report = report or print
  report(("mgpulua %s, %s, %s %s"):format(core.version, jit.version, jit.os, jit.arch))
  report("Lua files and models: " .. tostring(core.root))
  for _, library in ipairs(LIBRARIES) do
    local name, use, package = unpack(library)
    report(library_loads(name) and ("ok       %-14s %s"):format(name, use)
      or ("missing  %-14s %s: apt-get install %s"):format(name, use, package))
  end
  M.list_devices(report)
  for _, kind in ipairs(core.device_kinds()) do
    for _, name in ipairs(core.devices(kind)) do
      local works, words = pcall(self_test, name)
      report(("%-8s %s"):format(name, works and words or "FAILS: " .. tostring(words)))
    end
  end
end

return M
