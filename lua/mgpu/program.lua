-- The options that runtime/program/command_line.c hands to Lua: --devices, --list-devices, --resume, --profile ...

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
function M.set_resume(folder)
  if folder == "" then error("--resume: the name of the folder is empty", 0) end
  require "mgpu.train.checkpoint.folder".folder = folder
end

-- Names of files and messages of libraries: their control characters become visible.
local function print_line(text) print(core.printable(text)) end

--- --verify: checks the checkpoints in the folder; the program ends with status 74 if one is damaged or none is there.
function M.verify(folder, report)
  if not require "mgpu.train.checkpoint.folder".verify(folder, report or print_line) then os.exit(74) end
end

-- "2 threads, AVX-512, oneDNN 2.6.3, 24.0 GiB"
local function describe(name)
  local info = core.device_info(name)
  if info.memory == 0 then return info.text end
  return ("%s, %.1f GiB"):format(info.text, info.memory / 2 ^ 30)
end

--- Prints the name and description of each device, and for a kind without devices why there are none.
function M.list_devices(report)
  report = report or print_line
  for _, kind in ipairs(core.device_kinds()) do
    local names = core.devices(kind)
    for _, name in ipairs(names) do report(("%-8s %s"):format(name, describe(name))) end
    local available, reason = pcall(core.device_info, kind .. ":0")
    if not available then
      report(("%-8s not available: %s"):format(kind, (tostring(reason):gsub("^[^:]*:%d+: ", ""))))
    end
  end
end

--- --dashboard[=PORT]: the fits of the script are shown on a page while they run.
function M.set_dashboard(port)
  local number = tonumber(port)
  if port and not (number and number >= 0 and number <= 65535 and number % 1 == 0) then
    error(("--dashboard=%s: give a port from 0 to 65535, or --dashboard alone"):format(port), 0)
  end
  require "mgpu".dashboard.open { port = number } -- rank 0, after joining the other processes
end

--- --profile: records the run; at its end, after an error or os.exit, too, the trace is written and the table printed
--- on stderr, by rank 0.
function M.set_profile(path)
  if path == "" then error("--profile: the name of the file is empty", 0) end
  require "mgpu" -- joins the other processes
  local running = require "mgpu.profile.recording".start { path = path }
  require "mgpu.at_end".add(function()
    local report, problem = running:finish()
    if core.world().rank == 0 then io.stderr:write(tostring(report), "\n") end
    if problem then error(problem, 0) end
    if core.world().rank == 0 then io.stderr:write("trace: ", core.printable(report.path, true), "\n") end
  end)
end

--- --prove: compares the script's first steps on 1 and on N processes. The program ends with status 1 if the weights
--- differ by more than rounding.
function M.prove(text)
  local n = tonumber(text)
  if not n or n < 2 or n % 1 ~= 0 or n > 64 then
    error(("--prove %s: give a whole number of processes from 2 to 64"):format(text), 0)
  end
  os.exit(require "mgpu.parallel.proving".compare_runs(n, print_line) and 0 or 1)
end

--- --selftest cluster: measures the ranks and the links between them.
function M.selftest(what)
  if what ~= "cluster" then error(("--selftest %s: there is only --selftest cluster"):format(what), 0) end
  require "mgpu" -- joins the other processes
  require "mgpu.parallel.selftest"(print_line)
end

-- The words that belong to the option at this place of the global `arg`: its value and all that follows.
local function words_from(place)
  local first = tonumber(place)
  local words = { arg[first]:match "^%-%-%l+=(.+)$" }
  for i = first + 1, #arg do words[#words + 1] = arg[i] end
  return words
end

--- --serve: answers predictions until a signal.
function M.serve(place) os.exit(require "mgpu.serve".run(words_from(place))) end

--- --runs: shows recorded runs.
function M.runs(place) require "mgpu.runs.command"(words_from(place), print) end

--- --pack: makes one program of a script, or a C library of a model.
function M.pack(place) require "mgpu.pack"(words_from(place)) end

--- --doctor: versions, libraries, limits, devices, and short self-tests. The program ends with status 1 if one fails.
function M.doctor(report)
  if not require "mgpu.doctor"(report or print_line) then os.exit(1) end
end

return M
