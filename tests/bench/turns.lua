-- Turns with PyTorch: steps of this process and of a Python process are timed in alternation, so that noise of the
-- machine affects both. The drivers are layers.lua and convs.lua.
--
-- The peer reads requests and answers each with one line: "hello"; "run N LAYOUT" with the milliseconds of N
-- steps; and what the driver asks for itself.

local ffi = require "ffi"
local isa = require "isa"
local cores = require "cores"
local M = {}

ffi.cdef "void (*signal(int, void (*)(int)))(int);"
local SIGPIPE, SIG_IGN = 13, ffi.cast("void (*)(int)", 1)

local options = {
  rounds = "7", threads = "2", take = "median", turn = "120",
  venv = (os.getenv "XDG_CACHE_HOME" or os.getenv "HOME" .. "/.cache") .. "/mgpulua/bench-venv",
}

local function median(list)
  local sorted = { unpack(list) }
  table.sort(sorted)
  local n = #sorted
  return n % 2 == 1 and sorted[(n + 1) / 2] or (sorted[n / 2] + sorted[n / 2 + 1]) / 2
end

local function minimum(list) return math.min(unpack(list)) end
local TAKE = { median = median, minimum = minimum }

--- The options of the command line (--NAME VALUE), on top of `defaults` and of this module's options:
---     rounds     how often each contender has its turn
---     turn       milliseconds of a turn
---     take       median or minimum of a turn's steps
---     threads    of both processes
---     venv       the folder of a virtual environment with PyTorch
--- Prints the instruction set (isa.lua), and sets the threads of the cpu device, so it is called before mgpu is loaded.
function M.options(defaults)
  for name, value in pairs(defaults) do options[name] = value end
  for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end
  assert(TAKE[options.take], "--take is median or minimum")
  ffi.C.signal(SIGPIPE, SIG_IGN) -- writing to a peer that has ended is an error
  isa.setenv("MGPU_THREADS", options.threads)
  print("\n" .. isa.text)
  return options
end

--- Starts a Python program with named pipes -> the peer; ends this program if there is no PyTorch.
function M.start(script, arguments)
  if os.execute(options.venv .. "/bin/python -c 'import torch' 2>/dev/null") ~= 0 then
    print("skipped: no PyTorch in " .. options.venv .. " (tests/bench/run.lua installs it)")
    os.exit(0, true)
  end
  local folder = io.popen("mktemp -d"):read "*l"
  os.execute(("mkfifo %s/in %s/out"):format(folder, folder))
  os.execute(("%s/bin/python %s --threads %s %s <%s/in >%s/out 2>%s/err &"):format(options.venv, script,
    options.threads, arguments or "", folder, folder, folder))
  local peer = { folder = folder, input = assert(io.open(folder .. "/in", "w")),
    output = assert(io.open(folder .. "/out")) }
  peer.input:setvbuf "no"
  peer.cores = cores.watch(tonumber(options.threads))
  M.ask(peer, "hello")
  return peer
end

--- The peer's answer to a line.
function M.ask(peer, line)
  peer.input:write(line, "\n")
  local answer = peer.output:read "*l"
  if answer then return answer end
  error("PyTorch ended: " .. io.popen("tail -n 1 " .. peer.folder .. "/err"):read "*a", 0)
end

--- Ends the peer.
function M.stop(peer)
  peer.input:close()
  peer.output:close()
  os.execute("rm -rf " .. peer.folder)
  cores.finish()
end

-- Milliseconds of each of n steps.
local function run_ours(step, n)
  local clock, ms = require "mgpu.core".clock, {}
  for i = 1, n do
    local start = clock()
    step()
    ms[i] = (clock() - start) * 1e3
  end
  return ms
end

local function run_peer(peer, layout, n)
  local ms = {}
  for number in M.ask(peer, ("run %d %s"):format(n, layout)):gmatch "[%d.e+-]+" do
    ms[#ms + 1] = tonumber(number)
  end
  return ms
end

--- Races step() with the peer's case in each of its layouts -> our milliseconds, those of its fastest layout,
--- the ratio (theirs / ours within a round, the median over the rounds), and that layout. peer.cores has measured the
--- distance of the cores before and after the rounds (cores.lua).
function M.race(step, peer, layouts)
  local taken, times, ours = TAKE[options.take], {}, {}
  for _, layout in ipairs(layouts) do
    times[layout] = {}
    run_peer(peer, layout, 3)
  end
  run_ours(step, 3)
  -- not less than a turn: at its beginning the other process's threads still wait actively for work
  local n = math.max(3, math.ceil(options.turn / median(run_ours(step, 3))))
  peer.cores.measure()
  for round = 1, tonumber(options.rounds) do
    for i = 0, #layouts do -- the order rotates
      local k = (i + round) % (#layouts + 1)
      if k == 0 then
        ours[round] = taken(run_ours(step, n))
      else
        times[layouts[k]][round] = taken(run_peer(peer, layouts[k], n))
      end
    end
  end
  peer.cores.measure()
  local best = layouts[1]
  for _, name in ipairs(layouts) do if median(times[name]) < median(times[best]) then best = name end end
  local ratios = {}
  for i, ms in ipairs(times[best]) do ratios[i] = ms / ours[i] end
  return median(ours), median(times[best]), median(ratios), best
end

return M
