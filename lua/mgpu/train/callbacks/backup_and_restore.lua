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
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"

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

return BackupAndRestore
