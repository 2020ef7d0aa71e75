-- The test library of the Lua tests: tests, comparisons, skips, leak checks, and the verdict of a file.
--
-- A test file runs in a process of its own:
--     build/mgpulua tests/check.lua tests/lua/tensor/tensors_spec.lua [--part K/N] [part of a test's name]...
-- (--part K/N: the K-th of the file's tests and every N-th after it). It looks like this:
--     local check = require "check"
--     local test = check.test
--     test("adding a tensor and a number keeps the dtype", function()
--       check.equal((mgpu.ones {2} + 1):totable(), {2, 2})
--     end)
-- check.test runs the function at once. If the test leaves more live tensors or open files than there
-- were before it, or another working directory, it fails. The process prints one line for each failure
-- and skip, then `N passed, N failed, N skipped`, and its exit status is 1 if anything failed.
--
--   check.test(sentence, fn)            one test; sentences are unique within a file
--   check.equal(actual, expected)       deep equality; a tensor is compared by its numbers
--   check.near(actual, expected, tol)   |a - e| <= tol * max(1, |e|) element by element; tol 1e-6
--   check.near_norm(actual, expected, tol)  |a - e| <= tol * |e| with Euclidean norms over all elements
--   check.truthy(value, what) / check.falsy(value, what)
--   check.matches(text, expected)       expected: plain text or a Lua pattern
--   check.raises(fn, expected, code)    fn must raise an error that matches `expected`; code: the status
--                                       that core.error_code() must return; returns the message
--   check.fail(message)
--   check.skip(reason)                  skips the test or, outside of a test, the rest of the file
--   check.needs(what, ...)              skips unless there is such a device kind ("cpu") or path ("/x/y")
--   check.slow()                        skips under `make test-fast`
--   check.path(name)                    a path in a temporary folder that is removed at the end
--   check.read(path), check.write(path, bytes)
--   check.run(command)                  runs a shell command; returns its output (stdout and stderr) and
--                                       exit status
--   check.program                       the path of this interpreter, quoted for the shell

local check = { program = "mgpulua", file = "", filters = {}, part = 1, parts = 1 }

local counts = { passed = 0, failed = 0, skipped = 0 }
local seen, n_seen, running, folder = {}, 0, nil, nil
local SKIP = {} -- the error { SKIP, reason } ends a test as skipped

-- ---- values -------------------------------------------------------------------------------------

local function plain(value)
  if type(value) == "userdata" then return value:totable() end
  return value
end

local function show(value, depth)
  depth = depth or 0
  if type(value) == "string" then
    return (("%q"):format(value):gsub("\\\n", "\\n"):gsub("\\9", "\\t"))
  end
  if type(value) == "number" then return ("%.17g"):format(value) end
  if type(value) ~= "table" then return tostring(value) end
  if depth > 3 then return "{...}" end
  local parts = {}
  for i = 1, math.min(#value, 12) do parts[i] = show(value[i], depth + 1) end
  if #value > 12 then parts[#parts + 1] = ("... (%d)"):format(#value) end
  for k, v in pairs(value) do
    if not (type(k) == "number" and k >= 1 and k <= #value) then
      parts[#parts + 1] = ("[%s] = %s"):format(show(k), show(v, depth + 1))
    end
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- Calls same(a, e) on each pair of leaves of two nested tables. Returns the path of the first difference
-- and the two values there, or nil.
local function differs(actual, expected, same, where)
  actual, expected = plain(actual), plain(expected)
  if rawequal(actual, expected) and type(actual) == "table" then return nil end -- it may contain itself
  if type(actual) == "table" and type(expected) == "table" then
    for k, v in pairs(expected) do
      local path, a, e = differs(actual[k], v, same, where .. "[" .. tostring(k) .. "]")
      if path then return path, a, e end
    end
    for k, v in pairs(actual) do
      if expected[k] == nil then return where .. "[" .. tostring(k) .. "]", v, nil end
    end
    return nil
  end
  if not same(actual, expected) then return where, actual, expected end
end

local function compare(actual, expected, same, how)
  local path, a, e = differs(actual, expected, same, "")
  if not path then return end
  if path ~= "" then path = " at " .. path end
  error(("got %s, expected %s%s%s"):format(show(a), show(e), how, path), 3)
end

local function identical(a, e) return a == e or (a ~= a and e ~= e) end

-- Adds |a - e|^2 and |e|^2 of all leaves to `sums`.
local function squares(actual, expected, sums)
  actual, expected = plain(actual), plain(expected)
  if type(expected) == "table" then
    if type(actual) ~= "table" or #actual ~= #expected then
      error(("got %s, expected %d elements"):format(show(actual), #expected), 3)
    end
    for i = 1, #expected do squares(actual[i], expected[i], sums) end
    return sums
  end
  sums.difference = sums.difference + (actual - expected) ^ 2
  sums.expected = sums.expected + expected ^ 2
  return sums
end

function check.equal(actual, expected) compare(actual, expected, identical, "") end

function check.near(actual, expected, tolerance)
  tolerance = tolerance or 1e-6
  compare(actual, expected, function(a, e)
    if type(a) ~= "number" or type(e) ~= "number" then return identical(a, e) end
    return identical(a, e) or math.abs(a - e) <= tolerance * math.max(1, math.abs(e))
  end, (" within %g"):format(tolerance))
end

function check.near_norm(actual, expected, tolerance)
  local sums = squares(actual, expected, { difference = 0, expected = 0 })
  local off = math.sqrt(sums.difference / math.max(sums.expected, 1e-300))
  if not (off <= tolerance) then
    error(("off by %g of the norm %g, allowed %g"):format(off, math.sqrt(sums.expected),
      tolerance), 2)
  end
end

function check.truthy(value, what)
  if not value then error((what or "value") .. " is " .. tostring(value), 2) end
end

function check.falsy(value, what)
  if value then error((what or "value") .. " is " .. show(value), 2) end
end

-- ---- messages and errors ------------------------------------------------------------------------

local function matches(text, expected)
  if text:find(expected, 1, true) then return true end
  local ok, at = pcall(string.find, text, expected)
  return ok and at ~= nil
end

function check.matches(text, expected)
  if type(text) ~= "string" or not matches(text, expected) then
    error(("%s does not contain %s"):format(show(text), show(expected)), 2)
  end
end

function check.raises(fn, expected, code)
  local ok, message = pcall(fn)
  if ok then error("no error was raised, expected " .. show(expected), 2) end
  if type(message) == "table" and message[1] == SKIP then error(message, 0) end
  if type(message) ~= "string" then error("the error is not a string: " .. show(message), 2) end
  if expected and not matches(message, expected) then
    error(("the error is %s, expected %s"):format(show(message), show(expected)), 2)
  end
  if code then
    local actual = require("mgpu.core").error_code()
    if actual ~= code then
      error(("the error's code is %s, expected %s"):format(show(actual), show(code)), 2)
    end
  end
  return message
end

function check.fail(message) error(message, 2) end

-- ---- skips --------------------------------------------------------------------------------------

--- The number of elements of a shape.
function check.count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

function check.skip(reason) error({ SKIP, reason }, 0) end

local function missing(what)
  if what:find("/", 1, true) then
    local f = io.open(what)
    if f then f:close() return nil end
    return "no " .. what
  end
  if #require("mgpu.core").devices(what) == 0 then return "no device of kind " .. what end
end

function check.needs(...)
  for _, what in ipairs { ... } do
    local reason = missing(what)
    if reason then check.skip("needs " .. what .. ": " .. reason) end
  end
end

function check.slow()
  if os.getenv "MGPU_TEST_FAST" then check.skip "slow" end
end

-- ---- files and processes ------------------------------------------------------------------------

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

function check.run(command)
  local pipe = assert(io.popen("{ ( " .. command .. " ) 2>&1; echo \"@@status $?\"; } 2>/dev/null"))
  local output, status = pipe:read("*a"):match("^(.*)@@status (%d+)\n$")
  pipe:close()
  return output, tonumber(status)
end

-- The lines of a text in order: for the output of processes that run side by side.
function check.sorted_lines(text)
  local lines = {}
  for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line end
  table.sort(lines)
  return table.concat(lines, "\n")
end

function check.path(name)
  if not folder then
    folder = check.run("mktemp -d"):gsub("\n$", "")
  end
  return folder .. "/" .. name
end

function check.read(path)
  local f = assert(io.open(path, "rb"))
  local bytes = f:read("*a")
  f:close()
  return bytes
end

function check.write(path, bytes)
  local f = assert(io.open(path, "wb"))
  f:write(bytes)
  f:close()
end

-- ---- leaks --------------------------------------------------------------------------------------

-- The counters are read through the FFI, because they are for tests and no part of the Lua API.
local ffi_ok, ffi = pcall(require, "ffi")
if ffi_ok then
  ffi.cdef [[
    int64_t mg_tensor_live_count(void);
    char *getcwd(char *, size_t);
    int fcntl(int, int, ...);
    ssize_t readlink(const char *, char *, size_t);
  ]]
end

local function live_tensors()
  local ok, n = pcall(function() return tonumber(ffi.C.mg_tensor_live_count()) end)
  return ok and n or 0 -- in a stock luajit the library's symbols are not visible to the FFI
end

-- Whether an open descriptor can be a leak. A GPU's driver opens devices, pipes and sockets at any time and
-- keeps them, so with a real GPU only regular files count.
local function counts_as_open(fd)
  if not os.getenv "MGPU_TEST_GPU" then return true end
  local target = ffi.new "char[256]"
  local length = ffi.C.readlink("/proc/self/fd/" .. fd, target, 256)
  local path = length > 0 and ffi.string(target, length) or ""
  return path:find "^/" and not path:find "^/dev/" and not path:find "^/memfd:" and not path:find "^/proc/"
    and not path:find("/.nv/", 1, true)
end

local function open_files()
  local n, F_GETFD = 0, 1
  for fd = 0, 255 do
    if ffi.C.fcntl(fd, F_GETFD) ~= -1 and counts_as_open(fd) then n = n + 1 end
  end
  return n
end

local function collect()
  if jit then jit.flush() end -- compiled traces keep references to objects
  collectgarbage()
  collectgarbage()
end

local function resources()
  if not ffi_ok then return { tensors = 0, files = 0, where = "" } end
  local buffer = ffi.new("char[4096]")
  local where = ffi.C.getcwd(buffer, 4096) ~= nil and ffi.string(buffer) or "?"
  return { tensors = live_tensors(), files = open_files(), where = where }
end

local last = { tensors = -1 } -- resources after the last test's garbage was collected

-- What is in use before a test. The garbage was collected already if nothing was made since the last test.
local function resources_before()
  local now = resources()
  if now.tensors == last.tensors and now.files == last.files then return now end
  collect()
  return resources()
end

local function left_behind(before)
  collect()
  local after = resources()
  for _ = 1, 20 do -- `mgpulua --ps` of another test may be connected for a moment
    if after.files <= before.files then break end
    os.execute "sleep 0.1"
    after = resources()
  end
  last = after
  if after.tensors > before.tensors then
    return ("%d tensors are still live"):format(after.tensors - before.tensors)
  elseif after.files > before.files then
    return ("%d files are still open"):format(after.files - before.files)
  elseif after.where ~= before.where then
    return "the working directory is now " .. after.where
  end
end

-- ---- tests --------------------------------------------------------------------------------------

local function count(what, sentence, detail)
  counts[what] = counts[what] + 1
  if what == "passed" then return end
  print(("%s: %s: %s"):format(what == "failed" and "FAIL" or "skip", sentence, detail))
  if what == "failed" then
    local name = sentence ~= check.file and " " .. quote(sentence) or ""
    print(("      %s tests/check.lua %s%s"):format(check.program, check.file, name))
  end
end

local function handler(problem)
  if type(problem) == "table" and problem[1] == SKIP then return problem end
  return debug.traceback(tostring(problem), 2)
end

-- Runs fn; returns "passed", "failed" or "skipped", and a detail.
local function attempt(sentence, fn)
  local ok, problem = xpcall(fn, handler)
  if not ok and type(problem) == "table" then return "skipped", tostring(problem[2]) end
  if not ok then return "failed", (problem:gsub("\n%s*%[C%]: in function 'xpcall'.*", "")) end
  return "passed", sentence
end

local function chosen(sentence)
  for _, filter in ipairs(check.filters) do
    if matches(sentence, filter) then return true end
  end
  return #check.filters == 0
end

function check.test(sentence, fn)
  if running then error("a test within the test " .. show(running), 2) end
  if seen[sentence] then error("two tests are called " .. show(sentence), 2) end
  seen[sentence], n_seen = true, n_seen + 1
  if n_seen % check.parts ~= check.part % check.parts or not chosen(sentence) then return end
  running = sentence
  if os.getenv "MGPU_TEST_PROGRAM" then print("run: " .. sentence) end -- so that a crash shows its test
  local before = resources_before()
  local outcome, detail = attempt(sentence, fn)
  local leak = outcome == "passed" and left_behind(before)
  if leak then outcome, detail = "failed", leak .. " after it" end
  running = nil
  count(outcome, sentence, detail)
end

local function main(file, ...)
  check.program = os.getenv "MGPU_TEST_PROGRAM" or arg[-1] or check.program
  check.file, check.filters = file, { ... }
  if ... == "--part" then
    local part, parts = (check.filters[2] or ""):match "^(%d+)/(%d+)$"
    if not part then error("--part wants K/N, as 3/8", 0) end
    check.part, check.parts = tonumber(part), tonumber(parts)
    check.filters = { select(3, ...) }
  end
  io.stdout:setvbuf "line"
  package.loaded.check = check
  package.path = "tests/?.lua;" .. package.path
  local outcome, detail = attempt(file, function() assert(loadfile(file))() end)
  if outcome ~= "passed" then count(outcome, file, detail) end
  if folder then os.execute("rm -rf " .. quote(folder)) end
  print(("%d passed, %d failed, %d skipped"):format(counts.passed, counts.failed, counts.skipped))
  local close_state = true -- free everything, so that a leak checker sees only leaks
  os.exit(counts.failed == 0 and 0 or 1, close_state)
end

if arg and arg[0] and arg[0]:find("check%.lua$") and ... ~= "check" then
  assert(..., "usage: mgpulua tests/check.lua FILE [--part K/N] [PART OF A TEST'S NAME]...")
  main(...)
end

return check
