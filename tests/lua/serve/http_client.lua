-- HTTP clients for the tests of servers, in this process: one request at a time, raw bytes, or many connections at once
-- by poll. A server in the same process is given as `serve`: a function that is called while a client waits.
local ffi = require "ffi"

ffi.cdef [[
  typedef struct { unsigned short family, port; unsigned char address[4]; char zero[8]; } client_address;
  typedef struct { int fd; short events, revents; } client_poll;
  int socket(int, int, int);
  int connect(int, const client_address *, unsigned);
  int shutdown(int, int);
  int poll(client_poll *, unsigned long, int);
  long recv(int, void *, unsigned long, int);
  long send(int, const void *, unsigned long, int);
  int close(int);
]]
local C = ffi.C
local INET, STREAM, NONBLOCK, CLOEXEC, NO_SIGNAL = 2, 1, 0x800, 0x80000, 0x4000
local IN, OUT, AGAIN, IN_PROGRESS = 1, 4, 11, 115

local M = {}
local Connection = {}
Connection.__index = Connection

local buffer = ffi.new "char[65536]"

--- A connection to the port of 127.0.0.1, which is made in the background.
function M.connect(port)
  local fd = C.socket(INET, bit.bor(STREAM, NONBLOCK, CLOEXEC), 0)
  assert(fd >= 0, "no socket: raise the limit on open files")
  local network_order = bit.bor(bit.rshift(port, 8), bit.lshift(bit.band(port, 255), 8))
  local address = ffi.new("client_address", { family = INET, port = network_order, address = { 127, 0, 0, 1 } })
  if C.connect(fd, address, ffi.sizeof(address)) ~= 0 then assert(ffi.errno() == IN_PROGRESS, "connect") end
  return setmetatable({ fd = fd, unsent = "", received = {}, ended = false }, Connection)
end

function Connection:close()
  if self.fd then C.close(self.fd) end
  self.fd = nil
end

-- No more will be sent.
function Connection:finish() C.shutdown(self.fd, 1) end

-- Sends what the socket takes.
local function push(self)
  local n = tonumber(C.send(self.fd, self.unsent, #self.unsent, NO_SIGNAL))
  if n > 0 then self.unsent = self.unsent:sub(n + 1) elseif ffi.errno() ~= AGAIN then self.unsent = "" end
end

local function pull(self)
  local n = tonumber(C.recv(self.fd, buffer, ffi.sizeof(buffer), 0))
  if n > 0 then
    self.received[#self.received + 1] = ffi.string(buffer, n)
  elseif n == 0 or ffi.errno() ~= AGAIN then
    self.ended = true
  end
end

-- Waits up to a number of milliseconds for any of the connections, and sends and receives what it can.
local function step(connections, milliseconds)
  local list = ffi.new("client_poll[?]", #connections)
  for i, c in ipairs(connections) do
    list[i - 1] = { c.fd, c.unsent == "" and IN or bit.bor(IN, OUT), 0 }
  end
  if C.poll(list, #connections, milliseconds) <= 0 then return end
  for i, c in ipairs(connections) do
    local events = list[i - 1].revents
    if bit.band(events, OUT) ~= 0 and c.unsent ~= "" then push(c) end
    if bit.band(events, bit.bnot(OUT)) ~= 0 then pull(c) end
  end
end

function Connection:send(text) self.unsent = self.unsent .. text end

-- The first whole response in the text and what follows it; nil: it is not whole. `to_head`: it answers HEAD.
local function parse(text, ended, to_head)
  local status, head, at = text:match "^HTTP/1%.[01] (%d+)[^\r]*\r\n(.-\r\n)\r\n()"
  if not status then return nil end
  local headers = {}
  for name, value in head:gmatch "([^:\r\n]+): *([^\r\n]*)\r\n" do headers[name:lower()] = value end
  local length = tonumber(headers["content-length"])
  if to_head then length = 0 end
  if not length and not ended then return nil end
  length = length or #text - at + 1
  if #text - at + 1 < length then return nil end
  return { status = tonumber(status), headers = headers, body = text:sub(at, at + length - 1) }, text:sub(at + length)
end

-- The response that has come, if it is whole: also self.response.
local function take_response(self, to_head)
  local text = table.concat(self.received)
  local response, rest = parse(text, self.ended, to_head)
  self.received = { response and rest or text }
  self.response = response
  return response
end

--- The next response: {status, headers, body}; nil: the server closed the connection without one. `serve` as above.
function Connection:receive(serve, to_head)
  while true do
    local response = take_response(self, to_head)
    if response or self.ended then return response end
    if serve then serve() end
    step({ self }, serve and 1 or 1000)
  end
end

--- The text of a request. headers: by name.
function M.text(method, path, headers, body)
  local lines = { ("%s %s HTTP/1.1\r\nHost: localhost\r\n"):format(method, path) }
  for name, value in pairs(headers or {}) do lines[#lines + 1] = ("%s: %s\r\n"):format(name, value) end
  if body then lines[#lines + 1] = ("Content-Length: %d\r\n"):format(#body) end
  return table.concat(lines) .. "\r\n" .. (body or "")
end

--- Sends one request over a connection of its own, and returns the response.
function M.request(port, method, path, options)
  options = options or {}
  local c = M.connect(port)
  c:send(options.text or M.text(method, path, options.headers, options.body))
  local response = c:receive(options.serve, method == "HEAD")
  c:close()
  return response
end

--- Sends texts[i] over connection i, all at the same time, `times` one after another, and calls on_response(i,
--- response) for each response; nil for a connection that ended without one. Returns nothing; connections are closed.
function M.many(port, texts, times, on_response, serve)
  local open = {}
  for i, text in ipairs(texts) do
    local c = M.connect(port)
    c.index, c.left = i, times
    c:send(text)
    open[#open + 1] = c
  end
  while #open > 0 do
    step(open, serve and 1 or 1000)
    if serve then serve() end
    local still = {}
    for _, c in ipairs(open) do
      if #c.received > 0 or c.ended then take_response(c) end
      if c.response or c.ended then
        on_response(c.index, c.response)
        c.left = c.left - 1
        if c.left > 0 and not c.ended then c:send(texts[c.index]) end
        if c.left == 0 or c.ended then c:close() end
      end
      c.response = nil
      if c.fd then still[#still + 1] = c end
    end
    open = still
  end
end

return M
