--- GET /: a plain page that says what the server has.
local values = require "mgpu.serve.values"

local PAGE = [[
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>%s</title>
<style>body{font:16px/1.5 sans-serif;max-width:48em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse}td,th{text-align:left;padding:.1em 1em .1em 0}
pre,code{background:#f2f2f2}pre{padding:.6em;overflow-x:auto}</style></head><body>
<h1>%s</h1>
<p>mgpulua answers predictions of this model.</p>
<table><tr><th></th><th>name</th><th>datatype</th><th>shape (-1: any size)</th></tr>
%s</table>
<p><code>POST /predict</code> takes JSON, or a .npy file for a model with one input:</p>
<pre>curl http://HOST:PORT/predict -d '{"inputs": %s}'
curl http://HOST:PORT/predict --data-binary @rows.npy -o answer.npy</pre>
<p>KServe's protocol, version 2: <code>POST /v2/models/%s/infer</code>,
<a href="v2/models/%s">metadata</a>, <a href="v2/health/ready">health</a>.
Counters for Prometheus: <a href="metrics">metrics</a>.</p>
</body></html>
]]

local function escaped(text)
  return (text:gsub("[&<>\"']", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;" }))
end

local function rows_of(list, what)
  local rows = {}
  for i, v in ipairs(list) do
    rows[i] = ("<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n"):format(what, escaped(v.name),
      values.kserve_name(v.dtype), values.shape_text(v.shape))
  end
  return table.concat(rows)
end

-- What the JSON of an input looks like: "[[..., ...], ...]".
local function sketch(v)
  local text = v.dtype == "string" and '"a text"' or "..."
  for _ = 2, #v.shape do text = "[" .. text .. ", ...]" end
  return #v.shape > 0 and "[" .. text .. ", ...]" or text
end

local function example(inputs)
  if #inputs == 1 then return sketch(inputs[1]) end
  local fields = {}
  for i, v in ipairs(inputs) do fields[i] = ('"%s": %s'):format(v.name, sketch(v)) end
  return "{" .. table.concat(fields, ", ") .. "}"
end

--- page(server) -> HTML.
return function(server)
  local s = server.signature
  local name = escaped(s.name)
  return PAGE:format(name, name, rows_of(s.inputs, "input") .. rows_of(s.outputs, "output"),
    escaped(example(s.inputs)), name, name)
end
