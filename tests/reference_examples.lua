-- Runs the examples of the reference and compares what they print with what they state behind "-->".
--
--     build/mgpulua --devices cpu:0-1 tests/reference_examples.lua FILE PART/PARTS FOLDER [part of a name]
--
-- FILE returns an array of {name =, code =}; every PARTS-th example from PART on runs, each in a subfolder of FOLDER,
-- with the globals of the prompt and the settings of a new process. Prints one message for each example that fails.
if ... ~= "reference_examples" then package.path = arg[0]:gsub("[^/]*$", "") .. "?.lua;" .. package.path end

local core = require "mgpu.core"
local pages = require "pages"

local M = {}

--- expected(code) -> what the example states: the texts behind "-->", a line each; nil if it states nothing.
function M.expected(code)
  local lines = {}
  for line in (code .. "\n"):gmatch "(.-)\n" do
    local text = line:match "^%-%->%s?(.*)" or line:match "%s%-%->%s?(.*)"
    if text then table.insert(lines, text) end
  end
  return lines[1] and table.concat(lines, "\n") or nil
end

-- The text with single spaces, none at the beginning of lines, and without empty lines: an example does not state the
-- tabs between printed values.
local function single_spaced(text) return (("\n" .. text):gsub("[ \t]+", " "):gsub("\n[\n ]*", "\n"):sub(2)) end

-- Settings of the process that an example may change: RETURNS a function that sets them back.
local function keep_settings(mgpu)
  local output, floatx, precision = mgpu.output, core.floatx(), mgpu.precision()
  local deterministic, policy = mgpu.deterministic(), mgpu.policy()
  return function()
    mgpu.output = output
    mgpu.set_floatx(floatx)
    mgpu.precision(precision)
    mgpu.deterministic(deterministic)
    if mgpu.policy() ~= policy then mgpu.set_policy(policy) end
    mgpu.set_image_data_format "channels_last"
  end
end

-- Runs the code with `write` as the receiver of all that Lua prints. RETURNS the error or nil.
local function call(code, name, mgpu, write)
  local environment = setmetatable({ mgpu = mgpu, L = mgpu.layers }, { __index = _G })
  local function printed(...)
    local texts = { ... }
    for i = 1, select("#", ...) do texts[i] = tostring((select(i, ...))) end
    write(table.concat(texts, "\t") .. "\n")
  end
  environment.print, mgpu.output = printed, write
  environment.io = setmetatable({ write = function(...) write(table.concat { ... }) end }, { __index = io })
  mgpu.seed(0)
  mgpu.reset_names()
  local chunk, message = loadstring(code, "=" .. name)
  if not chunk then return message end
  setfenv(chunk, environment)
  local ok, failure = xpcall(chunk, debug.traceback)
  return not ok and failure or nil
end

--- run(example, mgpu) -> a message about how it fails, or nil.
function M.run(example, mgpu)
  local texts, restore = {}, keep_settings(mgpu)
  local failure = call(example.code, example.name, mgpu, function(text) table.insert(texts, text) end)
  restore()
  local printed, expected = table.concat(texts), M.expected(example.code)
  if failure then return ("%s: %s"):format(example.name, failure) end
  if expected and not pages.fits(single_spaced(printed), single_spaced(expected)) then
    return ("%s: its example states\n%s\nbut prints\n%s"):format(example.name, expected, printed)
  end
end

-- Runs every PARTS-th example in a folder of its own. RETURNS how many failed.
local function run_part(examples, part, parts, folder)
  local ffi, mgpu = require "ffi", require "mgpu"
  ffi.cdef "int chdir(const char *);"
  local failed = 0
  for i = part, #examples, parts do
    local path = ("%s/%d"):format(folder, i)
    os.execute("mkdir " .. path)
    assert(ffi.C.chdir(path) == 0, path)
    local fault = M.run(examples[i], mgpu)
    if fault then
      io.write(fault, "\n")
      failed = failed + 1
    end
    collectgarbage()
  end
  return failed
end

if ... ~= "reference_examples" then -- run as a program, not required by the spec
  local part, parts = arg[2]:match "^(%d+)/(%d+)$"
  os.exit(run_part(dofile(arg[1]), tonumber(part), tonumber(parts), arg[3]) == 0 and 0 or 1)
end

return M
