-- Speed of mgpulua --serve here: times of requests with 1, 32 and 1,000 clients, each of which sends the next request
-- over its connection when it has its answer.
--
--     build/mgpulua tests/bench/serve.lua [MODEL]      MODEL: a file with one float32 input; else a small MLP is made
--
-- Clients and server share the processors. A request is one row as a binary tensor of KServe's protocol; the clients
-- are one process (tests/lua/serve/http_client.lua), which takes a part of the time.
package.path = "tests/?.lua;" .. package.path
local core = require "mgpu.core"
local mgpu = require "mgpu"
local client = dofile "tests/lua/serve/http_client.lua"

local SECONDS = 5 -- about, of each measurement
local program = arg[-1]

local function make_model(path)
  local L = mgpu.layers
  mgpu.Sequential { mgpu.Input { 64 }, L.Dense { 256, activation = "relu" }, L.Dense { 256, activation = "relu" },
    L.Dense { 10, activation = "softmax" } }:save(path)
end

-- Starts the server. RETURNS its port and process.
local function start(model, folder)
  os.execute(("%s --serve %s --port 0 >%s/out & echo $! >%s/pid"):format(program, model, folder, folder))
  local text = ""
  while not text:find "http://[^\n]*\n" do
    core.sleep(0.05)
    local file = io.open(folder .. "/out")
    text = file and file:read "*a" or ""
    if file then file:close() end
  end
  local file = io.open(folder .. "/pid")
  local pid = file:read "*n"
  file:close()
  return tonumber(text:match "http://[^\n]*:(%d+)/\n"), pid
end

-- The text of a request for one row.
local function request_of(port)
  local _, answer = nil, core.json_decode(client.request(port, "GET", "/v2/models/bench").body)
  local input = answer.inputs[1]
  local count, shape = 1, { 1, unpack(input.shape, 2) }
  for _, size in ipairs(shape) do count = count * size end
  local head = core.json_encode { parameters = { binary_data_output = true }, inputs = { { name = input.name,
    shape = shape, datatype = input.datatype, parameters = { binary_data_size = 4 * count } } } }
  return client.text("POST", "/v2/models/bench/infer", { ["Inference-Header-Content-Length"] = tostring(#head) },
    head .. ("\0"):rep(4 * count))
end

local function counter(port, name)
  return tonumber(client.request(port, "GET", "/metrics").body:match("\n" .. name .. " (%d+)"))
end

local function measure(port, text, clients, times)
  local texts, sent, seconds, lost = {}, {}, {}, 0
  for i = 1, clients do texts[i] = text end
  local batches, began = counter(port, "mgpu_batches_total"), core.clock()
  for i = 1, clients do sent[i] = began end
  client.many(port, texts, times, function(i, response)
    local now = core.clock()
    if not response or response.status ~= 200 then lost = lost + 1 end
    seconds[#seconds + 1], sent[i] = now - sent[i], now
  end)
  local all = core.clock() - began
  table.sort(seconds)
  local function at(share) return 1000 * seconds[math.max(1, math.ceil(share * #seconds))] end
  print(("%5d clients  %7.0f requests/s  p50 %8.2f ms  p99 %8.2f ms  %5.1f rows a batch  %d lost"):format(clients,
    #seconds / all, at(0.5), at(0.99), #seconds / (counter(port, "mgpu_batches_total") - batches), lost))
  return #seconds / all
end

local folder = os.tmpname()
os.remove(folder)
os.execute("mkdir " .. folder)
local model = arg[1] or folder .. "/bench.safetensors"
if not arg[1] then make_model(model) end
local port, pid = start(model .. " --name bench", folder)
local text = request_of(port)
for _, clients in ipairs { 1, 32, 1000 } do
  local first = math.max(2, math.ceil(1000 / clients))
  client.many(port, { text }, 10, function() end)
  local rate = measure(port, text, clients, first) -- compiles the sizes of batches
  measure(port, text, clients, math.max(2, math.ceil(rate * SECONDS / clients)))
end
os.execute(("kill %d; rm -r %s"):format(pid, folder))
