-- What the program's own options do: --devices, --list-devices, --doctor.

local core = require "mgpu.core"
local devices = require "mgpu.parallel.devices"

local M = {}

local KINDS = { "cuda", "cpu", "ref" }

-- All devices of the kind; one that is not there, so that it is named, if there are none.
local function all_of(kind)
  local names = core.devices(kind)
  return #names > 0 and names or { kind .. ":0" }
end

--- The names in a list as devices.lua spells it, where a kind alone is all of its devices.
function M.parse_devices(text)
  local names, why = devices.parse(text, all_of)
  if not names then core.fail("usage", ("--devices %s: %s"):format(text, why)) end
  return names
end

function M.set_devices(text) core.set_devices(M.parse_devices(text)) end

local function describe(name)
  local info = core.device_info(name)
  local parts = {}
  if info.text then parts[#parts + 1] = info.text end
  local bytes = info.memory or info.memory_bytes
  if bytes and bytes > 0 then parts[#parts + 1] = ("%.1f GiB"):format(bytes / 2 ^ 30) end
  return table.concat(parts, ", ")
end

-- Name and description of each device; for a kind without any, why there is none.
function M.list_devices(report)
  report = report or print
  for _, kind in ipairs(KINDS) do
    local ok, names = pcall(core.devices, kind)
    if ok and #names > 0 then
      -- ref is there in any number: one line is enough
      for i = 1, kind == "ref" and 1 or #names do
        report(("%-8s %s"):format(names[i], describe(names[i])))
      end
    else
      local _, reason = pcall(core.device_info, kind .. ":0")
      local why = tostring(ok and reason or names):gsub("^[^:]*:%d+: ", "")
      report(("%-8s not available: %s"):format(kind, why))
    end
  end
end

-- ---- doctor -------------------------------------------------------------------------------------

-- Library, what for, the package that has it.
local LIBRARIES = {
  { "libdnnl.so.2", "the fast cpu device", "libdnnl2" },
  { "libgomp.so.1", "its threads", "libgomp1" },
  { "libcurl.so.4", "downloads", "libcurl4" },
  { "libcrypto.so.3", "checksums of downloads", "libssl3" },
}

local function library_loads(name)
  local ok, ffi = pcall(require, "ffi")
  return ok and (pcall(ffi.load, name))
end

-- Multiplies and trains a little on the device for about a second; how it went, in words.
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
  for _, kind in ipairs(KINDS) do
    local ok, names = pcall(core.devices, kind)
    for i = 1, ok and math.min(#names, kind == "ref" and 1 or #names) or 0 do
      local works, words = pcall(self_test, names[i])
      report(("%-8s %s"):format(names[i], works and words or "FAILS: " .. tostring(words)))
    end
  end
end

return M
