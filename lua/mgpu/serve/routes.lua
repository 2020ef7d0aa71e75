--- The paths: which function answers a request.
local core = require "mgpu.core"
local infer = require "mgpu.serve.infer"
local page = require "mgpu.serve.page"
local predict = require "mgpu.serve.predict"
local refuse = require "mgpu.serve.refuse".refuse
local values = require "mgpu.serve.values"

local M = {}

local JSON = "application/json"

local function as_json(value) return JSON, core.json_encode(value) .. "\n" end

-- ---- answers without a prediction: fn(server) -> content type and bytes ---------------------------

local function tensors(list)
  local described = {}
  for i, v in ipairs(list) do
    described[i] = { name = v.name, datatype = values.kserve_name(v.dtype), shape = #v.shape > 0 and v.shape
      or core.empty_array }
  end
  return described
end

local function model_metadata(server)
  local s = server.signature
  return as_json { name = s.name, versions = { "1" }, platform = "mgpulua", inputs = tensors(s.inputs),
    outputs = tensors(s.outputs) }
end

local function server_metadata()
  return as_json { name = "mgpulua", version = core.version, extensions = { "binary_tensor_data" } }
end

local FIXED = {
  ["/"] = function(server) return "text/html; charset=utf-8", page(server) end,
  ["/metrics"] = function(server)
    return "text/plain; version=0.0.4; charset=utf-8",
      server.metrics:text(server.runner.batches, server.http:clients())
  end,
  ["/v2"] = server_metadata,
  ["/v2/health/live"] = function() return as_json { live = true } end,
  ["/v2/health/ready"] = function() return as_json { ready = true } end,
}
FIXED["/v2/"] = server_metadata

-- ---- choosing -----------------------------------------------------------------------------------

local function need(request, ...)
  for _, method in ipairs { ... } do
    if request.method == method then return end
  end
  error({ status = 405, message = ("%s is not possible here, only %s"):format(request.method:sub(1, 20),
    table.concat({ ... }, " and ")), headers = { Allow = table.concat({ ... }, ", ") } }, 0)
end

-- The rest of a path of the model, "" or "/infer"; nil: it is no such path. Names may have slashes.
local function of_model(server, path)
  local rest = path:match "^/v2/models/(.*)$"
  if not rest then return nil end
  local name = server.signature.name
  local tail = rest:sub(1, #name) == name and rest:sub(#name + 1)
  local version, after = (tail or ""):match "^/versions/([^/]*)(.*)$"
  if not tail or (tail ~= "" and tail:sub(1, 1) ~= "/") then
    refuse(404, "there is no model \"%s\", only \"%s\"", rest:match "^[^/]*":sub(1, 80), name)
  end
  if version and version ~= "1" then
    refuse(404, "model \"%s\" has no version \"%s\", only \"1\"", name, version:sub(1, 40))
  end
  return version and after or tail
end

local function predicting(request, where, form)
  need(request, "POST")
  local encoding = request.headers["content-encoding"]
  if encoding and encoding ~= "identity" then
    refuse(415, "the body is compressed (%s): send it as it is", encoding:sub(1, 40))
  end
  return where, form
end

-- RETURNS "predict" or "infer" and the module that reads and writes, or "other" and a function that answers.
local function choose(server, request)
  local path = request.path
  if path == "/predict" then return predicting(request, "predict", predict) end
  local tail = of_model(server, path)
  if tail == "/infer" then return predicting(request, "infer", infer) end
  local answer = FIXED[path]
  if tail == "" then answer = model_metadata end
  if tail == "/ready" then
    answer = function() return as_json { name = server.signature.name, ready = true } end
  end
  if not answer then refuse(404, "there is nothing at %s; GET / says what there is", path:sub(1, 200)) end
  need(request, "GET", "HEAD")
  return "other", answer
end

--- handle(server, request) -> a job that is to be run: {request =, rows =, columns =, form =, where =, began =}; nil if
--- the request is answered.
function M.handle(server, request)
  local began, where, form = core.clock(), "other", nil
  local ok, result, bytes = pcall(function()
    where, form = choose(server, request)
    if where == "other" then return form(server) end
    return form.read(server.signature, request)
  end)
  if not ok then
    server:fail(request, where, result)
  elseif where == "other" then
    server:answer(request, where, 200, result, bytes)
  else
    result.request, result.form, result.where, result.began = request, form, where, began
    return result
  end
end

return M
