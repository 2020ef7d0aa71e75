--- Callbacks that write files for TensorBoard: TensorBoard and TensorBoardEmbedding.
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"
local events = require "mgpu.train.tensorboard.events"
local logs = require "mgpu.train.logs"
local views = require "mgpu.train.tensorboard.model_views"

local M = {}

-- ---- TensorBoard --------------------------------------------------------------------------------

--- TensorBoard {log_dir = "logs", histogram_freq = 0, write_graph = true, write_images = false,
--- write_steps_per_second = false, update_freq = "epoch", profile_batch = 0, embeddings_freq = 0, ...}
--- writes files that TensorBoard shows: tensorboard --logdir logs.
--
-- log_dir/train and log_dir/validation get event files with Keras's tags and steps, so that curves of both programs
-- lie over each other. Steps are therefore Keras's: epochs count from 0, unlike anywhere else here; batches from 1.
--   epoch_loss, epoch_accuracy, ...                      each epoch; values of the validation data in validation
--   epoch_learning_rate, epoch_steps_per_second          the latter with write_steps_per_second
--   evaluation_loss_vs_iterations, ...                   after each validation or evaluate; step: the optimizer's
--   batch_loss, batch_accuracy, batch_steps_per_second   with update_freq = "batch" or n: after every n-th batch
--   NAME/histogram                                       of each weight, every histogram_freq epochs
--   NAME/image                                           write_images: of each weight, with its histogram
--   keras                                                write_graph: the layers, as the conceptual graph
-- A value of several numbers gets a tag for each: epoch_f1_score_1, ... Only the batches that are written wait for the
-- device. embeddings_freq = n: every n epochs, the tables of Embedding layers are written for the projector, with
-- projector_config.pbtxt; embeddings_metadata: a path, or {name of the layer = path}, relative to log_dir;
-- embeddings_layer_names: only these layers.
-- A write that fails is reported; training goes on, and the events are written later. A fit that continues from a
-- checkpoint continues the files, without the events of steps that it repeats.
-- Differences to Keras: epoch values are written for every update_freq (with update_freq = n, Keras drops the values of
-- epochs whose last batch is not a multiple of n); there is no graph of single operations and no profile.
-- Errors: a folder that cannot be written; write_images without libpng; profile_batch, which is not supported.
-- Source: Keras's TensorBoard.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     model:compile { loss = "mse" }
--     model:fit(mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }, { verbose = 0, validation_split = 0.5,
--       callbacks = mgpu.callbacks.TensorBoard { "logs", histogram_freq = 1 } })
--     -- tensorboard --logdir logs shows them
--     for folder in io.popen "ls logs":lines() do print(folder) end
--     --> train
--     --> validation
local TensorBoard = Callback:extend("TensorBoard", { positional = 1,
  { "log_dir", "string", default = "logs" },
  { "histogram_freq", "integer", default = 0, min = 0 },
  { "write_graph", "boolean", default = true },
  { "write_images", "boolean", default = false },
  { "write_steps_per_second", "boolean", default = false },
  { "update_freq", "integer|string", default = "epoch", min = 1 },
  { "profile_batch", "integer|integers|string", default = 0 },
  { "embeddings_freq", "integer", default = 0, min = 0 },
  { "embeddings_metadata", "string|table" },
  { "embeddings_layer_names", "table" },
})

TensorBoard.adds = {}

local RUNS = { "train", "validation" } -- the folders in log_dir

-- Gives the callback its event files, by the names of their folders; states: see get_state.
local function open_files(self, states)
  self.files = {}
  for _, run in ipairs(RUNS) do
    self.files[run] = events.EventFile.new(self.log_dir .. "/" .. run, states and states[run])
  end
end

--- Checks the options.
function TensorBoard:init()
  if self.log_dir == "" or self.log_dir:find "%z" then
    core.fail("usage", ('TensorBoard: option "log_dir" must name a folder, got %q'):format(self.log_dir))
  end
  if self.update_freq == "batch" then self.update_freq = 1 end
  if type(self.update_freq) == "string" and self.update_freq ~= "epoch" then
    core.fail("usage", ('TensorBoard: option "update_freq" must be "epoch", "batch" or a number of batches, got %q')
      :format(self.update_freq))
  end
  if self.profile_batch ~= 0 then
    core.fail("unsupported", "TensorBoard: profile_batch: profiles are not supported, leave it 0; BatchTiming and "
      .. "SamplesPerSec print times")
  end
  if self.write_images then views.check_images() end
  if self.update_freq == "epoch" then -- fit calls no method for batches
    self.on_train_batch_begin, self.on_train_batch_end = false, false
  end
  self.batch = 0
  open_files(self)
end

-- Writes the events that wait. A full disk is reported once, and again at the end of each epoch.
local function write(self, at_epoch)
  for _, file in pairs(self.files) do
    local message = (at_epoch or not self.failing) and file:write()
    if message then
      self.write("TensorBoard: events were not written: %s", message)
      self.failing = true
      return
    end
  end
  if at_epoch then self.failing = false end
end

-- Adds the value of a log, a number or an array of them, to the list of events.
local function add_scalars(list, tag, value)
  if type(value) == "number" then
    list[#list + 1] = events.scalar(tag, value)
  elseif type(value) == "table" then
    for i, v in ipairs(value) do add_scalars(list, tag .. "_" .. i, v) end
  end
end

-- ---- what is written ----------------------------------------------------------------------------

--- Raises if nothing can be written in log_dir.
function TensorBoard:check_fit(names)
  for _, run in ipairs(RUNS) do
    local folder = self.log_dir .. "/" .. run
    if run == "train" or names.validated then
      core.make_folder(folder, "fit: TensorBoard")
      core.check_creatable(folder .. "/events.out.tfevents", "fit: TensorBoard")
    end
  end
  if self.embeddings_freq > 0 then
    views.check_embeddings(self.model, self.embeddings_metadata, self.embeddings_layer_names)
  end
end

--- Starts files, which the first write makes.
function TensorBoard:on_train_begin()
  self.batch, self.failing = 0, false
  open_files(self)
  if self.write_graph and self.model.built then
    self.files.train:add(0, { events.keras_model("keras", views.model_json(self.model)) })
  end
  if self.embeddings_freq > 0 then
    views.write_config(self.model, self.log_dir, self.embeddings_metadata, self.embeddings_layer_names)
  end
end

--- Notes when the epoch began.
function TensorBoard:on_epoch_begin()
  self.epoch_began, self.steps_before = core.clock(), self.model.optimizer:steps_taken()
end

--- Notes when the batch began.
function TensorBoard:on_train_batch_begin()
  if self.write_steps_per_second then self.batch_began = core.clock() end
end

--- Writes the values of every update_freq-th batch.
function TensorBoard:on_train_batch_end(_, values)
  self.batch = self.batch + 1
  if self.batch % self.update_freq ~= 0 then return end
  local list = {}
  for name, value in logs.each(values) do add_scalars(list, "batch_" .. name, value) end
  if self.write_steps_per_second then
    add_scalars(list, "batch_steps_per_second", 1 / math.max(core.clock() - self.batch_began, 1e-9))
  end
  self.files.train:add(self.batch, list)
  write(self)
end

--- Writes the results of an evaluation.
function TensorBoard:on_test_end(values)
  local list = {}
  for name, value in logs.each(values) do add_scalars(list, ("evaluation_%s_vs_iterations"):format(name), value) end
  self.files.validation:add(self.model.optimizer:steps_taken(), list)
  write(self)
end

-- The values of an epoch; step: the epoch from 0.
local function add_epoch(self, step, values)
  local lists = { train = {}, validation = {} }
  for name, value in logs.each(values) do
    local measured = name:match "^val_(.*)"
    if name ~= "learning_rate" then
      add_scalars(measured and lists.validation or lists.train, "epoch_" .. (measured or name), value)
    end
  end
  local optimizer = self.model.optimizer
  if not (optimizer.inner_optimizer or optimizer).optimizers then -- a MultiOptimizer has several rates
    add_scalars(lists.train, "epoch_learning_rate", optimizer.learning_rate)
  end
  if self.write_steps_per_second then
    local steps, seconds = optimizer:steps_taken() - self.steps_before, core.clock() - self.epoch_began
    add_scalars(lists.train, "epoch_steps_per_second", steps / math.max(seconds, 1e-9))
  end
  for run, list in pairs(lists) do
    if #list > 0 then self.files[run]:add(step, list) end
  end
end

-- Histograms and images of all weights, under Keras's names; in a Sequential they begin with the model's name.
local function add_weights(self, step)
  local prefix, list = self.model.class_name == "Sequential" and self.model.name .. "/" or "", {}
  for _, v in ipairs(self.model.variables) do
    local name, t = prefix .. v.name, events.host_value(v)
    list[#list + 1] = events.histogram(name .. "/histogram", t)
    if self.write_images then list[#list + 1] = views.image(name .. "/image", t) end
  end
  self.files.train:add(step, list)
end

-- Writes the tables for the projector. The disk must not end the training.
local function write_tables(self)
  local ok, message = pcall(views.write_tables, self.model, self.log_dir, events.host_value,
    self.embeddings_layer_names)
  if ok then return end
  if core.error_code() ~= "io" then error(message, 0) end
  self.write("TensorBoard: the embeddings were not written: %s", message)
end

--- Writes the values of the epoch, and what histogram_freq and embeddings_freq ask for.
function TensorBoard:on_epoch_end(epoch, values)
  local step = epoch - 1
  add_epoch(self, step, values)
  if self.histogram_freq > 0 and step % self.histogram_freq == 0 then add_weights(self, step) end
  if self.embeddings_freq > 0 and step % self.embeddings_freq == 0 then write_tables(self) end
  write(self, true)
end

--- Writes what a failed write has left.
function TensorBoard:on_train_end() write(self, true) end

--- The batches so far, and how far the files are written.
function TensorBoard:get_state()
  local state = { batch = self.batch }
  for run, file in pairs(self.files) do state[run] = file:state() end
  return state
end

--- Continues from get_state's table.
function TensorBoard:set_state(state)
  self.batch = state.batch
  open_files(self, state)
end

M.TensorBoard = TensorBoard

-- ---- TensorBoardEmbedding -----------------------------------------------------------------------

local declared = { positional = TensorBoard.declared.positional }
for i, option in ipairs(TensorBoard.declared) do
  declared[i] = option[1] == "embeddings_freq" and { "embeddings_freq", "integer", default = 1, min = 0 } or option
end

--- TensorBoardEmbedding {log_dir = "logs", embeddings_freq = 1, embeddings_layer_names =, embeddings_metadata =, ...}:
--- TensorBoard that writes the tables of Embedding layers after every epoch, as the callback of keras_experiments does.
--
-- embeddings_layer_names: an array of names of layers; without it all. Other options and errors: tensor_board.lua.
-- Example:
--     local words = L.Embedding { 10, 4, name = "words" }
--     local model = mgpu.Sequential { mgpu.Input { 3 }, words, L.Flatten {}, L.Dense { 1 } }
--     model:compile { loss = "mse" }
--     model:fit(mgpu.randint(0, 10, { 64, 3 }), mgpu.rand { 64, 1 }, { verbose = 0,
--       callbacks = mgpu.callbacks.TensorBoardEmbedding { "logs", embeddings_layer_names = { "words" } } })
--     print(io.open "logs/projector_config.pbtxt" ~= nil)  --> true
M.TensorBoardEmbedding = TensorBoard:extend("TensorBoardEmbedding", declared)

return M
