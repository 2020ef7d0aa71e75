-- A server of its own process for the tests: mgpulua --serve with a free port.
local check = require "check"
local core = require "mgpu.core"
local client = dofile "tests/lua/serve/http_client.lua"

local M = { client = client }
local n_started = 0

--- start(model, options) -> {port =, pid =, stop = function}. stop(signal = "TERM") -> what it printed and, in the last
--- line, its exit status.
function M.start(model, options)
  n_started = n_started + 1
  local output = check.path("serve" .. n_started)
  os.execute(("{ %s --serve %s --port 0 %s >%s 2>&1 & echo $! >%s.pid; wait $!; echo status $? >>%s; } 2>/dev/null &")
    :format(check.program, model, options or "", output, output, output))
  local function text() return core.file_exists(output) and check.read(output) or "" end
  while not text():find "http://[^\n]*\n" and not text():find "status %d" do core.sleep(0.02) end
  local s = { port = tonumber(text():match "http://[^\n]*:(%d+)/\n"), pid = check.read(output .. ".pid"):match "%d+" }
  if not s.port then check.fail("no server: " .. text()) end
  function s.stop(signal)
    os.execute(("kill -%s %s"):format(signal or "TERM", s.pid))
    while not text():find "status %d+\n$" do core.sleep(0.02) end
    return text()
  end
  return s
end

--- with(model, options, fn): fn(port, server) with a server that is stopped afterwards, whatever happens.
function M.with(model, options, fn)
  local s = M.start(model, options)
  local ok, problem = pcall(fn, s.port, s)
  local output = s.stop()
  if not ok then error(problem, 0) end
  check.matches(output, "status 0\n$")
end

--- post(port, path, body, headers) -> status, the JSON of the answer, the response.
function M.post(port, path, body, headers)
  local r = client.request(port, "POST", path, { body = body, headers = headers })
  if not r then return "closed" end
  local ok, value = pcall(core.json_decode, r.body)
  return r.status, ok and value or nil, r
end

--- get(port, path) -> the same.
function M.get(port, path)
  local r = client.request(port, "GET", path)
  local ok, value = pcall(core.json_decode, r.body)
  return r.status, ok and value or nil, r
end

return M
