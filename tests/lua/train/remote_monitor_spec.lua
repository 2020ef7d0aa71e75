-- RemoteMonitor: what it posts to a server in a process of its own, and servers that fail.

local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"
local mgpu = require "mgpu"

local test = check.test
local RemoteMonitor = mgpu.callbacks.RemoteMonitor
local X, Y = fixtures.line(12)

if not pcall(core.check_post) then check.skip "mgpu-fetch.so is not built" end

-- Starts a server that answers n requests; returns its address, and a function that gives request i: path, the headers
-- in small letters, body.
local function start_server(name, n)
  local server, port_file = fixtures.start_server(name, n)
  return server, function(i)
    local path, head, body = check.read(port_file .. "." .. i):match "^POST (%S+) (.-)\r\n\r\n(.*)$"
    return path, head:lower(), body
  end
end

local function fit(monitor, model)
  return (model or fixtures.linear { metrics = "mae" }):fit(X, Y, { epochs = 2, batch_size = 4, verbose = 0,
    callbacks = monitor }).history
end

local function unescaped(text)
  return (text:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
end

test("the values of each epoch are posted as a field of a form, or as JSON", function()
  local server, request = start_server("form_port", 4)
  local history = fit(RemoteMonitor { server })
  for i = 1, 2 do
    local path, head, body = request(i)
    check.equal(path, "/publish/epoch/end/")
    check.matches(head, "content%-type: application/x%-www%-form%-urlencoded")
    check.equal(core.json_decode(unescaped(body:match "^data=([%w%%._~-]+)$")), { epoch = i, loss = history.loss[i],
      mae = history.mae[i] })
  end
  history = fit(RemoteMonitor { server, path = "/x?y=1", send_as_json = true, headers = { ["X-Key"] = "a b" } })
  for i = 1, 2 do
    local path, head, body = request(i + 2)
    check.equal(path, "/x?y=1")
    check.matches(head, "content%-type: application/json")
    check.matches(head, "x%-key: a b")
    check.equal(core.json_decode(body), { epoch = i, loss = history.loss[i], mae = history.mae[i] })
  end
end)

test("a server that fails, or is not there, causes one warning, and training goes on", function()
  local server, request = start_server("failing_port", 2)
  local model = fixtures.linear {}
  local text, history = fixtures.stderr_of(fit, RemoteMonitor { server, path = "/fail" }, model)
  check.equal(#history.loss, 2)
  check.matches(text, "^mgpulua: warning: RemoteMonitor: cannot post to http://127.0.0.1:%d+/fail: [^\n]*503[^\n]*\n$")
  check.equal((request(2)), "/fail")
  text = fixtures.stderr_of(fit, RemoteMonitor { server }) -- the server has ended
  check.matches(text, "^mgpulua: warning: RemoteMonitor: cannot post to [^\n]*\n$")
end)

test("a redirect, an answer without end and an address that is no server's cause a warning", function()
  local server = start_server("moved_port", 4)
  local reasons = { moved = "the server answers 302, a redirect", long = "the answer has more than 1048576 bytes" }
  for path, reason in pairs(reasons) do
    check.matches(fixtures.stderr_of(fit, RemoteMonitor { server .. "/", path = path }), reason)
  end
  local file = check.path "file"
  check.write(file, "text")
  check.matches(fixtures.stderr_of(fit, RemoteMonitor { "file://" .. file, path = "" }), "cannot post to file://")
end)

test("a header may be empty", function()
  local server, request = start_server("empty_port", 2)
  fit(RemoteMonitor { server, headers = { ["X-Empty"] = "" } })
  local _, head = request(1)
  check.matches(head, "x%-empty:\r?\n")
end)

test("values that are no numbers of JSON are null, and vectors are arrays", function()
  local server, request = start_server("values_port", 1)
  local monitor = RemoteMonitor { server, send_as_json = true, headers = { ["content-type"] = "text/plain" } }
  local values = require "mgpu.train.logs".new()
  values.loss, values.rate, values.best = 0 / 0, { 0.5, math.huge }, "a"
  monitor:on_epoch_end(3, values)
  local _, head, body = request(1)
  local sent = core.json_decode(body)
  check.equal({ sent.epoch, sent.best, sent.rate[1] }, { 3, "a", 0.5 })
  check.truthy(sent.loss == core.null and sent.rate[2] == core.null, "null")
  check.equal(select(2, head:gsub("content%-type", "")), 1)
end)

test("wrong headers say what is expected", function()
  for _, headers in ipairs { { "x" }, { ["X-Key"] = "a\nb" }, { ["X Key"] = "a" }, { ["X-Key"] = 3 } } do
    check.raises(function() RemoteMonitor { headers = headers } end, 'RemoteMonitor: option "headers" must be a table')
  end
end)
