-- Fused element-wise groups of the cpu device: ops over dtypes, sizes and broadcasting, updates of optimizers,
-- gradients of layers. Least time of a call in microseconds, of one build or of several in turns.
--
--     build/mgpulua tests/bench/fused.lua [--builds PROGRAM,PROGRAM...] [--only PATTERN] [--rounds 9]
--         [--turn 20] [--threads 1]
--
-- Each program runs the cases in a process of its own; the processes take turns of so many milliseconds. The last
-- numbers are ratios to the first program. PATTERN is a Lua pattern for the names of cases.

local options = { rounds = "9", turn = "20", threads = "1", builds = "build/mgpulua", only = "" }
for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end

local SIZES = { { "2K", 2048 }, { "32K", 32768 }, { "400K", 400000 }, { "12M", 12000000 } }
local cases, order = {}, {}

local function case(name, make)
  cases[name] = make
  order[#order + 1] = name
end

local mgpu = require "mgpu"
local core = require "mgpu.core"

-- ---- the cases: each returns a function to time -------------------------------------------------------------

local function inputs(n, shape, dtype)
  local list = {}
  for i = 1, n do
    list[i] = mgpu.rand(shape) * 4 - 2
    if dtype and dtype ~= "float32" then list[i] = ((list[i] + 2) * (dtype == "bool" and 0.3 or 10)):cast(dtype) end
  end
  mgpu.eval(unpack(list))
  return list
end

local function jitted(fn, list)
  local f = mgpu.jit(fn)
  return function() f(unpack(list)) end
end

local function sized(name, n_in, fn, dtype)
  for _, size in ipairs(SIZES) do
    case(name .. " " .. size[1], function() return jitted(fn, inputs(n_in, { size[2] }, dtype)) end)
  end
end

sized("relu", 1, function(x) return x:relu() end)
sized("square", 1, function(x) return x:square() end)
sized("sigmoid", 1, function(x) return x:sigmoid() end)
sized("tanh", 1, function(x) return x:tanh() end)
sized("exp", 1, function(x) return x:exp() end)
sized("add", 2, function(x, y) return x + y end)
sized("mul", 2, function(x, y) return x * y end)
sized("scalar mul", 1, function(x) return x * 3 end)
sized("x*2+1", 1, function(x) return x * 2 + 1 end)
sized("where", 3, function(c, x, y) return mgpu.where(c:gt(0), x, y) end)
sized("relu grad", 2, function(y, dy) return mgpu.where(y:gt(0), dy, 0) end)
sized("mul grad", 3, function(x, y, dy) return dy * x, dy * y end)
sized("sigmoid grad", 2, function(y, dy) return dy * y * (1 - y) end)
for _, t in ipairs { "float16", "bfloat16", "float64", "int32", "uint8" } do
  sized(t .. " add", 2, function(x, y) return x + y end, t)
  sized(t .. " x*y+x", 2, function(x, y) return x * y + x end, t)
end
sized("float16 relu", 1, function(x) return x:relu() end, "float16")
sized("bfloat16 sigmoid", 1, function(x) return x:sigmoid() end, "bfloat16")
sized("float64 exp", 1, function(x) return x:exp() end, "float64")
sized("bool and", 2, function(x, y) return x:logical_and(y) end, "bool")
sized("compare", 2, function(x, y) return x:gt(y) end)
sized("mask", 2, function(x, y) return x * x:gt(y):cast "float32" end)
sized("f32 to f16", 1, function(x) return x:cast "float16" end)
sized("f16 to f32", 1, function(x) return x:cast "float32" end, "float16")
sized("f32 to bf16", 1, function(x) return x:cast "bfloat16" end)
sized("u8 to f32/255", 1, function(x) return x:cast "float32" / 255 end, "uint8")
sized("f32 to i32", 1, function(x) return x:cast "int32" end)
sized("i32 to f32", 1, function(x) return x:cast "float32" end, "int32")

for _, size in ipairs { { 32, 10 }, { 128, 64 }, { 128, 1000 }, { 512, 512 }, { 3000, 4000 } } do
  local m, n = size[1], size[2]
  local function pair(name, shape, fn, dtype)
    case(("%s %dx%d"):format(name, m, n), function()
      return jitted(fn, { inputs(1, { m, n }, dtype)[1], inputs(1, shape, dtype)[1] })
    end)
  end
  pair("row+matrix", { n }, function(x, y) return x + y end)
  pair("column+matrix", { m, 1 }, function(x, y) return x + y end)
  pair("relu(row+matrix)", { n }, function(x, y) return (x + y):relu() end)
  pair("f16 row+matrix", { n }, function(x, y) return x + y end, "float16")
  pair("scale+shift rows", { n }, function(x, y) return (x * y + y):relu() end)
  pair("transposed add", { n }, function(x) return x:transpose() * 2 + 1 end)
end

-- updates
local function updating(name, model_name)
  return function()
    local model = mgpu.models[model_name] { input_shape = { 28, 28, 1 }, classes = 10 }
    local variables, grads = model.trainable_variables, {}
    for i, v in ipairs(variables) do grads[i] = mgpu.rand(v:shape()) * 1e-3 end
    mgpu.eval(unpack(grads))
    local kind, opts = name:match "%a+", { learning_rate = 1e-6 }
    if name == "SGD momentum" then opts.momentum = 0.9 end
    local opt = mgpu.optimizers[kind](opts)
    opt:build(variables)
    return jitted(function(...) opt:apply({ ... }, variables) end, grads)
  end
end
for _, net in ipairs { "lenet5", "mnist_cnn" } do
  for _, name in ipairs { "SGD", "SGD momentum", "RMSprop", "Adam", "AdamW" } do
    case(name .. " " .. net, updating(name, net))
  end
end

-- gradients of layers
local L = mgpu.layers
local function grads(name, shape, make)
  case(name, function()
    local l = make()
    local x, dy = mgpu.rand(shape), mgpu.rand(shape)
    mgpu.eval(x, dy, (l(x)))
    local f = mgpu.jit(function(t, upper)
      return mgpu.grad(function(v) return (l(v, { training = true }) * upper):sum() end)(t)
    end)
    return function() f(x, dy) end
  end)
end
grads("BatchNorm grad", { 64, 14, 14, 64 }, function() return L.BatchNormalization {} end)
grads("BatchNorm grad large", { 64, 28, 28, 64 }, function() return L.BatchNormalization {} end)
grads("Dropout grad", { 32, 128, 256 }, function() return L.Dropout { 0.5 } end)
grads("gelu grad", { 32, 128, 256 }, function() return L.Activation { "gelu" } end)
grads("softplus grad", { 32, 128, 256 }, function() return L.Activation { "softplus" } end)

-- ---- a process that runs cases on request ---------------------------------------------------------------------

local function time(fn, ms)
  local least, stop = math.huge, core.clock() + ms / 1000
  repeat
    local start = core.clock()
    fn()
    least = math.min(least, core.clock() - start)
  until core.clock() >= stop
  return least * 1e6
end

if options.serve then
  io.stdout:setvbuf "no"
  local fn, made
  for line in io.lines() do
    local ms, name = line:match "^(%S+) (.*)$"
    if made ~= name then
      made, fn = name, nil
      collectgarbage()
      local ok, result = pcall(cases[name])
      if ok then fn = result end
      if ok then ok, result = pcall(fn) end
      if not ok then
        fn = nil
        io.stderr:write(name, ": ", tostring(result), "\n")
      end
      if fn then fn() end
    end
    print(fn and ("%.3f"):format(time(fn, tonumber(ms))) or "nan")
  end
  os.exit(0, true)
end

-- ---- turns ---------------------------------------------------------------------------------------------------

local function start(program)
  local folder = io.popen("mktemp -d"):read "*l"
  os.execute(("mkfifo %s/in %s/out"):format(folder, folder))
  os.execute(("MGPU_THREADS=%s %s %s --serve yes <%s/in >%s/out &"):format(options.threads, program, arg[0],
    folder, folder))
  local peer = { folder = folder, input = io.open(folder .. "/in", "w"), output = io.open(folder .. "/out") }
  peer.input:setvbuf "no"
  return peer
end

local peers = {}
for program in options.builds:gmatch "[^,]+" do
  peers[#peers + 1] = start(program)
end
for _, name in ipairs(order) do
  if name:find(options.only) then
    local least = {}
    for _ = 0, tonumber(options.rounds) do
      for i, peer in ipairs(peers) do
        peer.input:write(options.turn, " ", name, "\n")
        least[i] = math.min(least[i] or math.huge, tonumber(peer.output:read "*l") or math.huge)
      end
    end
    local line = { ("%-28s"):format(name) }
    for i, us in ipairs(least) do
      line[#line + 1] = ("%10.2f"):format(us)
      if i > 1 then line[#line + 1] = (" %5.2f"):format(us / least[1]) end
    end
    print(table.concat(line))
    io.stdout:flush()
  end
end
for _, peer in ipairs(peers) do
  peer.input:close()
  peer.output:close()
  os.execute("rm -r " .. peer.folder)
end
