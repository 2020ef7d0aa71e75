-- How evenly the threads of the cpu device share the work of a layer, on machines with more cores than this one.
--
--     build/mgpulua tests/bench/work_per_thread.lua [--models NAME,NAME] [--threads 4,8,16,64] [--batch 32] [--all]
--
-- Each layer of the models, with the shapes that it has there, runs forward and backward on teams of simulated threads
-- (team_simulator.c: coroutines, whose processor times are measured). A row is a layer; a column is the share of the
-- busiest thread over the mean share, 1.00 if all have the same to do, and in brackets the part of the step that one
-- thread does alone. oneDNN's own kernels are left out of both. Rows within 1.10 everywhere are only counted, unless
-- there is --all.

local HERE = "tests/bench/"
local SIMULATOR = "build/team_simulator.so"
local options = { models = "lenet5,mnist_cnn,cifar10_cnn,resnet18,mobilenet_v2", threads = "4,8,16,64", batch = "32" }
for i = 1, #arg do
  local name, value = arg[i]:match "^%-%-(%w+)$", arg[i + 1]
  if name then options[name] = value and not value:find "^%-%-" and value or true end
end

local function words(text)
  local list = {}
  for word in text:gmatch "[^,]+" do table.insert(list, word) end
  return list
end

-- ---- one number of threads: a process of its own ---------------------------------------------------

-- The shapes of a layer's inputs, with the batch size.
local function input_shapes(layer)
  local input, shapes = layer.input, {}
  for i, symbol in ipairs(input.shape and { input } or input) do
    shapes[i] = { unpack(symbol:shape()) }
    shapes[i][1] = tonumber(options.batch)
  end
  return shapes
end

local function text_of(shapes)
  local list = {}
  for i, shape in ipairs(shapes) do list[i] = table.concat(shape, "x") end
  return table.concat(list, " + ")
end

-- The layer forward and backward.
local function make_step(mgpu, layer, shapes)
  local xs = {}
  for i, shape in ipairs(shapes) do xs[i] = mgpu.variable(mgpu.randn(shape)) end
  local variables = { unpack(xs) }
  for _, v in ipairs(layer.trainable_variables) do table.insert(variables, v) end
  local step = mgpu.jit(function()
    local _, gradients = mgpu.value_and_grad(function()
      return layer(#xs == 1 and xs[1] or xs, { training = true }):sum()
    end, variables)()
    return unpack(gradients)
  end)
  return function() mgpu.eval(step()) end
end

local STEPS, SECONDS, FEWEST = 40, 1, 8 -- of each layer: after SECONDS no more than FEWEST

-- Prints a line for each different layer of the models: name, busiest share over the mean, part done by one thread.
local function measure()
  local ffi, mgpu = require "ffi", require "mgpu"
  ffi.cdef "void team_reset(void), team_begin_step(void);"
  ffi.cdef "double team_total(void), team_library(void), team_balance(void);"
  local seen = {}
  for _, name in ipairs(words(options.models)) do
    local model = mgpu.models[name] {}
    for _, layer in ipairs(model.layers) do
      local shapes = layer.input and input_shapes(layer)
      local title = shapes and ("%s %s"):format(layer.class_name or layer.name, text_of(shapes))
      if title and not seen[title] then
        seen[title] = true
        ffi.C.team_reset()
        local step = make_step(mgpu, layer, shapes)
        step()
        step()
        local alone, began = math.huge, os.clock() -- the least of all steps: noise only adds
        for n = 1, STEPS do
          if n > FEWEST and os.clock() - began > SECONDS then break end
          ffi.C.team_begin_step()
          local start = os.clock()
          step()
          local all, shared = os.clock() - start - ffi.C.team_library(), ffi.C.team_total()
          alone = math.min(alone, math.max(0, 1 - shared / all))
        end
        print(("%s\t%.4f\t%.4f"):format(title, ffi.C.team_balance(), alone))
        io.flush()
        collectgarbage()
      end
    end
  end
end

if options.measure then return measure() end

-- ---- the table -------------------------------------------------------------------------------------

local compiler = os.getenv "CC" or "cc"
assert(os.execute(("%s -O2 -shared -fPIC -o %s %steam_simulator.c"):format(compiler, SIMULATOR, HERE)) == 0)
local counts, rows, order = words(options.threads), {}, {}
for _, n in ipairs(counts) do
  local command = "MGPU_THREADS=%s LD_PRELOAD=%s %s %swork_per_thread.lua --measure --models %s --batch %s"
  local pipe = io.popen(command:format(n, SIMULATOR, arg[-1], HERE, options.models, options.batch))
  for line in pipe:lines() do
    local title, balance, alone = line:match "^(.-)\t(%S+)\t(%S+)$"
    if title then
      if not rows[title] then
        rows[title] = {}
        table.insert(order, title)
      end
      rows[title][n] = { balance = tonumber(balance), alone = tonumber(alone) }
    end
  end
  assert(pipe:close())
end

print(("\nbusiest thread over the mean, forward and backward, batch %s; in brackets what one thread does alone"):format(
  options.batch))
print(("  %-52s"):format "threads" .. ("%14s"):rep(#counts):format(unpack(counts)))
local even = 0
for _, title in ipairs(order) do
  local worst, cells = 1, {}
  for i, n in ipairs(counts) do
    local cell = rows[title][n]
    worst = math.max(worst, cell.balance)
    cells[i] = ("%7.2f (%2.0f %%)"):format(cell.balance, cell.alone * 100)
  end
  if worst <= 1.1 then even = even + 1 end
  if worst > 1.1 or options.all then print(("  %-52s%s"):format(title, table.concat(cells))) end
end
print(("  %d of %d layers at most 1.10"):format(even, #order))
