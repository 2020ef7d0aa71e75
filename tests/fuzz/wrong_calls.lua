-- Calls everything that mgpu offers with random wrong arguments: `make fuzz` runs it.
--
--     build/mgpulua tests/fuzz/wrong_calls.lua [SECONDS = 20] [SEED = the time]
--
-- A call may succeed or raise. It must not crash or hang, and the error must be a string that names the line of the
-- call in this file. Calls are made in child processes; after a crash the last line of the child's log is the call. A
-- failure prints the seed that repeats it.
local SECONDS, SEED, CHILD = tonumber(arg[1]) or 20, tonumber(arg[2]) or os.time(), arg[3] == "child"
local CALLS, PATIENCE = 4000, 120 -- calls in a child, and the seconds after which it hangs

local here = arg[0]

-- ---- the parent ---------------------------------------------------------------------------------

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function lines_of(path)
  local f, list = io.open(path), {}
  for line in f and f:lines() or function() end do list[#list + 1] = line end
  if f then f:close() end
  return list
end

local function run_children()
  local root = io.popen "pwd":read "*l"
  local folder = io.popen "mktemp -d":read "*l"
  local begun, calls, failed = os.time(), 0, false
  local function absolute(path) return path:find "^/" and path or root .. "/" .. path end
  while not failed and os.time() - begun < SECONDS do
    local command = ("cd %s && MGPU_MEMORY=cpu:0=200M,ref:0=200M timeout -k 5 %d %s %s %d %d child >out 2>&1"
      ):format(quote(folder), PATIENCE, quote(absolute(arg[-1])), quote(absolute(here)), SECONDS, SEED)
    local status = os.execute(command)
    local log = lines_of(folder .. "/log")
    calls = calls + #log
    if status ~= 0 then
      failed = true
      print(("FAIL: status %d with seed %d, at the call %s"):format(status, SEED, log[#log] or "before the first one"))
      local out = lines_of(folder .. "/out")
      for i = math.max(1, #out - 10), #out do print("  " .. out[i]) end
    end
    SEED = SEED + 1
  end
  os.execute("rm -rf " .. quote(folder))
  print(("  fuzz wrong_calls: %d calls, %s"):format(calls,
    failed and "failed" or "no crash, no hang, every error at its line"))
  os.exit(failed and 1 or 0)
end

if not CHILD then run_children() end

-- ---- the child: arguments -----------------------------------------------------------------------

local mgpu = require "mgpu"
local core = require "mgpu.core"
mgpu.output = function() end
math.randomseed(SEED)

local function pick(list) return list[math.random(#list)] end

local L = mgpu.layers
local function new_model()
  local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 2 } }
  model:compile { loss = "mse", optimizer = "sgd" }
  return model
end

local MAKERS = {
  function() return nil end, function() return true end, function() return false end,
  function() return pick { 0, 1, -1, 2, 3, 0.5, -0.5, 7, 255, 256, 1e3, 1e9, 2 ^ 31, 2 ^ 53, 1e300, -1e300, 1 / 0,
    -1 / 0, 0 / 0 } end,
  function() return pick { "", "x", "relu", "float32", "int32", "mse", "adam", "cpu:0", "gpu:9", "a\0b", "%s%d", "../x",
    ("y"):rep(3000) } end,
  function() return pick { {}, { 1, 2 }, { -1 }, { 0 }, { 1, nil, 3 }, { x = 1 }, { axis = 1 }, { { 1, 2 }, { 3 } },
    { { 1, 2 }, { 3, 4 } }, { 1e9, 1e9 }, { 2.5 }, { "x" }, { false }, { units = 3 },
    { 3, 3, 3, 3, 3, 3, 3, 3, 3 } } end,
  function() return function() end end, function() return function(x) return x end end,
  function() return function() error "mine" end end,
  function() return mgpu.ones { 2, 3 } end, function() return mgpu.tensor(3) end,
  function() return mgpu.tensor({ 1, 0 }, { dtype = "int32" }) end, function() return mgpu.zeros { 0, 3 } end,
  function() return mgpu.full({ 2, 2 }, 0 / 0) end, function() return mgpu.ones({ 2, 3 }, { dtype = "float16" }) end,
  function() return mgpu.variable(mgpu.ones { 2, 3 }) end,
  function() return { mgpu.ones { 2, 3 }, mgpu.ones { 2, 3 } } end,
  function() return mgpu.Input { 3 } end, function() return L.Dense { 2 } end, new_model,
  function() return coroutine.create(function() end) end, function() return newproxy() end,
}

-- ---- the functions to call ---------------------------------------------------------------------

local targets = {} -- {name, fn, self = function or nil, always = whether only self will do}
local NOT = { output = true, datasets = true, version = true, models = true }

local function add(name, fn, self, always)
  local callable = type(fn) == "function" or type(fn) == "userdata" or type(fn) == "table" and getmetatable(fn)
    and getmetatable(fn).__call
  if callable then targets[#targets + 1] = { name = name, fn = fn, self = self, always = always } end
end

for name, fn in pairs(mgpu) do if not NOT[name] then add("mgpu." .. name, fn) end end
for _, name in ipairs { "Sequential", "Model", "Input", "with_device", "load_model", "explain", "set_policy",
  "policy" } do add("mgpu." .. name, mgpu[name]) end
for _, kind in ipairs { "layers", "losses", "metrics", "optimizers", "schedules", "callbacks", "initializers",
  "regularizers", "constraints", "data" } do
  for _, name in ipairs(mgpu[kind]()) do add(("mgpu.%s.%s"):format(kind, name), mgpu[kind][name]) end
end
for _, kind in ipairs { "activations", "parallel" } do
  for name, fn in pairs(mgpu[kind]) do add(("mgpu.%s.%s"):format(kind, name), fn) end
end
for _, name in ipairs { "Policy", "set_policy", "policy" } do -- its other functions are for layers
  add("mgpu.mixed_precision." .. name, mgpu.mixed_precision[name])
end
local function some_tensor() return mgpu.ones { 2, 3 } end
for name, fn in pairs(core.methods) do add("tensor:" .. name, fn, some_tensor) end
for _, name in ipairs { "fit", "evaluate", "predict", "compile", "train_on_batch", "test_on_batch", "predict_on_batch",
  "set_devices", "save", "save_weights", "load_weights", "summary", "get_layer", "set_weights", "add", "pop",
  "count_params", "apply", "losses" } do
  add("model:" .. name, function(self, ...) return self[name](self, ...) end, new_model, true)
end
for _, name in ipairs { "shuffle", "batch", "map", "cycle", "take", "skip", "prefetch", "iter", "length" } do
  add("dataset:" .. name, function(self, ...) return self[name](self, ...) end,
    function() return mgpu.data.from_tensors { mgpu.ones { 4, 3 } } end, true)
end
for _, name in ipairs { "apply", "build", "get_config", "unscale", "scale_loss" } do
  add("optimizer:" .. name, function(self, ...) return self[name](self, ...) end,
    function() return mgpu.optimizers.SGD {} end, true)
end
for _, name in ipairs { "update", "result", "reset" } do
  add("metric:" .. name, function(self, ...) return self[name](self, ...) end,
    function() return mgpu.metrics.AUC {} end, true)
end
table.sort(targets, function(a, b) return a.name < b.name end)

-- ---- the calls ----------------------------------------------------------------------------------

local function shown(value)
  if type(value) == "string" then return ("%q"):format(#value > 40 and value:sub(1, 40) .. "..." or value) end
  if type(value) == "table" and not getmetatable(value) then
    local parts = {}
    for k, v in pairs(value) do parts[#parts + 1] = tostring(k) .. "=" .. tostring(v) end
    return "{" .. table.concat(parts, ", ") .. "}"
  end
  return type(value) == "number" and tostring(value) or type(value)
end

local log = assert(io.open("log", "w"))
log:setvbuf "no"

local function fail(problem, message)
  print(("%s: %s"):format(problem, tostring(message)))
  os.exit(3)
end

for _ = 1, CALLS do
  local target, n, args = pick(targets), math.random(0, 4), {}
  for i = 1, n do args[i] = pick(MAKERS)() end
  if target.self and (target.always or math.random(10) > 1) then args[1], n = target.self(), math.max(n, 1) end
  local words = {}
  for i = 1, n do words[i] = shown(args[i]) end
  log:write(("%s(%s)\n"):format(target.name, (table.concat(words, ", "):gsub("%c", "?"))))
  local ok, message = pcall(function()
    local result = target.fn(unpack(args, 1, n))
    return result
  end)
  if not ok then
    if type(message) ~= "string" then fail("the error is not a string", message) end
    if not message:find("wrong_calls.lua:", 1, true) then fail("the error is not at the caller's line", message) end
  end
  core.default_device "cpu:0"
end
os.exit(0)
