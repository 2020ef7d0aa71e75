--- Callbacks that write files to load or to continue from: ModelCheckpoint and BackupAndRestore.
local Callback = require "mgpu.train.callbacks.callback"
local compiled_state = require "mgpu.train.compiled_state"
local core = require "mgpu.core"
local Monitor = require "mgpu.train.callbacks.monitor"
local saving = require "mgpu.nn.saving"

local M = {}

-- ---- names of files -----------------------------------------------------------------------------

--- File names with fields, as in "w-{epoch:02d}-{val_accuracy:.3f}.h5".
--
-- A field is {name} or {name:spec}, with spec as in Python's format: [0][width][.digits][d f e g F E G %]. {{ and }}
-- stand for braces. epoch and batch are whole numbers (d), the values of the logs are not.
local FilePattern = {}
FilePattern.__index = FilePattern

local COUNTERS = { epoch = true, batch = true }

-- The format of one field, for string.format, and whether the value is a fraction to be shown in percent.
local function parse_spec(self, name, spec)
  local fill, width, digits, kind = spec:match "^(0?)(%d*)(%.?%d*)([dfegFEG%%]?)$"
  local whole = COUNTERS[name] and (kind == "" or kind == "d")
  local valid = fill and #width <= 2 and #digits <= 3 and digits ~= "." and (kind ~= "d" or whole)
    and not (whole and digits ~= "")
  if not valid then
    core.fail("usage", ('%s: the field {%s:%s} is not understood: write {%s} or {%s:%s}'):format(self.who, name, spec,
      name, name, COUNTERS[name] and "02d" or ".3f"))
  end
  if whole then return "%" .. fill .. width .. "d" end
  if kind == "" then return spec == "" and "%.14g" or "%" .. fill .. width .. digits .. "g" end
  if kind == "%" then return "%" .. fill .. width .. (digits == "" and ".6" or digits) .. "f%%", true end
  return "%" .. fill .. width .. digits .. kind
end

local function add_field(self, text)
  local name, colon, spec = text:match "^([%a_][%w_]*)(:?)(.*)$"
  if not name or colon == "" and spec ~= "" then
    core.fail("usage", ("%s: {%s} is not a field: write {name} or {name:.3f}, and {{ for a brace"):format(self.who,
      text))
  end
  local format, percent = parse_spec(self, name, spec)
  self.pieces[#self.pieces + 1] = { name = name, format = format, percent = percent }
  self.fields[#self.fields + 1] = name
end

--- new(text, who) -> a pattern; who: begins error messages. Errors: a field that is not understood.
function FilePattern.new(text, who)
  local self = setmetatable({ who = who, pieces = {}, fields = {} }, FilePattern)
  local at = 1
  while at <= #text do
    local plain = text:match("^[^{}]+", at)
    local field = text:match("^{([^{}]*)}", at)
    local brace = text:match("^{{", at) or text:match("^}}", at)
    if brace then
      self.pieces[#self.pieces + 1] = brace:sub(1, 1)
    elseif plain then
      self.pieces[#self.pieces + 1] = plain
    elseif field then
      add_field(self, field)
    else
      core.fail("usage", ("%s: %q has a brace that is not closed: write {{ or }} for one"):format(who, text))
    end
    at = at + (brace and 2 or plain and #plain or #field + 2)
  end
  return self
end

--- pattern:path(values) -> the file name; values: a table by the fields' names. Errors: a field without a number.
function FilePattern:path(values)
  local list = {}
  for i, piece in ipairs(self.pieces) do
    if type(piece) == "string" then
      list[i] = piece
    else
      local value = values[piece.name]
      if type(value) ~= "number" then
        core.fail("usage", ("%s: the logs have no number %q for the field {%s}"):format(self.who, piece.name,
          piece.name))
      end
      list[i] = piece.format:format(piece.percent and value * 100 or value)
    end
  end
  return table.concat(list)
end

M.FilePattern = FilePattern

-- ---- ModelCheckpoint ----------------------------------------------------------------------------

--- ModelCheckpoint {filepath, monitor = "val_loss", mode = "auto", save_best_only = false, save_weights_only = false,
--- save_freq = "epoch", initial_value_threshold =, verbose = 0}: saves the model while it trains.
--
--     mgpu.callbacks.ModelCheckpoint { "w-{epoch:02d}-{val_accuracy:.3f}.safetensors", monitor = "val_accuracy",
--       save_best_only = true }
-- filepath may have fields: epoch, batch (with save_freq = n) and the names in the logs, with Python's formats. The
-- file is that of the model on one device, whatever the number of devices.
-- save_best_only: only when monitor is better than ever, and than initial_value_threshold, if that is given; epochs
-- without the value do not save. save_freq: "epoch", or a number of batches. Fields: best, last_path.
-- Errors, before the first step: a name in filepath or monitor that the logs will not have; a file that cannot be
-- saved there; a model with a part that cannot be saved, such as a function as loss. A save that fails later prints
-- the reason, and training goes on. Source: Keras's ModelCheckpoint.
-- Example:
--     local x, y = mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     model:compile { loss = "mse" }
--     model:fit(x, y, { epochs = 2, verbose = 0,
--       callbacks = mgpu.callbacks.ModelCheckpoint { "model-{epoch:02d}.safetensors", monitor = "loss" } })
--     local restored = mgpu.load_model "model-02.safetensors"
--     print((restored:predict(x) - model:predict(x)):abs():max():item())  --> 0
local ModelCheckpoint = Monitor:extend("ModelCheckpoint", { positional = 1,
  { "filepath", "string", required = true },
  { "monitor", "string", default = "val_loss" },
  Monitor.VERBOSE,
  { "save_best_only", "boolean", default = false },
  { "save_weights_only", "boolean", default = false },
  Monitor.MODE,
  { "save_freq", "integer|string", default = "epoch", min = 1 },
  { "initial_value_threshold", "number" },
})

--- Checks save_freq and the fields of filepath.
function ModelCheckpoint:init()
  if type(self.save_freq) == "string" and self.save_freq ~= "epoch" then
    core.fail("usage", ('ModelCheckpoint: option "save_freq" must be "epoch" or a number of batches, got %q'):format(
      self.save_freq))
  end
  self.pattern = FilePattern.new(self.filepath, "ModelCheckpoint: filepath")
  if self.save_freq == "epoch" then self.on_train_batch_end = false end
  self.best, self.batches, self.batch = self.initial_value_threshold, 0, 0
end

-- Raises if the model has a part that a file of the format cannot hold, such as a function as loss.
local function check_savable(model, format)
  if format.check then return format.check(model) end
  local ok, message = pcall(function()
    model:get_config()
    compiled_state.capture(model)
  end)
  if not ok then error(message .. ", or give ModelCheckpoint save_weights_only = true", 0) end
end

--- Raises for names that the logs will not have and for a path where nothing can be saved.
function ModelCheckpoint:check_fit(names)
  local when = self.save_freq == "epoch" and "epoch" or "batch"
  if self.save_best_only then Monitor.check_fit(self, names, when) end
  local sample = { epoch = 1, batch = 1 }
  for _, field in ipairs(self.pattern.fields) do
    local known = field == "epoch" or (field == "batch" and when == "batch")
    if not known and names:check(self.class, "filepath", field, when) == "sometimes" then
      core.fail("usage", ("fit: ModelCheckpoint: filepath: only every n-th epoch has %q (validation_freq): leave the "
        .. "field {%s} out"):format(field, field))
    end
    sample[field] = 1
  end
  local format = saving.check_path(self.pattern:path(sample), self.save_weights_only and "save_weights" or "save",
    "fit: ModelCheckpoint")
  if not self.save_weights_only then check_savable(self.model, format) end
end

-- Whether to save, by save_best_only; notes the best value.
local function is_wanted(self, epoch, logs, path)
  if not self.save_best_only then
    if self.verbose > 0 then self.write("\nEpoch %d: saving model to %s", epoch, path) end
    return true
  end
  local current = self:current(logs)
  if current == nil then return false end
  local best = self.best and ("%.5f"):format(self.best) or "None"
  if not self:is_improvement(current, self.best) then
    if self.verbose > 0 then self.write("\nEpoch %d: %s did not improve from %s", epoch, self.monitor, best) end
    return false
  end
  if self.verbose > 0 then
    self.write("\nEpoch %d: %s improved from %s to %.5f, saving model to %s", epoch, self.monitor, best, current, path)
  end
  self.best = current
  return true
end

-- Saves, if that is wanted. A disk that is full must not end hours of training.
local function save(self, epoch, batch, logs)
  local values = setmetatable({ epoch = epoch, batch = batch }, { __index = logs })
  local path, best = self.pattern:path(values), self.best
  if not is_wanted(self, epoch, logs, path) then return end
  local method = self.save_weights_only and self.model.save_weights or self.model.save
  local ok, message = pcall(method, self.model, path)
  if ok then
    self.last_path = path
    if self.verbose > 0 then self.write("\nEpoch %d: finished saving model to %s", epoch, path) end
  elseif core.error_code() == "io" then
    self.best = best
    self.write("ModelCheckpoint: epoch %d was not saved: %s", epoch, message)
  else
    error(message, 0)
  end
end

--- Notes the epoch.
function ModelCheckpoint:on_epoch_begin(epoch) self.epoch = epoch end

--- Saves every save_freq batches, counted over the epochs.
function ModelCheckpoint:on_train_batch_end(batch, logs)
  local since = self.batch < batch and self.batch or 0 -- batches count from 1 in each epoch
  self.batches, self.batch = self.batches + batch - since, batch
  if self.batches >= self.save_freq then
    self.batches = 0
    save(self, self.epoch, batch, logs)
  end
end

--- Saves at the end of an epoch.
function ModelCheckpoint:on_epoch_end(epoch, logs)
  if self.save_freq == "epoch" then save(self, epoch, nil, logs) end
end

--- The best value, and the batches since the last save.
function ModelCheckpoint:get_state()
  return { best = self.best, batches = self.batches, batch = self.batch, last_path = self.last_path }
end

--- Continues from get_state's table.
function ModelCheckpoint:set_state(state)
  self.best, self.batches, self.batch, self.last_path = state.best, state.batches, state.batch, state.last_path
end

M.ModelCheckpoint = ModelCheckpoint

-- ---- BackupAndRestore ---------------------------------------------------------------------------

--- BackupAndRestore {backup_dir, save_freq = "epoch", delete_checkpoint = true, keep = 2}: a fit that survives its
--- process.
--
--     model:fit(x, y, { epochs = 100, callbacks = mgpu.callbacks.BackupAndRestore { "run" } })
-- It saves a checkpoint after each epoch, or after every save_freq batches. The same script started again continues
-- from the newest checkpoint, in the middle of an epoch if need be, with the numbers that an uninterrupted fit would
-- have: weights, optimizer, random numbers, the order of the data and the position in it, callbacks, history, metrics.
-- SIGTERM, SIGUSR1 and SIGXCPU save after the current step and end the program with status 75.
--   backup_dir         a folder for this fit alone, made if it is missing; `dir` is another name for it
--   keep               at least 2: how many checkpoints stay; if the newest is damaged, the one before is used
--   delete_checkpoint  true: a fit that reaches its end removes its checkpoints. With false a fit that is run again
--                      returns the history at once
-- Saving happens in another thread. A save that fails is reported, and training goes on. Field: last_saved {number,
-- path, epoch, step}, the newest checkpoint that is on disk. Source: Keras's BackupAndRestore, with its option
-- double_checkpoint always on.
-- Example:
--     local x, y = mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }
--     local function train(epochs)
--       local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--       model:compile { loss = "mse" }
--       local backup = mgpu.callbacks.BackupAndRestore { "run", delete_checkpoint = false }
--       return model:fit(x, y, { epochs = epochs, verbose = 0, callbacks = backup })
--     end
--     train(2)
--     -- the same script, started again, goes on with epoch 3
--     print(#train(5).history.loss)  --> 5
local BackupAndRestore = Callback:extend("BackupAndRestore", { positional = 1,
  { "backup_dir", "string" },
  { "dir", "string" },
  { "save_freq", "integer|string", default = "epoch", min = 1 },
  { "keep", "integer", default = 2, min = 2 },
  { "delete_checkpoint", "boolean", default = true },
  { "double_checkpoint", "boolean" },
})

BackupAndRestore.saves_run = true

local function fail(message, ...) core.fail("usage", "BackupAndRestore: " .. message:format(...)) end

--- Checks save_freq, and that there is one folder.
function BackupAndRestore:init()
  if type(self.save_freq) == "string" and self.save_freq ~= "epoch" then
    fail('option "save_freq" must be "epoch" or a number of batches, got %q', self.save_freq)
  end
  if self.backup_dir and self.dir then fail 'give only one of the options "backup_dir" and "dir"' end
  self.dir = self.dir or self.backup_dir
  if not self.dir or self.dir == "" then fail 'option "backup_dir" is missing: the folder for the checkpoints' end
end

M.BackupAndRestore = BackupAndRestore

return M
