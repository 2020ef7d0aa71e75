-- A training by `fit` that saves checkpoints, by several ranks or one:
--
--     mgpulua tests/lua/world/faults/fitting.lua FOLDER [OPTIONS]
-- Rank 0 writes history and weights to FOLDER/weights at the end. OPTIONS is the inside of a Lua table:
--   freq = 2          of BackupAndRestore
--   fault = name      of `faults`: what happens on rank `on` before the batch `at`, once for a FOLDER
--   signal = 15
local core = require "mgpu.core"
local ffi = require "ffi"
local mgpu = require "mgpu"

ffi.cdef "int getpid(void); int kill(int, int); void mg_io_fail_from(int64_t, int);"

local folder = arg[1]
local chosen = assert(loadstring("return {" .. (arg[2] or "") .. "}"))()
local rank, pid = mgpu.world().rank, ffi.C.getpid()

local function write(name, text)
  local file = assert(io.open(folder .. "/" .. name, "w"))
  file:write(text)
  file:close()
end

mgpu.seed(7)
local L = mgpu.layers
local x, y = mgpu.rand { 48, 6 }, mgpu.randint(0, 3, { 48 })
mgpu.eval(x, y)
local model = mgpu.Sequential { L.Input { 6 }, L.Dense { 16, activation = "relu" }, L.Dropout { 0.3 },
  L.Dense { 3, activation = "softmax" } }
model:compile { optimizer = "adam", loss = "sparse_categorical_crossentropy" }

local faults = {}
function faults.signal() ffi.C.kill(pid, chosen.signal) end
function faults.raise() error "boom" end
function faults.disk() ffi.C.mg_io_fail_from(1, 28) end -- ENOSPC, from now on

local batches, count = mgpu.data.from_tensors { x, y }:batch(12), 0
local data = { length = function() return batches:length() end }
function data.iter()
  local next_batch = batches:iter()
  return function()
    count = count + 1
    if count == chosen.at and rank == chosen.on and not io.open(folder .. "/hurt") then
      write("hurt", "")
      faults[chosen.fault]()
    end
    return next_batch()
  end
end

local backup = mgpu.callbacks.BackupAndRestore { folder .. "/checkpoints", save_freq = chosen.freq or 2,
  delete_checkpoint = false }
local history = model:fit(data, { epochs = 6, verbose = 0, callbacks = { backup } })
local lines = { core.json_encode(history.history.loss) }
for _, v in ipairs(model.variables) do lines[#lines + 1] = core.json_encode(v:value():flatten():totable()) end
if rank == 0 then write("weights", table.concat(lines, "\n")) end
