--- Backup: what saves and continues one fit. fit.lua calls it between steps and epochs.
--
-- The snapshot of a save is the present tensors of the variables: they are immutable, so the next steps write to new
-- memory, and a thread in C writes them to disk (runtime/io/checkpoint_writer.c). Tensors on devices that the host
-- cannot see are copied first. The next save waits for the one before.
-- With several processes rank 0 saves, and all read the checkpoint to continue from.
local core = require "mgpu.core"
local folder = require "mgpu.train.checkpoint.folder"
local placement = require "mgpu.train.placement"
local run_state = require "mgpu.train.checkpoint.run_state"
local world = require "mgpu.parallel.world"

local Backup = {}
Backup.__index = Backup

local function say(text, ...) require "mgpu.say"("fit: " .. text .. "\n", ...) end

-- ---- making one ---------------------------------------------------------------------------------

-- The callback BackupAndRestore of the fit, or nil.
local function callback_of(run)
  local found
  for _, callback in ipairs(run.callbacks.list) do
    if callback.saves_run then
      if found then core.fail("usage", "fit: there are two BackupAndRestore callbacks: give one") end
      found = callback
    end
  end
  return found
end

--- new(run) -> the backup of the fit; nil without BackupAndRestore, `resume` and --resume.
function Backup.new(run)
  local callback, resume = callback_of(run), run.given.resume
  if run.outer then
    if callback or resume then
      core.fail("usage", "fit: a fit inside a callback of another fit of the model cannot save checkpoints")
    end
    return nil
  end
  if callback and resume then
    core.fail("usage", "fit: give only one of resume and the callback BackupAndRestore")
  end
  local dir = folder.next_folder() or resume or callback and callback.dir
    or run.recorder and run.recorder:checkpoint_folder()
  if not dir then return nil end
  callback = callback or { save_freq = "epoch", keep = 2, delete_checkpoint = false }
  local self = setmetatable({ dir = dir, callback = callback, save_freq = callback.save_freq, keep = callback.keep,
    delete = callback.delete_checkpoint and callback.dir == dir, since = 0 }, Backup)
  if run.trainer and self.save_freq ~= "epoch" then
    core.fail("usage", ('fit: BackupAndRestore: with strategy %q there is a common state only at the end of an epoch: '
      .. 'give save_freq = "epoch"'):format(run.compiled.strategy))
  end
  callback.last_saved = nil
  return self
end

-- ---- continuing ---------------------------------------------------------------------------------

-- Raises on all ranks if one of them sees another checkpoint than rank 0, which the ranks learn from each other.
local function check_same(self)
  local own = self.loaded and self.loaded.number or 0
  local numbers = core.world_gather(own)
  for rank, number in ipairs(numbers) do
    if number ~= numbers[1] then
      core.fail("io", ("fit: rank %d sees checkpoint %d in %s and rank 0 checkpoint %d: the folder must be on a file "
        .. "system that all hosts share"):format(rank - 1, number, self.dir, numbers[1]))
    end
  end
end

--- load(run): looks for a checkpoint. RETURNS the epoch to begin with and whether that has been begun already; nil if
--- there is no checkpoint. Errors: none is whole; one of another fit.
function Backup:load(run)
  self.loaded = folder.load(self.dir, say)
  if world.is_joint() then check_same(self) end
  if not self.loaded then return nil end
  local data = self.loaded.data
  run_state.check(run, data, self.loaded.path)
  if run.given.verbose > 0 then
    say("continues from %s: epoch %d, %s", self.loaded.path, data.epoch,
      data.within and "step " .. data.step or "which is complete")
  end
  return data.within and data.epoch or data.stopped and math.huge or data.epoch + 1, data.within
end

--- restore(run): gives the run the state of the checkpoint that load found.
function Backup:restore(run)
  local loaded = self.loaded
  self.loaded = nil
  run_state.restore(run, loaded.tensors, loaded.data, loaded.path)
  placement.place_state(run.compiled, run.model)
  self.callback.last_saved = { number = loaded.number, path = loaded.path, epoch = run.epoch, step = run.step }
  for _, number in ipairs(world.is_first() and loaded.damaged or {}) do
    local ok, message = pcall(core.checkpoint_remove, self.dir, number)
    if not ok then say("the damaged checkpoint %d could not be removed: %s", number, message) end
  end
end

-- Whether a tensor of this name is in the state of a callback; only the save uses any other.
local function is_of_callback(name) return name:find "^state/" ~= nil end

-- The writer of the ranks that do not save.
local no_writer = { start = function() end, wait = function() end, busy = function() return false end,
  close = function() end }

-- The state as the writer wants it.
local function captured(run)
  local tensors, data = run_state.capture(run)
  return tensors, { format = "mgpulua checkpoint 1", fit = core.json_encode(data) }
end

local MOST_KEPT = 1000 -- checkpoints that a person has asked for

local n_listening = 0 -- fits that save: one may run in a callback of another

--- begin(run): opens the folder, and from here on SIGTERM, SIGUSR1 and SIGXCPU are for this fit. Errors: the folder
--- cannot be made; the state of a callback that cannot be saved.
function Backup:begin(run)
  -- Frees what was captured at once. Otherwise it would keep its values until garbage is collected, or longer if a
  -- compiled trace holds the table, and the first step could not reuse their memory.
  for name, t in pairs((captured(run))) do
    if not is_of_callback(name) then t:free() end
  end
  self.writer = world.is_first() and core.checkpoint_writer(self.dir, self.keep, "fit: the checkpoints") or no_writer
  n_listening = n_listening + 1
  if n_listening == 1 then core.stop_listen(true) end
end

-- ---- saving -------------------------------------------------------------------------------------

-- Puts copies in place of the tensors that the host cannot see. RETURNS the tensors that only this save uses, in an
-- array: those in the states of callbacks are the callbacks' own.
local function on_host(tensors)
  local is_visible, host, temporary = {}, nil, {}
  for name, t in pairs(tensors) do
    local device = t:device()
    if not is_of_callback(name) then temporary[#temporary + 1] = t end
    if is_visible[device] == nil then is_visible[device] = core.device_info(device).host_visible end
    if not is_visible[device] then
      host = host or (#core.devices "cpu" > 0 and "cpu:0" or "ref:0")
      tensors[name] = core.copy_to(t, host)
      temporary[#temporary + 1] = tensors[name]
    end
  end
  return temporary
end

local function place_of(where)
  return ("epoch %d, %s"):format(where.epoch, where.within and "step " .. where.step or "complete")
end

-- Says that the save of the state at `where` failed.
local function tell_failure(self, where, what, reason)
  local last = self.callback.last_saved
  say("%s: %s: %s; %sthe newest checkpoint is %s", place_of(where), what, reason,
    self.stopping and "" or "training goes on, ", last and last.path or "not there yet")
end

-- Waits for the save in progress and takes note of how it ended. RETURNS whether it succeeded.
function Backup:collect()
  local result, where = self.writer:wait(), self.saving
  if not result then return true end
  self.saving = nil
  if result.saved then
    where.number, where.path = result.number, folder.path_of(self.dir, result.number)
    self.callback.last_saved = where
  end
  if result.message then
    tell_failure(self, where, result.saved and "the checkpoint is saved, but" or "the checkpoint could not be saved",
      result.message)
  end
  return result.saved
end

-- Begins a save. RETURNS whether it has begun: if memory is short, it has not, and training goes on.
local function save(self, run)
  if self.writer == no_writer then return true end
  self:collect()
  self.since = 0
  if run.trainer then placement.place_state(run.compiled, run.model) end
  local tensors, notes = captured(run)
  local where = { epoch = run.epoch, step = run.step, within = run.within }
  local ok, result = pcall(function()
    local temporary = on_host(tensors)
    self.writer:start(tensors, notes)
    return temporary
  end)
  if not ok then
    if core.error_code() ~= "oom" then error(result, 0) end
    tell_failure(self, where, "the checkpoint could not be saved", result)
    return false
  end
  self.saving = where
  for _, t in ipairs(result) do t:free() end -- the thread keeps what it needs as long as it needs it
  return true
end

--- save_in(run, folder) -> the path of a checkpoint that it saves there now, also for a fit that saves none else. Older
--- ones in the folder stay. Errors: it cannot be saved.
function Backup.save_in(run, dir)
  local own = run.backup and run.backup.dir == dir
  local self = own and run.backup
    or setmetatable({ dir = dir, callback = {}, writer = core.checkpoint_writer(dir, MOST_KEPT, "checkpoint") }, Backup)
  if own then self:collect() end -- else its result would be taken for this one's
  self.stopping = true -- what fails is told as it is
  local ok, saved = pcall(function() return save(self, run) and self:collect() end)
  self.stopping = nil
  if not own then self.writer:close() end
  if not ok then error(saved, 0) end
  if not saved then core.fail("io", ("checkpoint: nothing was saved in %s"):format(dir)) end
  return self.callback.last_saved.path
end

--- run_step(step, ...): step(...). If memory is short, because a save in progress keeps the values from before the last
--- steps, it waits for the save and tries again; a step that failed has changed nothing.
function Backup:run_step(step, ...)
  local ok, message = pcall(step, ...)
  if ok then return end
  if core.error_code() ~= "oom" or not self.saving then error(message, 0) end
  self:collect()
  step(...)
end

--- stop_requested() -> whether a signal has asked to save and stop.
function Backup.stop_requested() return core.stop_requested() ~= nil end

--- stop(run): saves, waits for the save, and raises: the program ends with status 75.
function Backup:stop(run)
  local signal, where = core.stop_requested(), place_of(run)
  self.stopping = true
  local function save_now()
    return { path = save(self, run) and self:collect() and self.callback.last_saved.path or nil }
  end
  local saved = world.is_joint() and world.first(save_now) or save_now()
  if not saved.path then
    core.fail("io", ("fit: %s: stopped by %s, but the checkpoint could not be saved (see above)"):format(where, signal))
  end
  core.stop_saved()
  core.fail("interrupted", ("fit: %s: stopped by %s, saved in %s; run it again to continue"):format(where, signal,
    saved.path))
end

--- after_step(run, count): `count` batches are done. Saves if that is due.
function Backup:after_step(run, count)
  if self.saving and not self.writer:busy() then self:collect() end
  self.since = self.since + count
  if run.model.stop_training or run.trainer then return end -- the epoch ends now, or there is no common state
  if core.stop_requested() then self:stop(run) end
  if self.save_freq ~= "epoch" and self.since >= self.save_freq then save(self, run) end
end

--- after_epoch(run): saves if that is due.
function Backup:after_epoch(run)
  if core.stop_requested() then self:stop(run) end
  local last = run.model.stop_training or run.epoch >= run.given.epochs
  if self.save_freq == "epoch" or last and not self.delete then save(self, run) end
end

--- finish(completed): waits for the last save; removes the checkpoints of a completed fit, if that is wanted.
function Backup:finish(completed)
  if not self.writer then return end
  self:collect()
  self.writer:close()
  n_listening = n_listening - 1
  if n_listening == 0 then core.stop_listen(false) end
  if not completed or not self.delete or not world.is_first() then return end
  local ok, message = pcall(core.checkpoint_remove_all, self.dir)
  if not ok then say("the checkpoints in %s could not be removed: %s", self.dir, message) end
end

return Backup
