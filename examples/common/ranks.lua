--- What the examples for several processes share: Horovod's options, and the device of each process.
--
--     local command_line = dofile(folder .. "common/command_line.lua")
--     local ranks = dofile(folder .. "common/ranks.lua")(command_line)
--     ranks.add(parser, 32, 1e-4)
--     local options = ranks.read(parser)
local mgpu = require "mgpu"

return function(command_line)
  local M = {}

  --- world: the processes that run the script.
  M.world = mgpu.world()

  --- add(parser, batch_size, lr): the options of a script with one device for each process, with these defaults. There
  --- is an option --lr only if lr is given.
  function M.add(parser, batch_size, lr)
    command_line.add_count(parser, "--batch_size", 1, "Rows per step for each process.", tostring(batch_size))
    if lr then
      parser:option("--lr", "The learning rate; it is multiplied by the number of processes.", tostring(lr))
        :argname "RATE":convert(command_line.positive "--lr")
    end
    command_line.add_count(parser, "--nranks_per_gpu", 1, "So many processes of a host share a GPU.", "1")
  end

  -- The device of this process: a GPU, or one of those that mgpulua --devices names, or else the CPU.
  local function own_device(per_gpu)
    local gpus = mgpu.parallel.get_available_gpus()
    if #gpus == 0 then return mgpu.devices()[1] end
    local place = math.floor(M.world.local_rank / per_gpu)
    if place >= #gpus then
      command_line.stop("process %d of this host needs device number %d, but it has only %s: start fewer processes "
        .. "on it, or raise --nranks_per_gpu", M.world.local_rank, place, table.concat(gpus, ", "))
    end
    return gpus[place + 1]
  end

  --- read(parser) -> the options. device: of this process; batch_size, lr: those of all processes together.
  function M.read(parser)
    local options = command_line.read(parser)
    options.device = own_device(options.nranks_per_gpu)
    options.batch_size = options.batch_size * M.world.size
    options.lr = options.lr and options.lr * M.world.size
    print(("Rank %d of %d, local_rank, GPU_LOCAL_RANK: %d, %d, on %s"):format(M.world.rank, M.world.size,
      M.world.local_rank, math.floor(M.world.local_rank / options.nranks_per_gpu), options.device))
    return options
  end

  return M
end
