-- Fixtures that several specs share: small data sets, a model, and settings that are restored after use.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local M = {}

--- The beginning of a script that is sent a signal: ready() writes to the file arg[1] that it may come now.
M.READY = [[
  local core, mgpu = require "mgpu.core", require "mgpu"
  local L = mgpu.layers
  local function ready()
    local file = io.open(arg[1], "w")
    file:write "ready"
    file:close()
  end
]]

--- The output of a script that begins with READY and gets the signal half a second after it has called ready(). The
--- last line is the exit status, `status 0`. options: environment: variables; program: options of the program;
--- arguments: those of the script, from arg[2] on.
function M.signalled(text, signal, options)
  local path, ready, given = check.path "signalled.lua", check.path "ready", options or {}
  check.write(path, text)
  os.remove(ready)
  return (check.run(("%s %s %s %s %s %s & p=$!; while [ ! -s %s ] && kill -0 $p; do sleep 0.05; done; sleep 0.5; "
    .. "kill -%s $p; wait $p; echo status $?"):format(given.environment or "", check.program, given.program or "", path,
    ready, given.arguments or "", ready, signal)))
end

--- A copy of the table, with the fields of `more` in place of its own.
function M.with(given, more)
  local copy = {}
  for _, t in ipairs { given, more } do
    for key, value in pairs(t) do copy[key] = value end
  end
  return copy
end

--- n points x of {n, 2} and the targets y = 2 x1 - x2 + 1 of {n, 1}.
function M.line(n)
  local x, y = {}, {}
  for i = 1, n do
    local a, b = i % 5 / 5, i % 7 / 7
    x[i], y[i] = { a, b }, { 2 * a - b + 1 }
  end
  return mgpu.tensor(x), mgpu.tensor(y)
end

--- A compiled model of one Dense layer, which can fit the line exactly. `options` go to compile.
function M.linear(options)
  mgpu.seed(1)
  local model = mgpu.Sequential { mgpu.layers.Input { 2 }, mgpu.layers.Dense { 1, kernel_initializer = "zeros" } }
  options = options or {}
  options.optimizer = options.optimizer or mgpu.optimizers.SGD { learning_rate = 0.1 }
  options.loss = options.loss or "mse"
  model:compile(options)
  return model
end

--- Asserts that a model learns the same on one, two and three cpu devices: from the images x to zeros, all in one
--- batch, with `layers` and a Dense layer of one unit. layers(): makes them, an Input first. learning_rate: of SGD.
--- near: how far weights may be off.
function M.learns_alike(layers, x, learning_rate, epochs, near)
  check.needs "cpu"
  local L, rows = mgpu.layers, x:shape()[1]
  local function trained(devices)
    mgpu.seed(5)
    mgpu.reset_names()
    local model = mgpu.Sequential(layers())
    model:add(L.Flatten {})
    model:add(L.Dense { 1, kernel_initializer = "ones" })
    model:compile { optimizer = mgpu.optimizers.SGD { learning_rate }, loss = "mse", devices = devices }
    model:fit(x, mgpu.zeros { rows, 1 }, { batch_size = rows, epochs = epochs, verbose = 0, shuffle = false })
    return model:get_weights()[1]
  end
  local alone = trained "cpu:0":totable()
  for _, devices in ipairs { { "cpu:0", "cpu:1" }, { "cpu:0", "cpu:1", "cpu:2" } } do
    check.near(trained(devices), alone, near)
  end
end

--- n points of three classes in the plane, and their class ids from 0 (int32).
function M.points(n)
  local x, y = {}, {}
  for i = 1, n do
    local class = i % 3
    x[i] = { class + i % 4 / 10, (class == 1 and 1 or 0) + i % 5 / 10 }
    y[i] = class
  end
  return mgpu.tensor(x), mgpu.tensor(y, { dtype = "int32" })
end

-- Classes that wrap other optimizers.
local WRAPPERS = { LossScaleOptimizer = true, MultiOptimizer = true, OptimizerMap = true }

--- The names of the optimizers that have a rule of their own: all classes but those that wrap others.
function M.optimizer_classes()
  local list = {}
  for _, name in ipairs(mgpu.optimizers()) do
    if name:find "^%u" and not WRAPPERS[name] then list[#list + 1] = name end
  end
  return list
end

--- Calls fn with float64 as the dtype of new tensors and weights.
function M.in_float64(fn)
  mgpu.set_floatx "float64"
  local ok, message = pcall(fn)
  mgpu.set_floatx "float32"
  if not ok then error(message, 0) end
end

--- What fn(...) prints.
function M.printed(fn, ...)
  local texts, output = {}, mgpu.output
  mgpu.output = function(text) texts[#texts + 1] = text end
  local ok, message = pcall(fn, ...)
  mgpu.output = output
  if not ok then error(message, 0) end
  return table.concat(texts)
end

--- What fn(...) writes to stderr through Lua, and its result.
function M.stderr_of(fn, ...)
  local before, text = io.stderr, ""
  io.stderr = { write = function(_, line) text = text .. line end } -- luacheck: ignore 122
  local ok, result = pcall(fn, ...)
  io.stderr = before -- luacheck: ignore 122
  if not ok then error(result, 0) end
  return text, result
end

--- Calls fn(device) with ref:0 as the default device, then with the default device itself, if it is another.
function M.each_device(fn)
  local before = core.default_device()
  for _, device in ipairs { "ref:0", before ~= "ref:0" and before or nil } do
    core.default_device(device)
    local ok, message = pcall(fn, device)
    core.default_device(before)
    if not ok then error(device .. ": " .. tostring(message), 0) end
  end
end

local LONG = 600 -- seconds: no machine is so busy

--- Waits until fn() is true -> what it returned. Fails after ten minutes; what: the text of that, or a function that
--- returns it.
function M.wait_until(fn, what)
  local deadline = core.clock() + LONG
  while true do
    local value = fn()
    if value then return value end
    if core.clock() > deadline then
      check.fail("after ten minutes there is still not " .. (type(what) == "function" and what() or what))
    end
    core.sleep(0.02)
  end
end

--- Waits until the file is there.
function M.wait_for(path) M.wait_until(function() return core.file_exists(path) end, path) end

--- Starts lua/files/http_server.lua, which answers n requests; returns its address and its port file, of that name.
function M.start_server(name, n)
  local port_file = check.path(name)
  os.execute(("%s tests/lua/files/http_server.lua %s %d &"):format(check.program, port_file, n))
  M.wait_for(port_file)
  return "http://127.0.0.1:" .. check.read(port_file), port_file
end

--- Raises unless a and b have one shape and differ by at most 1e-5 of the largest element of b: graphs that are
--- compiled differently round differently. what: the text that an error begins with.
function M.check_close(a, b, what)
  check.equal(a:shape(), b:shape())
  local most = (a - b):abs():max():item() / math.max(b:abs():max():item(), 1e-30)
  if not (most <= 1e-5) then check.fail(("%s: off by %g"):format(what, most)) end
end

return M
