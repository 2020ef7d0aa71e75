--- The world: the processes that run one script together, and what rank 0 does for all.
--
-- Each rank runs the whole script. Steps of models are shared: the rows of a batch are split over the devices of all
-- ranks (runtime/world). What must happen once only, as callbacks, happens on rank 0, and the others learn its result.
local core = require "mgpu.core"

local World = {}
World.__index = World

function World:__tostring()
  return ("rank %d of %d, started by %s"):format(self.rank, self.size, self.launcher)
end

--- world:barrier(): returns when all ranks have called it. Errors, on all ranks: one has come to something else that
--- ranks do together, such as a step of a model.
-- Example:
--     mgpu.world():barrier() -- with one process: returns at once
function World.barrier() core.world_barrier() end

--- world:gather(number) -> the whole number that each rank has given, rank 0's first. All ranks must call it.
-- Example:
--     local gpus = mgpu.world():gather(#mgpu.devices "gpu") -- of each rank
--     print(#gpus)  --> 1
function World.gather(_, number)
  if type(number) ~= "number" or number % 1 ~= 0 or math.abs(number) > 2 ^ 53 then
    core.fail("usage", "gather: a whole number was expected, got " .. tostring(number))
  end
  return core.world_gather(number)
end

local M = {}

--- world() -> {rank, size, local_rank, local_size, hosts, launcher, transport}: the processes that run this script.
-- rank counts from 0; local_rank among those of the same host; hosts: the name of each rank's host, rank 0 first.
-- Without a launcher such as mpirun there is one process, rank 0 of 1. world:barrier() waits for all ranks, and
-- world:gather(n) returns the numbers of all.
-- Example:
--     local world = mgpu.world()
--     print(world.rank, world.size, world.launcher)  --> 0 1 none
--     if world.rank == 0 then print "once" end       --> once
function M.world() return setmetatable(core.world(), World) end

--- size() -> the number of ranks.
function M.size() return core.world().size end

--- is_first() -> whether this is rank 0, which writes files and prints.
function M.is_first() return core.world().rank == 0 end

--- is_joint() -> whether steps of models are shared by several ranks now.
M.is_joint = core.world_is_joint

--- odd_rank(number) -> the first rank that gives another number than rank 0; nil if all give the same. All ranks call
--- it.
function M.odd_rank(number)
  local numbers = core.world_gather(number)
  for i, n in ipairs(numbers) do
    if n ~= numbers[1] then return i - 1 end
  end
end

--- meet(): where the steps that ranks share have ended, waits for the others. Errors: some are elsewhere, on all ranks.
function M.meet()
  if M.is_joint() then core.world_barrier() end
end

-- fn on rank 0, for all: what to send, as "=" and JSON, or "!" and a message; and what pcall(fn) returns.
local function run_first(fn)
  local ok, result = core.world_alone(fn)
  local encoded, text = pcall(core.json_encode, { result = ok and result or nil })
  if not encoded then ok, result = false, text end
  return ok and "=" .. text or "!" .. tostring(result), ok, result
end

--- first(fn, at_epoch) -> the table that fn() returns on rank 0, on all ranks. fn runs there alone: what it computes,
--- the others do not take part in. The table goes through JSON. at_epoch: all have come to the end of an epoch, as a
--- rank that has come to a callback is told. Errors: fn's error, raised on all ranks.
function M.first(fn, at_epoch)
  if M.is_first() then
    local text, ok, result = run_first(fn)
    core.world_send(text, at_epoch)
    if not ok then error(result, 0) end
    return result
  end
  local sent = core.world_send(nil, at_epoch)
  if sent:sub(1, 1) == "!" then core.fail("comm", "rank 0: " .. sent:sub(2)) end
  return core.json_decode(sent:sub(2)).result
end

return M
