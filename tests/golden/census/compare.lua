-- What load.lua and objects.lua share: JSON files, comparing with Keras's numbers, results.
local core = require "mgpu.core"
local objects = require "mgpu.nn.keras.objects"

local M = {}

--- read(path) -> the value of a JSON file.
function M.read(path)
  local file = assert(io.open(path))
  local value = objects.decode(file:read "*a")
  file:close()
  return value
end

--- compare(got, wanted, tolerance): raises unless the tensors are those of Keras: |a - b| <= tolerance max(1, |b|).
function M.compare(got, wanted, tolerance)
  if #got ~= #wanted then error(("differ: %d results, Keras has %d"):format(#got, #wanted), 0) end
  for i, t in ipairs(got) do
    local a, b = t, wanted[i]
    local shape, other = table.concat(a:shape(), ","), table.concat(b:shape(), ",")
    if shape ~= other then
      error(("differ: result %d has the shape {%s}, Keras's has {%s}"):format(i, shape, other), 0)
    end
    local x, y = a:to("float64"):reshape { -1 }:totable(), b:to("float64"):reshape { -1 }:totable()
    local worst = 0
    for k = 1, #x do
      local off = x[k] == y[k] and 0 or math.abs(x[k] - y[k]) / math.max(1, math.abs(y[k]))
      if x[k] ~= x[k] and y[k] ~= y[k] then off = 0 end
      worst = math.max(worst, off == off and off or math.huge)
    end
    if worst > tolerance then error(("differ: result %d is off by %.2g"):format(i, worst), 0) end
  end
end

--- results(path) -> say(number, what, verdict, message), try(number, what, fn): lines of a file of results. try RETURNS
--- what fn returns, or nil after an error, whose kind is the verdict: agree, differ, refused, fail.
function M.results(path)
  local out = assert(io.open(path, "a"))
  out:setvbuf "line"
  local function say(number, what, verdict, message)
    out:write(("%d\t%s\t%s\t%s\n"):format(number, what, verdict, (message or ""):gsub("%s+", " ")))
  end
  local function try(number, what, fn)
    local ok, value = pcall(fn)
    if ok then
      say(number, what, "agree")
      return value
    end
    local message = tostring(value)
    if message:find "^differ: " then
      say(number, what, "differ", message:sub(9))
    else
      local refused = core.error_code() == "unsupported" or message:find "unknown layer class"
      say(number, what, refused and "refused" or "fail", message)
    end
  end
  return say, try
end

return M
