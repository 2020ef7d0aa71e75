-- mgpulua --serve: predictions over HTTP, by KServe's protocol and by POST /predict, and how they are joined.

local check = require "check"
local core = require "mgpu.core"
local ffi = require "ffi"
local mgpu = require "mgpu"
local L = mgpu.layers

local test = check.test

local has_plugin, probe = pcall(core.server, { port = 0 })
if not has_plugin then check.skip(probe) end
probe:close()
local serving = dofile "tests/lua/serve/serving.lua"
local client, post, get = serving.client, serving.post, serving.get

local ROUNDING = 1e-5 -- of float32 sums in another order

mgpu.seed(1)

-- Saves a model, and forgets it: tests must not keep tensors.
local function saved(name, make)
  local path = check.path(name)
  make():save(path)
  return path
end

local function small()
  return mgpu.Sequential { mgpu.Input { 3 }, L.Dense { 8, activation = "tanh" },
    L.Dense { 2, name = "y", activation = "softmax" } }
end

local function two()
  local a, b = mgpu.Input { 2, name = "a" }, mgpu.Input { 3, name = "b" }
  local h = L.Concatenate {} { a, b }
  return mgpu.Model { inputs = { a, b }, outputs = { L.Dense { 2, name = "p" } (h), L.Dense { 1, name = "q" } (h) } }
end

local SMALL, TWO = saved("small.keras", small), saved("two.safetensors", two)

-- What the model in the file predicts, as a table.
local function predicted(path, x)
  local y = mgpu.load_model(path):predict(x)
  return core.is_tensor(y) and y:totable() or { y[1]:totable(), y[2]:totable() }
end

local ROWS = { { 1, 2, 3 }, { -1, 0.5, 0 }, { 0, 0, 1 } }

local function floats(list) return ffi.string(ffi.new("float[?]", #list, list), 4 * #list) end

local function infer_json(shape, data, more)
  return core.json_encode { inputs = { { name = "input", shape = shape, datatype = "FP32", data = data } },
    outputs = more }
end

test("the server describes itself and the model", function()
  serving.with(SMALL, "--name a/b", function(port)
    check.equal(select(2, get(port, "/v2")), { name = "mgpulua", version = core.version,
      extensions = { "binary_tensor_data" } })
    check.equal({ get(port, "/v2/health/live"), get(port, "/v2/health/ready"), get(port, "/v2/models/a/b/ready"),
      (get(port, "/v2/models/a%2Fb/versions/1/ready")) }, { 200, 200, 200, 200 })
    check.equal(select(2, get(port, "/v2/models/a/b")), { name = "a/b", versions = { "1" }, platform = "mgpulua",
      inputs = { { name = "input", datatype = "FP32", shape = { -1, 3 } } },
      outputs = { { name = "y", datatype = "FP32", shape = { -1, 2 } } } })
    local function refused(path, status, message)
      local got, answer = get(port, path)
      check.equal(got, status)
      check.matches(answer.error, message)
    end
    refused("/v2/models/c", 404, 'there is no model "c", only "a/b"')
    refused("/v2/models/a/b/versions/2", 404, 'no version "2", only "1"')
    refused("/other", 404, "there is nothing at /other")
    refused("/predict", 405, "GET is not possible here, only POST")
    local _, _, r = get(port, "/")
    check.matches(r.body, "<td>input</td><td>FP32</td><td>%[%-1, 3%]</td>")
  end)
end)

test("predictions in every form are those of the model", function()
  local expected = predicted(SMALL, mgpu.tensor(ROWS))
  serving.with(SMALL, nil, function(port)
    local status, answer = post(port, "/predict", core.json_encode { inputs = ROWS })
    check.equal(status, 200)
    check.near(answer.outputs, expected, ROUNDING)
    answer = select(2, post(port, "/predict", core.json_encode { instances = ROWS }))
    check.near(answer.predictions, expected, ROUNDING)
    answer = select(2, post(port, "/predict", core.json_encode { inputs = { input = ROWS } }))
    check.near(answer.outputs, expected, ROUNDING)
    -- KServe: flat, nested, binary in and out
    local flat = { 1, 2, 3, -1, 0.5, 0, 0, 0, 1 }
    local wanted = { expected[1][1], expected[1][2], expected[2][1], expected[2][2], expected[3][1], expected[3][2] }
    for _, data in ipairs { flat, ROWS } do
      status, answer = post(port, "/v2/models/small/infer", infer_json({ 3, 3 }, data))
      check.equal({ status, answer.model_name, answer.outputs[1].name, answer.outputs[1].shape },
        { 200, "small", "y", { 3, 2 } })
      check.near(answer.outputs[1].data, wanted, ROUNDING)
    end
    local head = core.json_encode { id = "7", parameters = { binary_data_output = true }, inputs = { { name = "input",
      shape = { 3, 3 }, datatype = "FP32", parameters = { binary_data_size = 36 } } } }
    local _, _, r = post(port, "/v2/models/small/versions/1/infer", head .. floats(flat),
      { ["Inference-Header-Content-Length"] = tostring(#head) })
    local length = tonumber(r.headers["inference-header-content-length"])
    answer = core.json_decode(r.body:sub(1, length))
    check.equal({ r.status, answer.id, answer.outputs[1].parameters.binary_data_size, #r.body - length },
      { 200, "7", 24, 24 })
    local got = ffi.cast("const float *", r.body:sub(length + 1))
    for i = 1, 6 do check.near(got[i - 1], wanted[i], ROUNDING) end
    -- .npy, also of another dtype
    local npy = core.npy_encode(mgpu.tensor(ROWS, { dtype = "float64" }))
    _, _, r = post(port, "/predict", npy)
    check.equal(r.headers["content-type"], "application/x-npy")
    check.near(core.npy_decode(r.body), expected, ROUNDING)
    check.near(select(2, post(port, "/predict", npy, { Accept = "application/json" })).outputs, expected, ROUNDING)
    _, _, r = post(port, "/predict", core.json_encode { inputs = ROWS }, { Accept = "application/x-npy" })
    check.near(core.npy_decode(r.body), expected, ROUNDING)
    -- more rows than a batch
    local many = {}
    for i = 1, 100 do many[i] = ROWS[i % 3 + 1] end
    answer = select(2, post(port, "/predict", core.json_encode { inputs = many })).outputs
    check.equal(#answer, 100)
    for i = 1, 100 do check.near(answer[i], expected[i % 3 + 1], ROUNDING) end
    -- NaN is a string, both ways
    answer = select(2, post(port, "/predict", '{"inputs": [["NaN", 1, 2]]}')).outputs
    check.equal(answer, { { "NaN", "NaN" } })
  end)
end)

test("several inputs and outputs go by name", function()
  local a, b = { { 1, 2 }, { 3, 4 } }, { { 1, 0, 0 }, { 0, 1, 0 } }
  local expected = predicted(TWO, { mgpu.tensor(a), mgpu.tensor(b) })
  serving.with(TWO, nil, function(port)
    local _, answer = post(port, "/predict", core.json_encode { inputs = { a = a, b = b } })
    check.near(answer.outputs.p, expected[1], ROUNDING)
    check.near(answer.outputs.q, expected[2], ROUNDING)
    _, answer = post(port, "/predict", core.json_encode { instances = { { a = a[1], b = b[1] },
      { a = a[2], b = b[2] } } })
    check.near(answer.predictions[2].p, expected[1][2], ROUNDING)
    check.near(answer.predictions[2].q, expected[2][2], ROUNDING)
    _, answer = post(port, "/v2/models/two/infer", core.json_encode { outputs = { { name = "q" } }, inputs = {
      { name = "b", shape = { 2, 3 }, datatype = "FP32", data = b },
      { name = "a", shape = { 2, 2 }, datatype = "FP32", data = a } } })
    check.equal({ #answer.outputs, answer.outputs[1].name }, { 1, "q" })
    check.near(answer.outputs[1].data, { expected[2][1][1], expected[2][2][1] }, ROUNDING)
    local function refused(given, message)
      local status, problem = post(port, "/predict", core.json_encode(given))
      check.equal(status, 400)
      check.matches(problem.error, message)
    end
    refused({ inputs = { a = a } }, 'input "b" is missing in inputs')
    refused({ inputs = { a = a, B = b } }, 'there is no input "B"')
    refused({ inputs = a }, "inputs must be an object with the inputs a, b")
    refused({ inputs = { a = a, b = { b[1] } } }, 'input "b" has 1 rows, but input "a" has 2')
    check.matches(select(2, post(port, "/predict", core.npy_encode(mgpu.ones { 1, 2 }))).error,
      "the model has the inputs a, b: send JSON")
  end)
end)

test("what does not fit the model is refused, with the input, what was given and what was expected", function()
  serving.with(SMALL, "--max-body 64K", function(port)
    local function infer(body, message, headers, expected)
      local status, answer = post(port, "/v2/models/small/infer", body, headers)
      check.equal(status, expected or 400)
      check.matches(answer.error, message)
    end
    local function predict(body, message, headers, expected)
      local status, answer = post(port, "/predict", body, headers)
      check.equal(status, expected or 400)
      check.matches(answer.error, message)
    end
    local function input(fields)
      local given = { name = "input", shape = { 1, 3 }, datatype = "FP32", data = { 1, 2, 3 } }
      for key, value in pairs(fields) do given[key] = value ~= false and value or nil end
      return core.json_encode { inputs = { given } }
    end
    infer("{", "the body is no JSON")
    infer("[1]", "the body must be an object")
    infer(("["):rep(5000), "the body is no JSON")
    infer("{}", "inputs are missing")
    infer('{"inputs": 1}', "inputs must be an array")
    infer('{"inputs": [1]}', "the entries of inputs must be objects")
    infer('{"inputs": [{}]}', "an entry of inputs has no name")
    infer('{"inputs": []}', 'input "input" is missing')
    infer('{"id": 1, "inputs": []}', "id must be a string")
    infer(input { name = "z" }, 'there is no input "z"; the model has input')
    infer(input { datatype = "INT32" }, 'input "input": its datatype is INT32, expected FP32')
    infer(input { datatype = false }, "its datatype is missing, expected FP32")
    infer(input { shape = false }, "its shape is missing")
    infer(input { shape = { 1, -3 } }, "its shape must hold sizes")
    infer(input { shape = { 1, 2.5 } }, "its shape must hold sizes")
    infer(input { shape = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 3 } }, "at most 8 sizes")
    infer(input { shape = { 1, 4 } }, "its shape %[1, 4%] has 4 elements, but its data have 3")
    infer(input { shape = { 3, 1 } }, "its shape is %[3, 1%], expected %[%-1, 3%]")
    infer(input { shape = { 1000000, 1000000 } }, "has 1000000000000 elements, but its data have 3")
    infer(input { shape = { 0, 3 }, data = core.empty_array }, "has the size 0 for axis 1")
    infer(input { data = { { 1, 2 }, { 3 } } }, "different lengths: one at depth 2 has 1, the first one 2")
    infer(input { data = { { 1, 2, { 3 } } } }, "no common depth")
    infer(input { data = { 1, "x", 3 } }, 'element 2 of its data is "x", expected a number')
    infer(input { data = { 1, core.null, 3 } }, "element 2 of its data is null")
    infer(input { data = false }, "neither data nor binary_data_size")
    infer(input { data = false, parameters = { binary_data_size = 12 } },
      "its binary_data_size is 12, but the body has 0")
    infer(input { data = false, parameters = { binary_data_size = -1 } }, "its binary_data_size is %-1")
    infer(input { parameters = { 1 } }, "the parameters of an input must be an object")
    infer(input {}, 'Inference%-Header%-Content%-Length is "99999"', { ["Inference-Header-Content-Length"] = "99999" })
    infer(input {}, 'Content%-Length is "x"', { ["Inference-Header-Content-Length"] = "x" })
    infer(input {} .. "junk", "4 bytes behind the data", { ["Inference-Header-Content-Length"] = tostring(#input {}) })
    infer('{"outputs": [{"name": "z"}], ' .. input {}:sub(2), 'there is no output "z"; the model has y')
    infer('{"outputs": [{"name": "y", "parameters": {"classification": 2}}], ' .. input {}:sub(2), "not supported")
    infer(input {}, "the body is compressed %(gzip%)", { ["Content-Encoding"] = "gzip" }, 415)
    predict("{}", 'give either "inputs" or "instances"')
    predict('{"inputs": [[1, 2, 3]], "instances": []}', 'give either "inputs" or "instances"')
    predict('{"input": [[1, 2, 3]]}', 'did you mean "inputs"')
    predict('{"instances": []}', "at least one row")
    predict('{"inputs": [[1, 2]]}', "its shape is %[1, 2%], expected %[%-1, 3%]")
    predict('{"inputs": 5}', "its shape is %[%], expected")
    predict("\147NUMPY\1\0v\0", 'input "input": ')
    local bomb = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 1000000000), }"
    predict("\147NUMPY\1\0" .. string.char(#bomb + 1, 0) .. bomb .. "\n", 'input "input": ')
    predict(core.npy_encode(mgpu.ones { 2, 4 }), "its shape is %[2, 4%]")
    predict('{"inputs": [[1, 2, 1e39]]}', "element 3 of its data is [%d.e+]+, which is too large for FP32")
    predict('{"inputs": [[1, 2, -1e300]]}', "which is too large for FP32")
    predict(core.npy_encode(mgpu.tensor({ { 1, 2, 1e39 } }, { dtype = "float64" })),
      "the array is float64, and has numbers that float32 does not hold")
    predict(('{"inputs": [%s]}'):format(("[1, 2, 3],"):rep(10000)), "too large", nil, 413)
    check.equal(post(port, "/predict", core.json_encode { inputs = ROWS }), 200) -- it goes on
  end)
end)

test("requests of a thousand clients at once are joined, and none is lost", function()
  local expected = predicted(SMALL, mgpu.tensor(ROWS))
  local CLIENTS, TIMES = 1000, 3
  serving.with(SMALL, nil, function(port)
    local texts, answers = {}, 0
    for i = 1, CLIENTS do
      texts[i] = client.text("POST", "/predict", nil, core.json_encode { inputs = { ROWS[i % 3 + 1] } })
    end
    client.many(port, texts, TIMES, function(i, r)
      check.truthy(r, "an answer")
      check.equal(r.status, 200)
      check.near(core.json_decode(r.body).outputs[1], expected[i % 3 + 1], ROUNDING)
      answers = answers + 1
    end)
    check.equal(answers, CLIENTS * TIMES)
    local _, _, r = get(port, "/metrics")
    local function counter(name) return tonumber(r.body:match("\n" .. name .. " (%d+)")) end
    check.equal(counter "mgpu_rows_total", CLIENTS * TIMES)
    check.equal(counter "mgpu_prediction_seconds_count", CLIENTS * TIMES)
    check.equal(counter 'mgpu_requests_total{path="predict",status="200"}', CLIENTS * TIMES)
    check.truthy(counter "mgpu_batches_total" < CLIENTS * TIMES, "joined requests")
  end)
end)

test("rows of unequal shapes are not joined, and one bad request does not spoil a batch", function()
  local path = saved("ids.safetensors", function()
    return mgpu.Sequential { mgpu.Input { -1, dtype = "int32" }, L.Embedding { 5, 4 },
      L.GlobalAveragePooling1D {}, L.Dense { 2 } }
  end)
  serving.with(path, "--max-delay 200", function(port)
    local texts, statuses = {}, {}
    for i, ids in ipairs { "0,1", "1,2,3", "4,4", "1,99", "3,1,2" } do
      texts[i] = client.text("POST", "/predict", nil, ('{"inputs": [[%s]]}'):format(ids))
    end
    client.many(port, texts, 1, function(i, r) statuses[i] = r and r.status end)
    check.equal({ statuses[1], statuses[2], statuses[3], statuses[5] }, { 200, 200, 200, 200 })
    check.truthy(statuses[4] == 400 or statuses[4] == 200, statuses[4]) -- gather may clamp ids
    check.matches(select(2, post(port, "/predict", '{"inputs": [[1.5]]}')).error, "1.5, which is no INT32")
    check.matches(select(2, post(port, "/predict", '{"inputs": [[3000000000]]}')).error,
      "3000000000, which is no INT32")
    check.matches(select(2, post(port, "/predict", core.npy_encode(mgpu.ones { 1, 2 }))).error,
      "the array is float32, expected int32")
  end)
end)

test("numbers of a .npy file that the input's dtype does not hold are refused", function()
  local path = saved("bytes.safetensors", function()
    local input = mgpu.Input { 2, dtype = "uint8" }
    return mgpu.Model { inputs = input, outputs = L.Rescaling { 0.5 } (input) }
  end)
  serving.with(path, nil, function(port)
    local function send(rows, dtype)
      local status, answer = post(port, "/predict", core.npy_encode(mgpu.tensor({ rows }, { dtype = dtype })),
        { Accept = "application/json" })
      return status, answer.error or answer.outputs[1]
    end
    check.equal({ send({ 0, 255 }, "int64") }, { 200, { 0, 127.5 } })
    check.equal({ send({ true, false }, "bool") }, { 200, { 0.5, 0 } })
    for _, row in ipairs { { 0, 256 }, { -1, 0 }, { 2 ^ 32 + 1, 0 } } do
      local status, message = send(row, "int64")
      check.equal(status, 400)
      check.matches(message, "the array is int64, and has numbers that uint8 does not hold")
    end
    check.matches(select(2, send({ 1, 2 }, "float32")), "the array is float32, expected uint8")
  end)
end)

test("a server with batches of one runs each request by itself, as it is", function()
  local path = saved("rows.onnx", small)
  local expected = predicted(path, mgpu.tensor(ROWS))
  serving.with(path, "--batch 1", function(port)
    local function batches()
      return tonumber(select(3, get(port, "/metrics")).body:match "\nmgpu_batches_total (%d+)")
    end
    local before = batches()
    for _ = 1, 2 do
      check.near(select(2, post(port, "/predict", core.json_encode { inputs = ROWS })).outputs, expected, ROUNDING)
    end
    check.equal(batches() - before, 2)
  end)
end)

test("so does a model whose number of rows is fixed", function()
  local seen = {}
  local model = setmetatable({ reads_values = false }, { __call = function(_, x)
    seen[#seen + 1] = x:shape()[1]
    return x * 2
  end })
  local values = require "mgpu.serve.values"
  local runner = require "mgpu.serve.runner".new(model, { joins = false, inputs = { {} }, outputs = { {} } }, 4)
  local jobs = {}
  for i = 1, 2 do jobs[i] = { columns = { values.from_tensor(mgpu.ones { 3, 2 } * i) }, rows = 3 } end
  runner:run(jobs)
  check.equal({ runner.batches, values.to_json(jobs[2].outputs[1]) }, { 2, "[[4,4],[4,4],[4,4]]" })
  check.equal(seen, { 3 }) -- traced once
end)

test("requests of a model whose rows depend on each other are not joined, nor filled up", function()
  for name, over_batch in pairs { softmax = function(x) return L.Softmax { axis = 1 } (x) end,
    cumsum = function(x) return x:cumsum { axis = 1 } end } do
    local path = saved(name .. ".safetensors", function()
      local input = mgpu.Input { 2 }
      return mgpu.Model { inputs = input, outputs = over_batch(input) }
    end)
    local s, texts, answers, expected = serving.start(path, "--max-delay 200"), {}, {}, {}
    for i, rows in ipairs { { { 1, 2 }, { 3, 4 }, { 8, 6 } }, { { 5, 5 } }, { { 0, 1 }, { 2, 7 } } } do
      texts[i] = client.text("POST", "/predict", nil, core.json_encode { inputs = rows })
      expected[i] = predicted(path, mgpu.tensor(rows))
    end
    client.many(s.port, texts, 1, function(i, r) answers[i] = core.json_decode(r.body).outputs end)
    check.matches(s.stop(), "warning: the rows of a batch depend on each other in this model")
    for i, rows in ipairs(expected) do check.near(answers[i], rows, ROUNDING) end
  end
end)

test("outputs with other rows than the batch are an error", function()
  local sums = setmetatable({ reads_values = false }, { __call = function(_, x) return x:sum { axis = 1 } end })
  local runner = require "mgpu.serve.runner".new(sums, { joins = true, inputs = { {} },
    outputs = { { name = "y" } } }, 4)
  local column = require "mgpu.serve.values".from_tensor(mgpu.ones { 2, 3 })
  check.raises(function() runner:run { { columns = { column }, rows = 2 } } end,
    'output "y" has 3 rows for a batch of 2: start with --batch 1', "unsupported")
end)

test("one process serves", function()
  check.matches(check.run(("%s --np 2 --serve %s --port 0"):format(check.program, SMALL)), "one process serves")
end)

test("texts are strings", function()
  local path = saved("texts.keras", function()
    local vectorize = L.TextVectorization { max_tokens = 10, output_sequence_length = 4,
      vocabulary = { "good", "bad" } }
    return mgpu.Sequential { mgpu.Input { 1, dtype = "string" }, vectorize, L.Embedding { 10, 4 },
      L.GlobalAveragePooling1D {}, L.Dense { 1 } }
  end)
  local expected = predicted(path, { { "good" }, { "bad bad" } })
  serving.with(path, nil, function(port)
    check.near(select(2, post(port, "/predict", '{"inputs": ["good", "bad bad"]}')).outputs, expected, ROUNDING)
    check.near(select(2, post(port, "/predict", '{"instances": [["good"], ["bad bad"]]}')).predictions, expected,
      ROUNDING)
    local head = '{"inputs":[{"name":"input","shape":[2,1],"datatype":"BYTES","parameters":{"binary_data_size":19}}]}'
    local bytes = "\4\0\0\0good\7\0\0\0bad bad"
    local headers = { ["Inference-Header-Content-Length"] = tostring(#head) }
    local status, answer = post(port, "/v2/models/texts/infer", head .. bytes, headers)
    check.equal(status, 200)
    check.near(answer.outputs[1].data, { expected[1][1], expected[2][1] }, ROUNDING)
    check.matches(select(2, post(port, "/v2/models/texts/infer", head .. "\4\0\0\0good\8\0\0\0bad bad", headers)).error,
      "its binary data end within element 2")
    check.matches(select(2, post(port, "/predict", '{"inputs": [1]}')).error,
      "element 1 of its data is 1, expected a s")
    check.matches(select(2, post(port, "/predict", core.npy_encode(mgpu.ones { 1, 1 }))).error, "it takes texts")
  end)
end)

test("a stop under load answers every request that was accepted", function()
  for _, case in ipairs { { "TERM", 0 }, { "INT", 130 } } do
    local s = serving.start(SMALL)
    local texts, counts, output = {}, { ok = 0, refused = 0, closed = 0 }, nil
    for i = 1, 64 do
      texts[i] = client.text("POST", "/predict", nil, core.json_encode { inputs = { ROWS[i % 3 + 1] } })
    end
    client.many(s.port, texts, 1000, function(_, r)
      local kind = not r and "closed" or r.status == 200 and "ok" or r.status == 503 and "refused" or "wrong"
      counts[kind] = (counts[kind] or 0) + 1
      if counts.ok == 500 and not output then output = s.stop(case[1]) end -- the other 63 wait meanwhile
    end)
    check.equal(counts.wrong, nil)
    check.truthy(counts.ok >= 500, "answers")
    check.truthy(counts.closed <= 64, counts.closed) -- each connection ends once
    check.matches(output, ("status %d\n$"):format(case[2]))
  end
end)

test("options are checked", function()
  local function run(arguments)
    return check.run(("%s --serve %s </dev/null"):format(check.program, arguments))
  end
  local function refused(arguments, message, expected)
    local text, status = run(arguments)
    check.matches(text, message)
    check.equal(status, expected or 1)
  end
  refused("x.keras --prot 1", "%-%-serve: unknown option %-%-prot %(did you mean \"%-%-port\"")
  refused("x.keras --port", "%-%-port needs a value: %-%-port N")
  refused("x.keras --port 70000", "%-%-port 70000: give a whole number from 0 to 65535")
  refused("x.keras --batch 0", "%-%-batch 0: give a whole number from 1")
  refused("x.keras --max-delay x", "%-%-max%-delay x: give milliseconds")
  refused("x.keras --max-body 5X", "%-%-max%-body 5X: give a size such as 64M")
  refused("x.keras --token ''", "the token is empty")
  refused("x.keras --token @/nowhere", "%-%-token @/nowhere: ")
  refused("x.keras --token a --no-token", "not both")
  refused("x.keras --no-token=1", "%-%-no%-token takes no value")
  refused("x.keras --name=", "the name is empty")
  refused("x.keras other", "unknown option other")
  refused("--port=1", "give a model file")
  refused("x.keras --host 0.0.0.0", "others can reach %-%-host 0.0.0.0: give %-%-token TEXT")
  refused(SMALL .. " --host 192.0.2.1 --no-token", "warning: whoever reaches 192.0.2.1 can ask.*is not an address")
  refused(check.path "none.keras", "none.keras", 74)
  local text, status = run "--help"
  check.equal(status, 0)
  for _, name in ipairs(require "mgpu.serve.command_line".names) do
    check.truthy(text:find("\n  " .. name, 1, true), name)
  end
end)

test("a token is asked for, and may come from a file", function()
  check.write(check.path "token", "secret\n")
  serving.with(SMALL, "--token @" .. check.path "token", function(port)
    check.equal({ get(port, "/v2"), (get(port, "/v2?token=secret")) }, { 401, 200 })
  end)
end)
