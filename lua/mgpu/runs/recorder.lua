--- Recorder: the callback that records a fit in a folder, for fit's option `run`.
--
-- It hands what fit tells it to the callbacks that write their files: CSVLogger, ModelCheckpoint, TensorBoard. With
-- several processes it does so on rank 0 alone; the others have a recorder without parts, so that all ranks call the
-- same methods. The folder is chosen, made and locked in check_fit, after all that may be wrong in fit's options; a run
-- that continues an earlier one leaves its files as they are until its first epoch begins.
local Callback = require "mgpu.train.callbacks.callback"
local checkpoints = require "mgpu.train.callbacks.checkpoints"
local config = require "mgpu.runs.config"
local core = require "mgpu.core"
local CSVLogger = require "mgpu.train.callbacks.csv_logger"
local facts = require "mgpu.runs.facts"
local folder = require "mgpu.runs.folder"
local RunFiles = require "mgpu.runs.files"
local TensorBoard = require "mgpu.train.callbacks.tensor_board".TensorBoard
local trial = require "mgpu.tune.trial"
local world = require "mgpu.parallel.world"

local Recorder = Callback:extend("Recorder", {})

Recorder.adds = {}

--- of(given, outer) -> the recorder of a fit with these options; nil if it is not to be recorded.
-- In a process of mgpu.tune every fit without the option is recorded, unless it runs inside another fit (`outer`).
function Recorder.of(given, outer)
  local chosen = given.run ~= nil and folder.check("fit", given.run) or not outer and trial.options_for_fit() or nil
  if not chosen then return nil end
  local self = Recorder {}
  self.chosen, self.given, self.parts = chosen, given, {}
  return self
end

-- ---- before the first step ----------------------------------------------------------------------

-- fn() on rank 0, and its errors on all.
local function on_first(fn)
  if not world.is_joint() then return fn() end
  return world.first(fn)
end

-- ModelCheckpoint for the best model; for its weights if the model itself cannot be saved.
local function best_checkpoint(self, names)
  local monitor, mode = self.chosen.monitor, self.chosen.mode
  if self.chosen.if_there and not names.epoch[monitor] then monitor, mode = nil, "auto" end
  monitor = monitor or (names.epoch.val_loss and "val_loss" or "loss")
  local function make(name, weights_only)
    local part = checkpoints.ModelCheckpoint { self.path .. "/" .. name, monitor = monitor, mode = mode,
      save_best_only = true, save_weights_only = weights_only }
    part.model, part.params = self.model, self.params
    return part
  end
  local part = make("best.safetensors", false)
  local ok, message = pcall(part.check_fit, part, names)
  if ok then return part end
  if not tostring(message):find("save_weights_only", 1, true) then error(message, 0) end
  part = make("best.weights.safetensors", true)
  part:check_fit(names)
  return part
end

local function add_part(self, part, names)
  part.model, part.params = self.model, self.params
  if part.check_fit then part:check_fit(names) end
  self.parts[#self.parts + 1] = part
end

local function lock(self)
  self.lock = core.lock_folder(self.path .. "/.", "fit: run")
  if not self.lock then
    core.fail("usage", ("fit: run %s: another fit is being recorded in it: give it another folder"):format(self.path))
  end
end

-- Rank 0: chooses the folder, and makes the parts.
local function open_folder(self, names)
  self.path = folder.make("fit: run", self.chosen.folder, self.chosen.name)
  lock(self)
  core.check_creatable(self.path .. "/run.json", "fit: run")
  self.continues = folder.holds_run(self.path)
  self.files = RunFiles.new(self.path)
  add_part(self, CSVLogger { self.path .. "/history.csv" }, names)
  if self.chosen.best then self.parts[#self.parts + 1] = best_checkpoint(self, names) end
  if self.chosen.tensorboard then add_part(self, TensorBoard { self.path }, names) end
  return { path = self.path }
end

--- Chooses the folder, checks that it can be written, and holds it for this fit.
function Recorder:check_fit(names)
  self.path = on_first(function() return open_folder(self, names) end).path
  self.validates = names.validated ~= nil
end

--- checkpoint_folder() -> where the fit saves its checkpoints, unless it was told another place; nil: nowhere.
function Recorder:checkpoint_folder() return self.chosen.checkpoints and self.path .. "/checkpoints" or nil end

-- How many epochs are in history.jsonl.
local function recorded_epochs(self)
  local file, n = io.open(self.path .. "/history.jsonl", "rb"), 0
  if not file then return 0 end
  for line in file:lines() do
    if line:find "^{" then n = n + 1 end
  end
  file:close()
  return n
end

-- Epochs that a killed run can have recorded before its first checkpoint was complete: while that is written in another
-- thread, the second epoch ends, and then waits for it.
local LOST = 2

-- Whether the run that the folder holds saved checkpoints.
local function had_checkpoints(self)
  local ok, run = pcall(core.json_decode, facts.read(self.path .. "/run.json", 2 ^ 24) or "")
  return ok and type(run) == "table" and run.checkpoints == true
end

-- Raises for a folder that holds a run which this fit cannot continue: it would be written over.
local function check_continues(self, dir)
  if not self.continues or dir and #core.checkpoint_list(dir) > 0 then return {} end
  local epochs = recorded_epochs(self)
  local most = had_checkpoints(self) and LOST or 0
  if epochs > most then
    core.fail("usage", ("fit: run %s holds a run of %d epochs, and no checkpoint to continue it from: give another "
      .. "folder, or the folder around it with a slash at its end"):format(self.path, epochs))
  end
  self.continues = false
  return {}
end

-- Writes the files of the start, once.
local function start(self)
  if self.started or not self.files then return end
  self.started = true
  local compiled = self.model.compiled
  local devices = compiled.devices or { core.default_device() }
  local state = core.rng_state()
  self.files:start({ seed = state.seed, draws = state.base, fit = config.of_fit(self.given),
    compile = config.of_compile(compiled), samples = self.params.samples, steps = self.params.steps,
    model = { name = config.plain(self.model.name), class = self.model.class_name }, ranks = world.size(),
    continues = self.continues or nil, checkpoints = self.checkpoints, trial = trial.parameters() }, devices)
end

--- begin(dir): fit is about to train. dir: of its checkpoints, or nil.
function Recorder:begin(dir)
  self.checkpoints = dir ~= nil
  on_first(function()
    local none = check_continues(self, dir)
    if not self.continues then start(self) end
    return none
  end)
end

-- ---- while it trains ----------------------------------------------------------------------------

local function each_part(self, method, ...)
  for _, part in ipairs(self.parts) do
    if part[method] then part[method](part, ...) end
  end
end

-- model.json, as soon as the model is built. One that has no configuration is described by its summary.
local function put_model(self)
  if self.has_model or not self.files or not self.model.built then return end
  self.has_model = true
  local ok, text = pcall(self.model.to_json, self.model)
  if not ok and core.error_code() == "interrupted" then error(text, 0) end
  self.files:put("model.json", ok and text
    or core.json_encode { reason = config.plain((text:gsub("^.-:%d+: ", ""))), class = self.model.class_name })
end

--- Tells the parts.
function Recorder:on_train_begin(values) each_part(self, "on_train_begin", values) end

--- Starts the run, unless it was started before.
function Recorder:on_epoch_begin(epoch, values)
  start(self)
  put_model(self)
  self.epoch_began = core.clock()
  each_part(self, "on_epoch_begin", epoch, values)
end

--- Tells the parts.
function Recorder:on_test_end(values) each_part(self, "on_test_end", values) end

--- Appends the epoch to the history.
function Recorder:on_epoch_end(epoch, values)
  put_model(self)
  if self.files then self.files:line(epoch, values, core.clock() - self.epoch_began) end
  each_part(self, "on_epoch_end", epoch, values)
end

--- Tells the parts.
function Recorder:on_train_end(values) each_part(self, "on_train_end", values) end

--- The states of the parts, by their classes.
function Recorder:get_state()
  local state = { files = self.files and self.files:get_state() or nil, parts = {} }
  for _, part in ipairs(self.parts) do state.parts[part.class] = part:get_state() end
  return state
end

--- Continues from get_state's table, on rank 0.
function Recorder:set_state(state)
  if self.files and state.files then self.files:set_state(state.files) end
  for _, part in ipairs(self.parts) do
    if state.parts[part.class] then part:set_state(state.parts[part.class]) end
  end
end

-- ---- afterwards ---------------------------------------------------------------------------------

-- A page that cannot be made must not make a training fail that has succeeded.
local function put_report(self, history)
  if not history or not history.epoch or #history.epoch == 0 then return end
  local ok, message = pcall(function()
    self.files:put("report.html", require "mgpu.plot.report".html(history, self.path) .. "\n")
  end)
  if not ok and core.error_code() == "interrupted" then error(message, 0) end
  if not ok then require "mgpu.say"("fit: run %s: the report was not written: %s\n", self.path, tostring(message)) end
end

--- finish(ok, message, history): fit ends: with this error, unless ok.
function Recorder:finish(ok, message, history)
  if not self.lock then return end
  local last_code, last_message = core.last_error()
  if self.files and self.started then
    local code = not ok and last_code or nil
    put_report(self, history)
    self.files:finish(ok and "done" or code == "interrupted" and "stopped" or "failed",
      { error = not ok and tostring(message) or nil, code = code,
        stopped_early = ok and self.model.stop_training or nil })
  end
  core.unlock_folder(self.lock)
  self.lock = nil
  core.last_error(last_code, last_message) -- the error is that of the fit, whatever else could not be written
end

return Recorder
