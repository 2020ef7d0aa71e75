-- A program in a pseudo-terminal, for the specs of the prompt.
--
--     local t = terminal.open { env = { TERM = "xterm" } }
--     t:type "1 + 1"          -- and Enter;  t:send(bytes) sends them as they are
--     t:expect "2"            -- waits until the output since the last match contains this (plain text)
--     t:close()               -- Ctrl-D; returns the exit status
-- Escape sequences are removed from the output. There are no sleeps: expect waits up to DEADLINE seconds.
local check = require "check"
local ffi = require "ffi"

ffi.cdef [[
  struct winsize { unsigned short rows, columns, x, y; };
  struct pollfd { int fd; short events, revents; };
  int forkpty(int *master, char *name, const void *modes, const struct winsize *size);
  int execvp(const char *file, const char *const *arguments);
  int poll(struct pollfd *list, unsigned long n, int milliseconds);
  int ioctl(int fd, unsigned long request, ...);
  int kill(int process, int number);
  int waitpid(int process, int *status, int options);
  int close(int fd);
  void _exit(int status);
  long read(int fd, void *bytes, size_t n);
  long write(int fd, const void *bytes, size_t n);
]]

local DEADLINE = 10 -- seconds; only stops a hang
local SET_SIZE, WITHOUT_HANG = 0x5414, 1
local SIGNALS = { HUP = 1, INT = 2, QUIT = 3, KILL = 9, TERM = 15, CONT = 18, STOP = 19, TSTP = 20 }

local Terminal = {}
Terminal.__index = Terminal

local function shell_quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

-- The shell command that runs the program with these variables only.
local function command(given)
  local words = { "exec env -i" }
  local env = { TERM = "xterm", HOME = check.path "home", PATH = os.getenv "PATH", LANG = "C.UTF-8",
    MGPU_MALLOC = os.getenv "MGPU_MALLOC", ASAN_OPTIONS = os.getenv "ASAN_OPTIONS",
    LSAN_OPTIONS = os.getenv "LSAN_OPTIONS", INPUTRC = "/dev/null" }
  for name, value in pairs(given.env or {}) do env[name] = value end
  for name, value in pairs(env) do words[#words + 1] = name .. "=" .. shell_quoted(value) end
  words[#words + 1] = given.command or check.program .. " " .. (given.arguments or "")
  return table.concat(words, " ")
end

--- open{arguments = "", command =, env =, rows = 24, columns = 80} -> the program, started.
local function open(given)
  given = given or {}
  local master = ffi.new "int[1]"
  local size = ffi.new("struct winsize", given.rows or 24, given.columns or 80)
  local arguments = ffi.new("const char *[4]", { "sh", "-c", command(given) })
  io.stdout:flush()
  local process = ffi.C.forkpty(master, nil, nil, size)
  if process == 0 then
    ffi.C.execvp("sh", arguments)
    ffi.C._exit(127)
  end
  if process < 0 then check.skip "there are no pseudo-terminals" end
  return setmetatable({ fd = master[0], process = process, output = "", raw = "", at = 1 }, Terminal)
end

-- The text without escape sequences, bells and carriage returns.
local function plain(text)
  return (text:gsub("\27%[[%d;?>]*[%a@]", ""):gsub("\27%][^\7]*\7", ""):gsub("\27[()]%w", ""):gsub("\27[=>]", "")
    :gsub("[\7\r]", ""))
end

-- Reads what there is, waiting for at most this many milliseconds. RETURNS false at the end of the output.
local function receive(self, milliseconds)
  local wanted = ffi.new("struct pollfd[1]", { { self.fd, 1, 0 } })
  if ffi.C.poll(wanted, 1, milliseconds) <= 0 then return true end
  local bytes = ffi.new "char[65536]"
  local n = tonumber(ffi.C.read(self.fd, bytes, 65536))
  if n <= 0 then return false end
  self.raw = self.raw .. ffi.string(bytes, n)
  self.output = plain(self.raw)
  return true
end

local function seconds() return require "mgpu.core".clock() end

--- t:send(bytes): types them. The program's output is read meanwhile, since a full terminal blocks both sides.
function Terminal:send(bytes)
  for from = 1, #bytes, 256 do
    local piece = bytes:sub(from, from + 255)
    receive(self, 0)
    if tonumber(ffi.C.write(self.fd, piece, #piece)) ~= #piece then check.fail "the terminal takes no more input" end
  end
end

--- t:type(line): types a line and Enter.
function Terminal:type(line) self:send(line .. "\r") end

--- t:expect(text) -> the output before it, since the last match.
function Terminal:expect(text)
  local deadline = seconds() + DEADLINE
  while true do
    local first, last = self.output:find(text, self.at, true)
    if first then
      local before = self.output:sub(self.at, first - 1)
      self.at = last + 1
      return before
    end
    local open_still = receive(self, 100)
    if seconds() > deadline or (not open_still and not self.output:find(text, self.at, true)) then
      check.fail(("%q did not come %s; since the last match:\n%s"):format(text,
        open_still and "in time" or "before the end", self.output:sub(self.at)))
    end
  end
end

--- t:ask(line, answer): types a line and waits for the answer behind its echo, and the next prompt.
function Terminal:ask(line, answer)
  self:type(line)
  self:expect "\n"
  local before = self:expect(answer)
  self:expect "> "
  return before
end

function Terminal:signal(name) ffi.C.kill(self.process, SIGNALS[name]) end

function Terminal:resize(rows, columns)
  ffi.C.ioctl(self.fd, SET_SIZE, ffi.new("struct winsize", rows, columns))
end

--- t:hang_up(): closes the terminal.
function Terminal:hang_up()
  ffi.C.close(self.fd)
  self.fd = -1
end

--- t:wait() -> the exit status, 128 + the number for a signal, after the program has ended.
function Terminal:wait()
  local status, deadline = ffi.new "int[1]", seconds() + DEADLINE
  repeat
    if self.fd >= 0 then receive(self, 20) else ffi.C.poll(nil, 0, 20) end
    local ended = ffi.C.waitpid(self.process, status, WITHOUT_HANG)
    if ended == 0 and seconds() > deadline then
      self:signal "KILL"
      check.fail("the program did not end; since the last match:\n" .. self.output:sub(self.at))
    end
  until ended ~= 0
  if self.fd >= 0 then
    while receive(self, 0) and self.raw ~= self.drained do self.drained = self.raw end
    self:hang_up()
  end
  local code = status[0]
  return code % 128 ~= 0 and 128 + code % 128 or math.floor(code / 256)
end

--- t:close() -> the exit status after Ctrl-D.
function Terminal:close()
  self:send "\4"
  return self:wait()
end

local FILES = { readline = "libreadline.so.8", libedit = "libedit.so.2" }

--- each_editor(fn, editor, ...): runs fn(editor, start) for each of these ways of reading lines that is installed;
--- start(options) is open with it, and waits for the prompt.
local function each_editor(fn, ...)
  for _, editor in ipairs { ... } do
    if not FILES[editor] or pcall(ffi.load, FILES[editor]) then
      fn(editor, function(options)
        options = options or {}
        options.env = options.env or {}
        options.env.MGPU_LINE_EDITOR = editor
        local t = open(options)
        t:expect "> "
        return t
      end)
    end
  end
end

return { open = open, each_editor = each_editor }
