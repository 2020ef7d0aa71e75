-- The HTTP server (core.server, runtime/server): documents, logs, requests, limits, who may ask, and closing.

local check = require "check"
local client = dofile "tests/lua/serve/http_client.lua"
local core = require "mgpu.core"
local fixtures = require "fixtures"

local test = check.test

local has_plugin, why = pcall(core.server, { port = 0 })
if not has_plugin then check.skip(why) end
why:close()

-- fn(server, port) with a server of these options, which is closed afterwards, whatever happens.
local function with(options, fn)
  options.port = 0
  local s = core.server(options)
  local ok, problem = pcall(fn, s, s:port())
  s:close(2)
  if not ok then error(problem, 0) end
end

-- A function that answers what clients wait for, by the function of a request.
local function serving(s, answer)
  return function()
    local r = s:take(0)
    if r then answer(r) end
  end
end

local function echo(r) r:reply(200, "text/plain", r.method .. " " .. r.path .. " " .. r.body) end

test("a document is answered without the program, replaced, and removed", function()
  with({}, function(s, port)
    s:document("/page", "text/html", "<p>one\0two")
    local r = client.request(port, "GET", "/page?x=1")
    check.equal({ r.status, r.body, r.headers["content-type"] }, { 200, "<p>one\0two", "text/html" })
    s:document("/page", "text/plain", "")
    check.equal(client.request(port, "GET", "/page").body, "")
    r = client.request(port, "HEAD", "/page")
    check.equal({ r.status, r.headers["content-type"] }, { 200, "text/plain" })
    r = client.request(port, "POST", "/page", { body = "x" })
    check.equal({ r.status, r.headers.allow }, { 405, "GET, HEAD" })
    s:document("/page")
    check.equal(client.request(port, "GET", "/page").status, 404)
    check.equal(client.request(port, "POST", "/other", { body = ("x"):rep(100000) }).status, 404)
  end)
end)

test("a log is read from an offset on, and a client may wait for more", function()
  with({}, function(s, port)
    s:append("/log", "one\n")
    s:append("/log", "two\n")
    local function get(query) return client.request(port, "GET", "/log" .. query) end
    local r = get ""
    check.equal({ r.body, r.headers["x-next"], r.headers["x-first"] }, { "one\ntwo\n", "8" })
    check.equal(get "?from=4".body, "two\n")
    check.equal(get "?from=8".body, "")
    check.equal({ get "?from=8&wait=0.01".body, get "?from=8&wait=0.01".headers["x-next"] }, { "", "8" })
    check.equal(get "?from=9&wait=5".status, 416)
    for _, wrong in ipairs { "from=-1", "from=x", "from=1e", "from=99999999999999999999", "wait=-1", "wait=nan" } do
      check.equal(get("?" .. wrong).status, 400)
    end
    local waiting = {}
    for i = 1, 20 do
      waiting[i] = client.connect(port)
      waiting[i]:send(client.text("GET", "/log?from=8&wait=60"))
    end
    local ready = client.connect(port) -- its answer tells that all requests before it have come
    ready:send(client.text("GET", "/log"))
    ready:receive(function()
      for _, c in ipairs(waiting) do
        if c.unsent ~= "" then c:receive(function() c.ended = true end) end
      end
    end)
    for _, c in ipairs(waiting) do c.ended = false end
    ready:close()
    s:append("/log", "three\n")
    for _, c in ipairs(waiting) do
      check.equal(c:receive().body, "three\n")
      c:close()
    end
  end)
end)

test("a log keeps its last whole lines, and offsets go on", function()
  with({}, function(s, port)
    for i = 1, 100 do s:append("/log", ("line %02d\n"):format(i % 100), 40) end -- 8 bytes each
    local r = client.request(port, "GET", "/log?from=0")
    check.equal({ r.body, r.headers["x-first"], r.headers["x-next"] },
      { "line 96\nline 97\nline 98\nline 99\nline 00\n", "760", "800" })
    s:append("/log", ("x"):rep(50)) -- longer than all that is kept
    r = client.request(port, "GET", "/log?from=800")
    check.equal({ r.body, r.headers["x-first"], r.headers["x-next"] }, { "", "850", "850" })
    s:append("/log", ("y"):rep(50) .. "\nend\n")
    r = client.request(port, "GET", "/log")
    check.equal({ r.body, r.headers["x-first"], r.headers["x-next"] }, { "end\n", "901", "905" })
    -- an answer has at most 1 MiB
    s:append("/long", ("0123456789abcde\n"):rep(100000), 2 ^ 21)
    r = client.request(port, "GET", "/long?from=16")
    check.equal({ #r.body, r.headers["x-next"] }, { 2 ^ 20, tostring(2 ^ 20 + 16) })
    r = client.request(port, "GET", "/long?from=" .. r.headers["x-next"])
    check.equal({ #r.body, r.headers["x-next"] }, { 1600000 - 2 ^ 20 - 16, "1600000" })
  end)
end)

test("documents and logs have different paths, which are checked", function()
  with({}, function(s)
    s:document("/a", "text/plain", "x")
    s:append("/b", "x")
    check.raises(function() s:append("/a", "x") end, "there is a document at /a: remove it before", "usage")
    check.raises(function() s:document("/b", "text/plain", "x") end, "there is a log at /b: remove it before", "usage")
    s:document "/b"
    s:document("/b", "text/plain", "x")
    check.raises(function() s:append("b", "x") end, 'the path "b" must begin with / and have no ?', "usage")
    check.raises(function() s:document("/b?x", "text/plain", "x") end, "must begin with / and have no ?", "usage")
    check.raises(function() s:append("/c", "x", -1) end, "a number of at least 1", "usage")
  end)
end)

test("a request is handed to the program with all its parts", function()
  with({ requests = true }, function(s, port)
    local seen
    local serve = serving(s, function(r)
      seen = r
      r:reply(201, "text/x", "answer", { ["X-More"] = "yes" })
      check.raises(function() r:reply(200, "text/x", "") end, "the request was answered before", "usage")
    end)
    local r = client.request(port, "PUT", "/a%20b/c?x=1%262&y&z=&x=3",
      { headers = { ["X-Name"] = "Value", ["Content-Type"] = "a/b" }, body = "b\0dy", serve = serve })
    check.equal({ r.status, r.body, r.headers["x-more"], r.headers["content-type"] },
      { 201, "answer", "yes", "text/x" })
    check.equal({ seen.method, seen.path, seen.body, seen.query },
      { "PUT", "/a b/c", "b\0dy", { x = "3", y = "", z = "" } })
    check.equal({ seen.headers["x-name"], seen.headers["content-type"] }, { "Value", "a/b" })
    check.equal(s:take(0), nil)
  end)
end)

test("a request that the program forgets, or answers wrongly, gets 500", function()
  with({ requests = true }, function(s, port)
    local serve = serving(s, function() collectgarbage() end)
    local function forget() serve() collectgarbage() end
    check.equal(client.request(port, "GET", "/", { serve = forget }).status, 500)
    for _, wrong in ipairs { { 99, nil, "the status 99" }, { 200, { a = "b\r\nc: d" }, "is no header" } } do
      local r = client.request(port, "GET", "/", { serve = serving(s, function(request)
        check.raises(function() request:reply(wrong[1], "text/plain", "x", wrong[2]) end, wrong[3], "usage")
      end) })
      check.equal(r.status, 500)
    end
  end)
end)

test("a token is needed where one was given", function()
  with({ token = "secret" }, function(s, port)
    s:document("/", "text/plain", "x")
    local function status(path, header)
      return client.request(port, "GET", path, { headers = { Authorization = header } }).status
    end
    for _, query in ipairs { "", "?token=secre", "?token=secret1", "?token=" } do
      check.equal(status("/" .. query), 401)
    end
    check.equal(status "/?token=secret", 200)
    for _, header in ipairs { "Bearer secret", "bearer secret" } do check.equal(status("/", header), 200) end
    for _, header in ipairs { "Bearer Secret", "Basic secret", "Bearer " } do check.equal(status("/", header), 401) end
    check.equal(client.request(port, "GET", "/").headers["www-authenticate"], "Bearer")
  end)
end)

test("pages of other sites are refused, by the name of the host and by their origin", function()
  with({ names = { "my.name" }, requests = true }, function(s, port)
    local serve = serving(s, echo)
    local function status(host, origin, method)
      local text = ("%s / HTTP/1.1\r\n%s%s\r\n"):format(method or "GET", host and "Host: " .. host .. "\r\n" or "",
        origin and "Origin: " .. origin .. "\r\n" or "")
      return client.request(port, "GET", "/", { text = text, serve = serve }).status
    end
    for _, host in ipairs { "localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:5", "[::1]", "my.name:80" } do
      check.equal(status(host), 200)
    end
    for _, host in ipairs { "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[::2]", "[", "[]",
      "" } do
      check.equal(status(host), 403)
    end
    check.equal(status(), 400)
    check.equal(status("localhost:80", "http://localhost:80", "POST"), 200)
    check.equal(status("localhost:80", "http://evil.example", "POST"), 403)
    check.equal(status("localhost:80", "null", "POST"), 403)
    check.equal(status("localhost:80", "http://evil.example", "GET"), 200)
  end)
end)

test("what is too large, too long or malformed is refused", function()
  with({ requests = true, body = 1000, headers = 4096 }, function(s, port)
    local serve = serving(s, echo)
    local function send(text) return client.request(port, "POST", "/", { text = text, serve = serve }) end
    local function status(text) return (send(text) or { status = "closed" }).status end
    local post = "POST / HTTP/1.1\r\nHost: localhost\r\n"
    check.equal(status(client.text("POST", "/", nil, ("x"):rep(1000))), 200)
    check.equal(status(client.text("POST", "/", nil, ("x"):rep(1001))), 413)
    check.equal(status(post .. "Content-Length: 99999999999\r\n\r\n"), 413)
    check.equal(status(post .. "Transfer-Encoding: chunked\r\n\r\n3e8\r\n" .. ("x"):rep(1000) .. "\r\n0\r\n\r\n"), 200)
    check.equal(status(post .. "Transfer-Encoding: chunked\r\n\r\n3e9\r\n" .. ("x"):rep(1001) .. "\r\n0\r\n\r\n"), 413)
    check.equal(status(post .. "X: " .. ("x"):rep(5000) .. "\r\n\r\n"), 431)
    check.equal(status(post .. ("X: y\r\n"):rep(2000) .. "\r\n"), 431)
    check.equal(status("GET /" .. ("x"):rep(5000) .. " HTTP/1.1\r\nHost: localhost\r\n\r\n"), 414)
    check.equal(status "GET /a%00b HTTP/1.1\r\nHost: localhost\r\n\r\n", 400)
    for _, text in ipairs { post .. "Content-Length: x\r\n\r\n", post .. "Transfer-Encoding: chunked\r\n\r\nzz\r\n" } do
      local answer = status(text)
      check.truthy(answer == 400 or answer == "closed", answer)
    end
    -- no end of the chunks: dropped, once more than twice the limit has come
    local c = client.connect(port)
    c:send(post .. "Transfer-Encoding: chunked\r\n\r\n" .. ("ff\r\n" .. ("x"):rep(255) .. "\r\n"):rep(2000))
    check.equal(c:receive(serve), nil)
    c:close()
    check.equal(status(client.text("POST", "/", nil, "ok")), 200) -- it goes on
  end)
end)

test("a client that sends its request too slowly is dropped", function()
  with({ requests = true, idle = 1 }, function(s, port)
    local c = client.connect(port)
    c:send "GET / HT"
    check.equal(c:receive(function() s:take(0.2) c:send "T" end), nil)
    c:close()
  end)
end)

test("many clients at once get their own answers, over connections that they keep", function()
  with({ requests = true, connections = 300 }, function(s, port)
    local texts, got = {}, {}
    for i = 1, 200 do texts[i] = client.text("POST", "/" .. i, nil, ("x"):rep(i)) end
    client.many(port, texts, 5, function(i, r)
      check.equal(r and r.body, ("POST /%d %s"):format(i, ("x"):rep(i)))
      got[i] = (got[i] or 0) + 1
    end, function()
      for r in function() return s:take(0) end do echo(r) end
    end)
    for i = 1, 200 do check.equal(got[i], 5) end
  end)
end)

test("after stop, what has come is answered and what comes later is refused", function()
  with({ requests = true }, function(s, port)
    local early, late = client.connect(port), client.connect(port)
    early:send(client.text("GET", "/early"))
    late:send "GET /la" -- the connection is there before the stop
    local r
    check.equal(late:receive(function()
      r = r or s:take(0)
      if r and late.unsent == "" then late.ended = true end
      if early.unsent ~= "" then early:receive(function() early.ended = true end) early.ended = false end
    end), nil)
    late.ended = false
    s:stop()
    s:stop() -- no difference
    late:send "te HTTP/1.1\r\nHost: localhost\r\n\r\n"
    check.equal(late:receive().status, 503)
    r:reply(200, "text/plain", "x")
    local answer = early:receive()
    check.equal({ answer.status, answer.headers.connection }, { 200, "close" })
    early:close()
    late:close()
    local refused = client.connect(port)
    refused:send(client.text("GET", "/"))
    check.equal(refused:receive(), nil)
    refused:close()
  end)
end)

test("closing answers 503 to what was not answered, and a taken request may be answered afterwards", function()
  local s = core.server { requests = true, port = 0 }
  local port, taken = s:port()
  s:append("/log", "x\n")
  local connections = {}
  for i, path in ipairs { "/log?from=2&wait=60", "/one", "/two" } do
    connections[i] = client.connect(port)
    connections[i]:send(client.text("GET", path))
    connections[i]:receive(function() connections[i].ended = connections[i].unsent == "" end)
    connections[i].ended = false
  end
  while not taken do taken = s:take(1) end
  local other = s:take(5)
  check.truthy(other, "another request")
  s:close(5)
  s:close()
  check.equal(connections[1]:receive().status, 200) -- the log has no more
  check.equal({ connections[2]:receive().status, connections[3]:receive().status }, { 503, 503 })
  taken:reply(200, "text/plain", "too late")
  for _, c in ipairs(connections) do c:close() end
  check.raises(function() s:take(0) end, "server:take: the server is closed", "usage")
end)

test("wrong options and ports in use are explained", function()
  local s = core.server { port = 0 }
  check.raises(function() core.server { port = s:port() } end,
    ("port %d of 127.0.0.1 is in use"):format(s:port()), "io")
  s:close()
  check.raises(function() core.server { port = 65536 } end, "port 65536: a port is a number from 1 to 65535", "usage")
  check.raises(function() core.server { port = 1.5 } end, "port must be a whole number", "usage")
  check.raises(function() core.server { host = 5 } end, "host must be a string, got number", "usage")
  check.raises(function() core.server { host = "a\0b" } end, "host has a zero byte", "usage")
  check.raises(function() core.server { host = "192.0.2.1" } end, 'host "192.0.2.1" is not an address of this machine',
    "usage")
  check.raises(function() core.server { host = "no.such.invalid" } end, 'host "no.such.invalid": ', "usage")
  check.raises(function() core.server { token = "" } end, "the token is empty", "usage")
  check.raises(function() core.server { prot = 1 } end, 'did you mean "port"', "usage")
end)

test("a wait for requests ends by Ctrl-C, by a stop request and by its time, and SIGQUIT names it", function()
  local script = fixtures.READY .. [[
    local core = require "mgpu.core"
    local s = core.server { requests = true }
    core.stop_listen(arg[2] == "listen")
    print(s:take(0.01))
    ready()
    print(pcall(s.take, s, arg[2] == "short" and 2 or 600))
    print(tostring((core.stop_requested())))
    s:close()]]
  check.matches(fixtures.signalled(script, "INT", { arguments = "long" }),
    "^nil\nfalse\t[^\n]*interrupted!?\nnil\nstatus 0\n$")
  check.matches(fixtures.signalled(script, "TERM", { arguments = "listen" }),
    "^nil\ntrue\tnil\nSIGTERM\nstatus 0\n$")
  check.matches(fixtures.signalled(script, "QUIT", { arguments = "short" }),
    "main: waits for a request, for %d+%.%d s\n")
end)

test("programs that the script starts inherit no socket", function()
  with({ requests = true }, function(s, port)
    local c = client.connect(port)
    c:send(client.text("GET", "/"))
    local r
    c:receive(function() r = r or s:take(0.1) c.ended = r ~= nil end)
    local pipe = io.popen "ls -l /proc/self/fd"
    local list = pipe:read "*a"
    pipe:close()
    check.falsy(list:find "socket" or list:find "eventpoll" or list:find "eventfd", list)
    r:reply(200, "text/plain", "")
    c:close()
  end)
end)
