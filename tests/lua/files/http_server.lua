-- An HTTP server for the tests of downloads, run in a process of its own:
--
--     build/mgpulua tests/lua/files/http_server.lua PORT_FILE N
--
-- It writes its port to PORT_FILE, answers N requests, and ends. /body is "hello"; /slow is the same, but "lo" comes
-- only when a file PORT_FILE.go is there; /endless has no end (16 MiB, in truth); everything else is a redirect to
-- /body.
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
for _ = 1, requests do
  local connection = ffi.C.accept(listener, nil, nil)
  local n = tonumber(ffi.C.read(connection, buffer, 4096))
  local path = ffi.string(buffer, math.max(n, 0)):match "^GET (%S+)"
  local function say(text) return ffi.C.send(connection, text, #text, NO_SIGNAL) >= 0 end
  if path == "/body" then
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
