--- The table `job` of an attached prompt: what the job is at, and what can be changed while it goes on.
--
--   job.state           "fit", "evaluate", "predict", "train_on_batch", "test_on_batch", or "script" elsewhere
--   job.model           the model that trains, or the last one that was seen
--   job.optimizer, job.history, job.logs (loss and metrics of the epoch so far)
--   job.epoch, job.epochs, job.step, job.steps
--   job.learning_rate   can be set: it acts at the next step
--   job.stop()          ends fit after this epoch, with its validation
--   job.checkpoint(path)   saves a checkpoint of the fit in the folder; the model if the path ends as a model file does
--   job.add_callback(cb)   one more callback for the rest of the fit
-- The functions take a colon, too. With several processes all changes are taken on rank 0, and act on all ranks at the
-- end of the epoch (mgpu.train.decisions).
local core = require "mgpu.core"
local decisions = require "mgpu.train.decisions"

local M = {}

local place -- where the job is; nil outside of fit, evaluate and predict
local last = setmetatable({}, { __mode = "v" }) -- last.model

--- enter(where): the place of the command that is about to run, or nil.
function M.enter(where)
  place = where
  if where and where.model then last.model = where.model end
end

--- leave(): the command has run.
function M.leave() place = nil end

--- fit_of(where) -> the fit that it is in, or nil.
function M.fit_of(where) return where and (where.kind == "fit" and where or where.fit) or nil end

local function fit() return M.fit_of(place) end

local function the_fit(what)
  return fit() or core.fail("usage", ("%s: no fit is running: the job is %s"):format(what,
    place and "in " .. place.kind or "between two steps of the script's own"))
end

local function compiled()
  local model = place and place.model or last.model
  return model and model.compiled
end

-- ---- fields ---------------------------------------------------------------------------------------

local read = {}

function read.state() return place and place.kind or "script" end
function read.model() return place and place.model or last.model end
function read.history() return fit() and fit().history end
function read.epoch() return fit() and fit().epoch end
function read.epochs() return fit() and fit().given.epochs end
function read.step() return place and place.step end
function read.steps() return place and place.steps end
function read.optimizer() return compiled() and compiled().optimizer end
function read.learning_rate() return compiled() and compiled().optimizer.learning_rate end

function read.logs()
  local metrics = place and (place.metrics or place.kind ~= "predict" and place.compiled and place.compiled.metrics)
  return metrics and metrics:read() or nil
end

-- ---- changes --------------------------------------------------------------------------------------

-- Takes the decision, and says when it acts. RETURNS what it gives.
local function take(run, decision, what)
  local result, later = decisions.take(run, decision)
  if later then print(("%s at the end of epoch %d, on all ranks"):format(what, run.epoch)) end
  return result
end

local methods = {}

--- job.stop(): ends fit after this epoch, as model.stop_training does after this step.
function methods.stop()
  take(the_fit "job.stop", { kind = "stop" }, "stops")
end

--- job.add_callback(callback): fit calls it from here on. Its on_train_begin is called now.
function methods.add_callback(callback)
  local run = the_fit "job.add_callback"
  run.callbacks.check("job.add_callback", callback)
  take(run, { kind = "callback", callback = callback }, "is called")
end

--- job.checkpoint(path) -> the path of what was saved: a checkpoint in this folder, from which fit's `resume` and
--- --resume go on, or a file with the model, as model:save(path).
function methods.checkpoint(path)
  if type(path) ~= "string" or path == "" then
    core.fail("usage", ("job.checkpoint: expected the path of a folder, or of a file such as m.safetensors, got %s")
      :format(type(path) == "string" and '""' or type(path)))
  end
  if require "mgpu.nn.saving".is_known(path) then
    if core.world().rank ~= 0 then core.fail("usage", "job.checkpoint: only rank 0 writes files: attach to it") end
    local model = read.model() or core.fail("usage", "job.checkpoint: no model has been seen yet")
    model:save(path)
    return path
  end
  local run = the_fit "job.checkpoint"
  if place.kind ~= "fit" then
    core.fail("usage", "job.checkpoint: the validation is running, and a checkpoint is taken between two steps of the "
      .. "training: try again when it is over")
  end
  return take(run, { kind = "checkpoint", folder = path }, "is saved")
end

-- ---- the table ------------------------------------------------------------------------------------

local names = {}
for _, list in ipairs { read, methods } do
  for name in pairs(list) do names[#names + 1] = name end
end
table.sort(names)

local Job = {}

function Job.__index(_, name)
  if methods[name] then return methods[name] end
  if read[name] then return read[name]() end
  name = tostring(name)
  core.fail("usage", ("job has no field %q%s"):format(name, core.did_you_mean(name, names, "field")))
end

function Job.__newindex(_, name, value)
  if name == "learning_rate" then
    local run = the_fit "job.learning_rate"
    if run.joint and type(value) ~= "number" then core.fail("usage", "job.learning_rate: expected a number") end
    return take(run, { kind = "learning_rate", rate = value }, "is set")
  end
  core.fail("usage", ("job.%s cannot be set: only job.learning_rate can"):format(tostring(name)))
end

function Job.__tostring()
  local run, texts = fit(), { read.state() }
  if run then texts[2] = (", epoch %d of %d"):format(run.epoch, run.given.epochs) end
  if place and place.step then
    texts[#texts + 1] = (", step %d%s"):format(place.step, place.steps and " of " .. place.steps or "")
  end
  return "job: " .. table.concat(texts)
end

M.job = setmetatable({}, Job)
-- A method with a colon passes the table itself.
for name, fn in pairs(methods) do
  methods[name] = function(first, ...)
    if rawequal(first, M.job) then return fn(...) end
    return fn(first, ...)
  end
end

return M
