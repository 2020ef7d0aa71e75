--- profile(fn, [path]) -> the report: calls fn and records what each thread and device does meanwhile; with a path,
--- also as a file in the Chrome trace format, which ui.perfetto.dev and chrome://tracing show.
--
-- In the file there is an event for each epoch, batch, callback, wait for data, traced function, plan, step, phase and
-- launch, with layer and line of the script, in one row for each thread. With several processes each writes its own,
-- trace.0.json of rank 0 and so on, since a rank that fails must not take the others' files along.
--
-- The report prints as a table; its fields are those of mgpu.profile.table(). Each thread keeps its last 500,000
-- events; of a longer run the report and the file show the end. On GPUs, steps are not replayed as CUDA graphs while a
-- profile is recorded, and kernels are timed by events.
-- Errors: fn's own, after which there is no report; a profile inside a profile; a file that cannot be written, before
-- fn is called where that can be known, else when mgpu.profile.table() has the report.
-- Example:
--     local x = mgpu.rand { 64, 64 }
--     local report = mgpu.profile(function() return x:matmul(x):sum():item() end)
--     print(report.rows[1].op, report.wall > 0)  --> matmul true
local core = require "mgpu.core"
local recording = require "mgpu.profile.recording"

local profile = {}
local last -- the report

local function fail(message, ...) core.fail("usage", "profile: " .. message:format(...)) end

--- profile.table() -> the report of the last profile; nil if there was none.
--
-- Fields: wall, in seconds; lost: the seconds before these, of which not all events were kept, or 0; steps;
-- parts[name]: seconds of the script's thread, which add up to wall (computing, collectives,
-- "waiting for devices", "starting steps", data, callbacks, checkpoints, tracing, "making plans", Lua);
-- share[name]: of wall; devices; rows: for each layer and op {layer, op, where, backward, calls, seconds, share,
-- gflops, gbytes, estimate, peak, bound}, the slowest first; bound: what limits the whole, "data", "Lua", "arithmetic",
-- "memory", "launches" or "devices"; advice: at most three sentences.
-- gflops and gbytes are rates, from counts of a row's arithmetic and of the memory of its operands. estimate: the
-- seconds that these would take at the speeds that a large matrix product and a large sum reach on the device, which
-- are measured at the first profile; peak: estimate / seconds. Rates and peak leave out the first launch on a device if
-- there are others. Rows of several devices are added up.
-- Example:
--     mgpu.profile(function() mgpu.ones({ 256, 256 }):sum():item() end)
--     local report = mgpu.profile.table()
--     print(report.parts.computing < report.wall, #report.advice > 0)  --> true true
function profile.table() return last end

local function check(fn, path)
  local meta = getmetatable(fn)
  if type(fn) ~= "function" and not (meta and meta.__call) then
    fail("the first argument must be a function, got %s", type(fn))
  elseif path ~= nil and (type(path) ~= "string" or path == "") then
    fail("the path must be the name of a file, got %s", type(path) == "string" and "an empty one" or type(path))
  end
end

return setmetatable(profile, {
  __call = function(_, fn, path)
    check(fn, path)
    local running = recording.start { path = path }
    local ok, message = pcall(fn)
    if not ok then
      running:drop()
      error(message, 0)
    end
    last, message = running:finish()
    if message then error(message, 0) end
    return last
  end,
})
