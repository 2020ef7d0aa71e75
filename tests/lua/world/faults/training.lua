-- A training by several ranks in which one of them comes to grief:
--
--     mgpulua tests/lua/world/faults/training.lua FOLDER [OPTIONS]
-- Each rank writes files in FOLDER, with its rank behind the name: `pid`, and at the end of the training `end`: the
-- number of steps done, whether the weights are those of that step, and the error. OPTIONS is inside a Lua table:
--   steps = 40        so many steps
--   units = 16        of the hidden layer
--   pause = 0.01      seconds between steps
--   fault = name      what happens (below), on the rank `on` before the step `at`
--   signal = 9        which is sent, or, with delay = 0.1, so many seconds later, in the middle of a step
--   wakes = 5         seconds after which a stopped process goes on
local core = require "mgpu.core"
local ffi = require "ffi"
local mgpu = require "mgpu"

ffi.cdef "int getpid(void); int kill(int, int);"

local folder = arg[1]
local chosen = assert(loadstring("return {" .. (arg[2] or "") .. "}"))()
local rank, pid = mgpu.world().rank, ffi.C.getpid()
local steps, units = chosen.steps or 40, chosen.units or 16

local function note(what, text)
  local path = ("%s/%s.%d"):format(folder, what, rank)
  local file = assert(io.open(path .. ".new", "w"))
  file:write(text)
  file:close()
  os.rename(path .. ".new", path)
end

note("pid", tostring(pid))
mgpu.seed(3)
local L = mgpu.layers
local model = mgpu.Sequential { L.Input { 8 }, L.Dense { units, activation = "relu" }, L.Dense { units },
  L.Dense { 1 } }
model:compile { optimizer = mgpu.optimizers.SGD { 0.01 }, loss = "mse" }
local x, y = mgpu.randn { 12, 8 }, mgpu.randn { 12, 1 }
mgpu.eval(x, y)

local function weights()
  local list = {}
  for _, v in ipairs(model.variables) do list[#list + 1] = core.json_encode(v:value():flatten():totable()) end
  return table.concat(list, "\n")
end

-- What may happen before a step; `true` ends the training.
local faults = {}

local function later(seconds, signal)
  os.execute(("(sleep %g; kill -%d %d) </dev/null >/dev/null 2>&1 &"):format(seconds, signal, pid))
end

function faults.signal()
  if chosen.wakes then later(chosen.wakes, 18) end
  if chosen.delay then later(chosen.delay, chosen.signal) else ffi.C.kill(pid, chosen.signal) end
end

function faults.leave() return true end
function faults.raise() error "boom" end
function faults.exit() os.exit(5) end
function faults.exit_0() os.exit(0) end

function faults.loop() while true do end end

function faults.rows() x, y = mgpu.zeros { 6, 8 }, mgpu.zeros { 6, 1 } end

function faults.memory() return mgpu.eval(mgpu.zeros { 1e14 }) end

-- Only in this rank's rows. The step is refused on all ranks, and the training goes on.
function faults.nan()
  local rows = x:totable()
  for i = 1, #rows do rows[i][1] = 0 / 0 end
  x = mgpu.tensor(rows)
end

local before, done, good, refused = weights(), 0, x, ""
local function train()
  for i = 1, steps do
    if i == chosen.at and rank == chosen.on and faults[chosen.fault]() then return end
    before = weights()
    if chosen.fault == "nan" and chosen.at == i then
      refused = select(2, pcall(model.train_on_batch, model, x, y))
      if weights() ~= before then return end
      x = good
    else
      model:train_on_batch(x, y)
    end
    done = i
    before = weights()
    if chosen.pause then core.sleep(chosen.pause) end
  end
end

local ok, message = pcall(train)
local code = core.error_code()
note("end", ("%d\n%s\n%s\n%s\n"):format(done, weights() == before and "unchanged" or "changed",
  ok and refused or message, weights()))
if not ok and code then core.fail(code, message) end
if not ok then error(message, 0) end
