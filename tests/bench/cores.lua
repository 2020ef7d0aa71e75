-- How far apart the cores are while a benchmark runs. Kernels whose threads read what others have written take longer
-- on cores without a common cache, and a virtual machine's cores move, so figures are comparable only if this is known.

local M = {}

local NEAR = 60 -- nanoseconds; cores with a common cache take 20 to 40, others 100 and more

-- The measuring program, compiled at first use.
local program
local function compiled()
  if program then return program end
  program = os.tmpname()
  local command = "%s -O2 -pthread -o %s tests/bench/core_distance.c 2>/dev/null"
  os.execute(command:format(os.getenv "CC" or "cc", program)) -- without a compiler, the file stays empty
  return program
end

--- A watch over the first `threads` cores of this process:
---     measure()   takes a measurement, which lasts some milliseconds
---     text()      what was measured since the last text() or mark(): "27 ns", "27 to 160 ns" or "unknown"
---     mark()      the same, but empty if the cores had a common cache all the time, or if that is unknown
function M.watch(threads)
  local list, watch = {}, {}
  function watch.measure()
    local pipe = io.popen(("%s %d 2>/dev/null"):format(compiled(), threads))
    list[#list + 1] = pipe:read "*n"
    pipe:close()
  end
  function watch.text()
    if #list == 0 then return "unknown" end
    local least, most = math.min(unpack(list)), math.max(unpack(list))
    list = {}
    return least == most and ("%d ns"):format(least) or ("%d to %d ns"):format(least, most)
  end
  function watch.mark()
    local apart = #list > 0 and math.max(unpack(list)) > NEAR
    local text = watch.text()
    return apart and "  cores apart, " .. text or ""
  end
  return watch
end

--- Removes the measuring program.
function M.finish()
  if program then os.remove(program) end
  program = nil
end

return M
