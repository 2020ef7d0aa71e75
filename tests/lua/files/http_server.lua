-- An HTTP server for the tests of downloads, run in a process of its own:
--
--     build/mgpulua tests/lua/files/http_server.lua PORT_FILE N
--
-- It writes its port to PORT_FILE, answers N requests, and ends. /body is "hello"; /slow is the same, but "lo" comes
-- only when a file PORT_FILE.go is there; /endless has no end (16 MiB, in truth); everything else is a redirect to
-- /body. What is posted is written to PORT_FILE.1, PORT_FILE.2, ..., headers and body, and answered with OK, or with
-- the error 503 if the path ends with /fail, a redirect if it ends with /moved, more than 1 MiB if it ends with /long.
local ffi = require "ffi"

ffi.cdef [[
  typedef struct { unsigned short family, port; unsigned char address[4]; char zero[8]; } http_address;
  int socket(int, int, int);
  int bind(int, const http_address *, unsigned);
  int listen(int, int);
  int getsockname(int, http_address *, unsigned *);
  int accept(int, void *, void *);
  long read(int, void *, unsigned long);
  long send(int, const void *, unsigned long, int);
  int close(int);
  int usleep(unsigned);
]]
local INET, STREAM, NO_SIGNAL = 2, 1, 0x4000
local requests = assert(tonumber(arg[2]), "usage: http_server.lua PORT_FILE N") -- before PORT_FILE is written

local listener = ffi.C.socket(INET, STREAM, 0)
local address = ffi.new("http_address", { family = INET, address = { 127, 0, 0, 1 } })
assert(ffi.C.bind(listener, address, ffi.sizeof(address)) == 0 and ffi.C.listen(listener, 8) == 0)
ffi.C.getsockname(listener, address, ffi.new("unsigned[1]", ffi.sizeof(address)))
local port = bit.rshift(bit.bswap(address.port), 16)
local file = assert(io.open(arg[1] .. ".new", "w"))
file:write(port)
file:close()
os.rename(arg[1] .. ".new", arg[1])

local buffer = ffi.new "char[4096]"

-- The text that comes next, "" at the end.
local function next_of(connection)
  return ffi.string(buffer, math.max(tonumber(ffi.C.read(connection, buffer, 4096)), 0))
end

local function is_whole(text)
  local head = text:match "^.-\r\n\r\n"
  return head and #text >= #head + tonumber(head:match "[Cc]ontent%-[Ll]ength: (%d+)")
end

-- What is posted, read to its end.
local function rest_of(connection, text)
  local more = text
  while more ~= "" and not is_whole(text) do
    more = next_of(connection)
    text = text .. more
  end
  return text
end

local function keep(path, text)
  local kept = assert(io.open(path .. ".new", "w"))
  kept:write(text)
  kept:close()
  os.rename(path .. ".new", path)
end

for i = 1, requests do
  local connection = ffi.C.accept(listener, nil, nil)
  local request = next_of(connection)
  local path, posted = request:match "^GET (%S+)", request:match "^POST (%S+)"
  local function say(text) return ffi.C.send(connection, text, #text, NO_SIGNAL) >= 0 end
  if posted then
    keep(arg[1] .. "." .. i, rest_of(connection, request))
    local status = posted:find "/fail$" and "503 Service Unavailable"
      or posted:find "/moved$" and "302 Found\r\nLocation: /other" or "200 OK"
    local answer = posted:find "/long$" and ("x"):rep(2 ^ 20 + 1) or "ok"
    say(("HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"):format(status, #answer, answer))
  elseif path == "/body" then
    say "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
  elseif path == "/slow" then
    say "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhel"
    while not io.open(arg[1] .. ".go") do ffi.C.usleep(10000) end
    say "lo"
  elseif path == "/endless" then
    say "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    local chunk = ("x"):rep(65536)
    for _ = 1, 256 do
      if not say(chunk) then break end
    end
  else
    say(("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d/body\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
      :format(port))
  end
  ffi.C.close(connection)
end
