-- How evenly the threads of the cpu device share the work of a layer, on machines with more cores than this one.
--
--     build/mgpulua tests/bench/work_per_thread.lua [--models NAME,NAME] [--threads 4,8,16,64] [--batch 64] [--all]
--       [--layer "part of a title"] [--phases]
--
-- Each layer of the models, with the shapes that it has there, runs forward and backward on teams of simulated threads.
-- Their work is counted, not timed (team_simulator.c), so the numbers are the same in each run. This script makes the
-- build that counts (MODE=count). A row is a layer; a column is the share of the busiest thread over the mean share,
-- 1.00 if all have the same to do, and in brackets the part of the work that one thread does alone. oneDNN's own
-- kernels are left out of both. Rows within 1.10 everywhere are only counted, unless there is --all. --phases lists
-- what the team does from barrier to barrier: address of the function in mgpu-cpu.so (for addr2line -fe), work, ratio.

local HERE = "tests/bench/"
local options = { models = "lenet5,mnist_cnn,cifar10_cnn,resnet18,mobilenet_v2", threads = "4,8,16,64", batch = "64" }
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

-- The layer forward, and backward from a given gradient of its result.
local function make_step(mgpu, layer, shapes)
  local xs = {}
  for i, shape in ipairs(shapes) do xs[i] = mgpu.variable(mgpu.randn(shape)) end
  local variables = { unpack(xs) }
  for _, v in ipairs(layer.trainable_variables) do table.insert(variables, v) end
  local x = #xs == 1 and xs[1] or xs
  local dy = mgpu.variable(mgpu.randn(layer(x, { training = false }):shape()))
  local step = mgpu.jit(function()
    local y
    local _, gradients = mgpu.value_and_grad(function()
      y = layer(x, { training = true })
      return (y * dy):sum()
    end, variables)()
    return y, unpack(gradients)
  end)
  return function() mgpu.eval(step()) end
end

-- Prints a line for each different layer of the models: the work that threads share, that work if all had as much to do
-- as the busiest, and the work that one thread does alone.
local function measure()
  local ffi, mgpu = require "ffi", require "mgpu"
  ffi.cdef "void team_begin(bool), team_end(void); double team_shared(void), team_longest(void), team_alone(void);"
  local seen = {}
  for _, name in ipairs(words(options.models)) do
    local model = mgpu.models[name] {}
    for _, layer in ipairs(model.layers) do
      local shapes = layer.input and input_shapes(layer)
      local title = shapes and ("%s %s"):format(layer.class_name or layer.name, text_of(shapes))
      if title and not seen[title] and (not options.layer or title:find(options.layer, 1, true)) then
        seen[title] = true
        local step = make_step(mgpu, layer, shapes)
        step()
        if options.phases then io.stderr:write(title, "\n") end
        ffi.C.team_begin(options.phases == true)
        step()
        ffi.C.team_end()
        print(("%s\t%d\t%d\t%d"):format(title, ffi.C.team_shared(), ffi.C.team_longest(), ffi.C.team_alone()))
        io.flush()
        collectgarbage()
      end
    end
  end
end

if options.measure then return measure() end

-- ---- the table -------------------------------------------------------------------------------------

-- What a command prints.
local function output(command)
  local pipe = io.popen(command)
  local text = pipe:read "*a"
  assert(pipe:close(), command)
  return text
end

-- The build that counts, and the simulator in its folder.
local function build()
  local make, compiler = "make -s MODE=count SKIP_KINDS=cuda ", os.getenv "CC" or "cc"
  output(make .. "all")
  local folder = output(make .. [[--eval 'folder: ; @echo $B' folder]]):match "%S+"
  local command = "%s -O2 -fno-builtin -shared -fPIC -o %s/team_simulator.so %steam_simulator.c"
  output(command:format(compiler, folder, HERE))
  return folder
end

-- The counts of each layer by its title, and the titles in order: for teams of n threads.
local function count(folder, n)
  local command = "MGPU_THREADS=%s LD_PRELOAD=%s/team_simulator.so %s/mgpulua %swork_per_thread.lua --measure '%s'"
  local text = output(command:format(n, folder, folder, HERE, table.concat(arg, "' '")))
  local rows, order = {}, {}
  for title, shared, longest, alone in text:gmatch "([^\n]-)\t(%d+)\t(%d+)\t(%d+)\n" do
    local all = shared + alone
    local balance = tonumber(shared) > 0 and longest / shared or 1
    rows[title] = { all = all, balance = balance, alone = all > 0 and alone / all or 1 }
    table.insert(order, title)
  end
  assert(#order > 0, "no layers")
  return rows, order
end

local folder, teams, columns, order = build(), words(options.threads), {}, nil
for i, n in ipairs(teams) do columns[i], order = count(folder, n) end

print(("\nbusiest thread over the mean, forward and backward, batch %s; in brackets what one thread does alone"):format(
  options.batch))
print(("  %-44s%8s"):format("threads", "work") .. ("%14s"):rep(#teams):format(unpack(teams)))
local even, single = 0, 0
for _, title in ipairs(order) do
  local worst, alone, cells = 1, 1, {}
  for i, rows in ipairs(columns) do
    local row = rows[title]
    worst, alone = math.max(worst, row.balance), math.min(alone, row.alone)
    cells[i] = ("%7.2f (%2.0f %%)"):format(row.balance, row.alone * 100)
  end
  if alone == 1 then
    single = single + 1
  elseif worst <= 1.1 then
    even = even + 1
  end
  if worst > 1.1 or options.all then
    print(("  %-44s%8.1f%s"):format(title, columns[1][title].all / 1e6, table.concat(cells)))
  end
end
print(("  work: millions of bytes of code. %d layers, %d at most 1.10, %d by oneDNN or by one thread"):format(
  #order, even, single))
