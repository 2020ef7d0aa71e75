-- Predictions beside onnxruntime's: mgpu.compile_inference on the CPU, batches of 1 and 16 rows.
--
--     build/mgpulua tests/bench/predict.lua [--nets lenet5,mobilenet_v2,...] [--batches 1,16] [--threads 1,2]
--         [--rounds 7] [--venv FOLDER] [--spin 1]
--
-- A model of random weights is exported to ONNX, and both predict for the same shapes in processes that take turns
-- (race.lua), so that noise of the machine affects both. Columns: our and their fastest prediction in ms, theirs / ours
-- (more than 1: we are faster) of the fastest and of the medians within rounds, and memory in MB: what is resident now
-- of ours, the peak of theirs. The answers also have "first", the seconds from the start of the process to the end of
-- the first prediction. The figures are of this machine at this time.
--
-- With `--serve NET --batch N --count T` it is our side of that: it answers the requests of peer_protocol.py.

local HERE = "tests/bench/"
package.path = HERE .. "?.lua;" .. package.path

local options = { nets = "lenet5,mnist_cnn,mobilenet_v2,resnet18,resnet50,vgg16,gpt_block", batches = "1,16",
  threads = "1,2", rounds = "7", spin = "1", venv = os.getenv "HOME" .. "/.cache/mgpulua/onnxruntime-venv" }
for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end

local mgpu = require "mgpu"
local core = require "mgpu.core"
local L = mgpu.layers

-- ---- the nets -----------------------------------------------------------------------------------

-- A block of GPT-2's size over 64 positions: attention and the dense network, on vectors.
local function gpt_block()
  local x = mgpu.Input { 64, 768 }
  local h = L.LayerNormalization {} (x)
  h = L.Add {} { x, L.MultiHeadAttention { num_heads = 12, key_dim = 64 } { h, h } }
  local wide = L.Dense { 3072, activation = "gelu" } (L.LayerNormalization {} (h))
  return mgpu.Model { inputs = x, outputs = L.Add {} { h, L.Dense { 768 } (wide) } }
end

local function make(net)
  mgpu.seed(1)
  return net == "gpt_block" and gpt_block() or mgpu.models[net] {}
end

local function row_shape(model)
  local shape = model.built_shape
  if type(shape[1]) == "table" then shape = shape[1] end
  return { unpack(shape, 2) }
end

-- ---- our side -----------------------------------------------------------------------------------

local function resident_mb(field)
  local text = io.open("/proc/self/status"):read "*a"
  return tonumber(text:match(field .. ":%s*(%d+)")) / 1024
end

-- Seconds since this process began, to about 10 ms.
local function age()
  local stat = io.open("/proc/self/stat"):read "*a":match "%)(.*)"
  local fields = {}
  for field in stat:gmatch "%S+" do fields[#fields + 1] = field end
  return tonumber(io.open("/proc/uptime"):read "*n") - tonumber(fields[20]) / 100
end

local function serve()
  local model = mgpu.load_model(options.serve)
  local shape, batch = row_shape(model), tonumber(options.batch)
  local f = mgpu.compile_inference(model, { batch = batch, threads = tonumber(options.count) })
  local x = mgpu.rand { batch, unpack(shape) }
  core.eval(x)
  core.eval(f(x))
  local first = age()
  for line in io.lines() do
    local n = line:match "^run (%d+)$"
    if n then
      local ms = {}
      for i = 1, tonumber(n) do
        local start = core.clock()
        f(x)
        ms[i] = ("%.5f"):format((core.clock() - start) * 1e3)
      end
      print(('{"ms": [%s], "first": %.3f}'):format(table.concat(ms, ", "), first))
    elseif line == "memory" then
      print(('{"mb": %.1f}'):format(resident_mb "VmRSS"))
    end
    io.flush()
  end
end

if options.serve then
  serve()
  return
end

-- ---- the race -----------------------------------------------------------------------------------

local race = require "race"

local function python()
  local path = options.venv .. "/bin/python"
  if select(2, race.shell(path .. " -c 'import onnxruntime'")) == 0 then return path end
  print("installing onnxruntime in " .. options.venv .. " (once) ...")
  local _, status = race.shell(("python3 -m venv '%s' && '%s/bin/pip' install -q onnxruntime numpy"):format(
    options.venv, options.venv))
  return status == 0 and path or nil
end

local folder = race.shell "mktemp -d":gsub("\n", "")

local function least(list) return math.min(unpack(list, 1, math.min(#list, 7000))) end

-- Predictions of a round: about half a second.
local function steps_for(f, x)
  f(x)
  local start = core.clock()
  f(x)
  return math.max(3, math.min(1000, math.floor(0.4 / (core.clock() - start))))
end

local function row(net, batch, threads, interpreter, model)
  local shape = row_shape(model)
  local x = mgpu.rand { batch, unpack(shape) }
  core.eval(x)
  local steps = steps_for(mgpu.compile_inference(model), x)
  local ours = ("env MGPU_THREADS=%d %s %spredict.lua --serve %s/%s.safetensors --batch %d --count %d"):format(threads,
    arg[-1], HERE, folder, net, batch, threads)
  local theirs = ("%s %speer_onnxruntime.py --model %s/%s.onnx --batch %d --threads %d --shape %s --spin %s"):format(
    interpreter, HERE, folder, net, batch, threads, table.concat(shape, ","), options.spin)
  local list = race.race({ { name = "mgpulua", command = ours }, { name = "onnxruntime", command = theirs },
    busy = true }, tonumber(options.rounds), steps)
  if not list[2] then return end
  local a, b = list[1], list[2]
  print(("%-14s %5d %7d %10.3f %10.3f %7.2f %7.2f %9s %9s"):format(net, batch, threads, least(a.ms), least(b.ms),
    least(b.ms) / least(a.ms), b.ratio, a.memory, b.memory))
  io.flush()
end

local interpreter = python()
if not interpreter then
  print "skipped: onnxruntime cannot be installed"
  return
end
print(("%-14s %5s %7s %10s %10s %7s %7s %9s %9s"):format("net", "batch", "threads", "ours ms", "theirs ms", "ratio",
  "median", "ours MB", "theirs MB"))
for net in options.nets:gmatch "[%w_]+" do
  local model = make(net)
  model:save(("%s/%s.safetensors"):format(folder, net))
  model:save(("%s/%s.onnx"):format(folder, net))
  for batch in options.batches:gmatch "%d+" do
    for threads in options.threads:gmatch "%d+" do
      row(net, tonumber(batch), tonumber(threads), interpreter, model)
    end
  end
end
os.execute("rm -rf " .. folder)
