--- Object arrays of NumPy's files, as Keras publishes texts: a pickle of an array of lists of whole numbers.
--
-- A pickle is a program for a stack machine, which may call any function of Python. Only the instructions that make
-- numbers, texts, tuples and lists are accepted here, and only the calls that make an array. Anything else is refused,
-- and no code of the file ever runs. Source: Python's pickletools; NumPy's format of .npy files.
local core = require "mgpu.core"
local ffi = require "ffi"

local M = {}

local function fail(self, message, ...)
  core.fail("data", ("%s: byte %d: %s"):format(self.who, self.at, message:format(...)))
end

-- ---- bytes --------------------------------------------------------------------------------------

-- n bytes from the current position, which moves on.
local function take(self, n)
  local first = self.at
  if n > self.last - first + 1 then fail(self, "the array ends within its pickle") end
  self.at = first + n
  return self.bytes:sub(first, first + n - 1)
end

-- An unsigned little-endian number of n bytes.
local function unsigned(self, n)
  local value = 0
  for i = n, 1, -1 do value = value * 256 + self.bytes:byte(self.at + i - 1, self.at + i - 1) end
  self.at = self.at + n
  return value
end

local function number(self, n)
  if n > self.last - self.at + 1 then fail(self, "the array ends within its pickle") end
  return unsigned(self, n)
end

local function signed(self, n)
  if n > 6 then fail(self, "a number has %d bytes, at most 6 are supported", n) end
  local value = n > 0 and number(self, n) or 0
  return value >= 2 ^ (8 * n - 1) and n > 0 and value - 2 ^ (8 * n) or value
end

local function line(self)
  local finish = self.bytes:find("\n", self.at, true)
  if not finish or finish > self.last then fail(self, "the array ends within its pickle") end
  return take(self, finish - self.at + 1):sub(1, -2)
end

-- ---- the stack ----------------------------------------------------------------------------------

local MARK, NONE = {}, {}

-- Limits against hostile files. The largest published file has 50,000 lists, to which it adds 1000 values at a time.
local MOST_OBJECTS, MOST_VALUES = 1e6, 1e6

local function push(self, value)
  self.top = self.top + 1
  self.stack[self.top] = value
  if type(value) == "table" then self.objects = self.objects + 1 end
  if self.top > MOST_VALUES or self.objects > MOST_OBJECTS then fail(self, "the pickle is too large") end
end

local function pop(self)
  local value = self.stack[self.top]
  if self.top == 0 or value == MARK then fail(self, "the pickle pops more values than it has pushed") end
  self.stack[self.top], self.top = nil, self.top - 1
  return value
end

-- The values since the last mark, as an array, which are taken off with it.
local function pop_mark(self)
  local low = self.top
  while low > 0 and self.stack[low] ~= MARK do low = low - 1 end
  if low == 0 then fail(self, "the pickle lacks a mark") end
  local list = {}
  for i = low + 1, self.top do
    list[i - low], self.stack[i] = self.stack[i], nil
  end
  self.stack[low], self.top = nil, low - 1
  return list
end

local function pop_list(self, n)
  local list = {}
  for i = n, 1, -1 do list[i] = pop(self) end
  return list
end

-- A value of this kind; lists, tuples and arrays are tables with a field `kind`.
local function need(self, value, kind)
  local found = type(value) == "table" and value.kind or type(value)
  if found ~= kind then fail(self, "the pickle has a %s in place of a %s", found or "none", kind) end
  return value
end

local function append(self, list, values)
  need(self, list, "list")
  for _, value in ipairs(values) do list[#list + 1] = value end
end

-- ---- what may be called ---------------------------------------------------------------------------

local GLOBALS = {
  ["numpy ndarray"] = "ndarray",
  ["numpy dtype"] = "dtype",
  ["numpy.core.multiarray _reconstruct"] = "reconstruct",
  ["numpy._core.multiarray _reconstruct"] = "reconstruct",
}

local function push_global(self, module, name)
  local what = GLOBALS[module .. " " .. name]
  if not what then
    fail(self, "the pickle wants to use %s.%s, which is not allowed: the file is damaged or malicious", module, name)
  end
  push(self, { kind = what })
end

local function reduce(self)
  need(self, pop(self), "tuple")
  local callee = pop(self)
  local kind = type(callee) == "table" and callee.kind
  if kind == "reconstruct" then
    push(self, { kind = "array" })
  elseif kind == "dtype" then
    push(self, { kind = "element type" })
  else
    fail(self, "the pickle calls a value that is not a function")
  end
end

-- The state of an array is {version, shape, dtype, fortran, list of elements}.
local function build(self)
  local state = need(self, pop(self), "tuple")
  local object = self.stack[self.top]
  if type(object) == "table" and object.kind == "element type" then return end
  need(self, object, "array")
  local shape, list = need(self, state[2], "tuple"), need(self, state[5], "list")
  if #shape ~= 1 or shape[1] ~= #list then fail(self, "the shape of the array does not fit its elements") end
  object.list = list
end

-- ---- instructions ---------------------------------------------------------------------------------

local function text(n) return function(self) push(self, take(self, number(self, n))) end end

local function tuple(n)
  return function(self)
    local list = n and pop_list(self, n) or pop_mark(self)
    list.kind = "tuple"
    push(self, list)
  end
end

local function memoize(n)
  return function(self)
    local key = n and number(self, n) or self.memoized
    self.memoized = self.memoized + 1
    if self.memoized > MOST_OBJECTS then fail(self, "the pickle is too large") end
    self.memo[key] = self.stack[self.top]
  end
end

local function recall(n)
  return function(self)
    local value = self.memo[number(self, n)]
    if value == nil then fail(self, "the pickle reads a memo entry that it has not written") end
    push(self, value)
  end
end

local function constant(value) return function(self) push(self, value) end end

local instructions = {
  ["\x80"] = function(self)
    local protocol = number(self, 1)
    if protocol < 2 or protocol > 5 then fail(self, "pickle protocol %d is not supported, only 2 to 5", protocol) end
  end,
  ["\x95"] = function(self) take(self, 8) end, -- a frame's length, which tells nothing new
  ["c"] = function(self) push_global(self, line(self), line(self)) end,
  ["\x93"] = function(self)
    local names = pop_list(self, 2)
    push_global(self, need(self, names[1], "string"), need(self, names[2], "string"))
  end,
  ["R"] = reduce, ["b"] = build,
  ["K"] = function(self) push(self, number(self, 1)) end,
  ["M"] = function(self) push(self, number(self, 2)) end,
  ["J"] = function(self) push(self, signed(self, 4)) end,
  ["\x8a"] = function(self) push(self, signed(self, number(self, 1))) end,
  ["N"] = constant(NONE), ["\x88"] = constant(true), ["\x89"] = constant(false), ["("] = constant(MARK),
  ["U"] = text(1), ["C"] = text(1), ["\x8c"] = text(1), ["X"] = text(4), ["B"] = text(4), ["T"] = text(4),
  ["\x94"] = memoize(), ["q"] = memoize(1), ["r"] = memoize(4), ["h"] = recall(1), ["j"] = recall(4),
  [")"] = tuple(0), ["\x85"] = tuple(1), ["\x86"] = tuple(2), ["\x87"] = tuple(3), ["t"] = tuple(),
  ["]"] = function(self) push(self, { kind = "list" }) end,
  ["a"] = function(self)
    local value = pop(self)
    append(self, self.stack[self.top], { value })
  end,
  ["e"] = function(self)
    local values = pop_mark(self)
    append(self, self.stack[self.top], values)
  end,
}

-- Runs the pickle and RETURNS the array it makes.
local function run(self)
  while true do
    local code = take(self, 1)
    if code == "." then break end
    local instruction = instructions[code]
    if not instruction then fail(self, "the instruction %q of pickles is not allowed", code) end
    instruction(self)
  end
  local array = need(self, pop(self), "array")
  return array.list or fail(self, "the array has no elements")
end

-- ---- .npy files -----------------------------------------------------------------------------------

-- The header's text, and where the elements begin.
local function read_header(who, bytes)
  local version = bytes:byte(7)
  local width = version == 1 and 2 or 4
  local ok = bytes:sub(1, 6) == "\x93NUMPY" and #bytes >= 8 + width
  local n = ok and unsigned({ bytes = bytes, at = 9 }, width) or 0
  if not ok or n > #bytes - 8 - width then core.fail("data", who .. ": not a .npy file, or damaged") end
  return bytes:sub(9 + width, 8 + width + n), 9 + width + n
end

--- rows(who, bytes) -> array of arrays of numbers, from the bytes of a .npy file with an object array of lists of
--- numbers. `who` begins messages. Errors: any other file.
function M.rows(who, bytes)
  local header, first = read_header(who, bytes)
  if not header:find "'descr': '|O'" then core.fail("data", who .. ": not an array of lists: " .. header) end
  local list = run { who = who, bytes = bytes, at = first, last = #bytes, stack = {}, top = 0, memo = {}, memoized = 0,
    objects = 0 }
  local count = 0
  for i, row in ipairs(list) do
    if type(row) ~= "table" or row.kind ~= "list" then
      core.fail("data", ("%s: element %d is not a list"):format(who, i))
    end
    count = count + #row
    if count > #bytes then -- a row that is repeated by reference
      core.fail("data", ("%s: more than %d numbers in %d bytes"):format(who, #bytes, #bytes))
    end
    for k = 1, #row do
      if type(row[k]) ~= "number" then
        core.fail("data", ("%s: element %d holds something other than numbers"):format(who, i))
      end
    end
  end
  list.kind = nil
  for _, row in ipairs(list) do row.kind = nil end
  return list
end

--- numbers(who, bytes) -> array of numbers, from the bytes of a .npy file with a vector of 64-bit integers.
function M.numbers(who, bytes)
  local header, first = read_header(who, bytes)
  local n = tonumber(header:match "'shape': %((%d+),%)")
  if not header:find "'descr': '<i8'" or not n or n * 8 ~= #bytes - first + 1 then
    core.fail("data", ("%s: not a vector of 64-bit integers, or damaged: %s"):format(who, header))
  end
  local list, values = {}, ffi.new("int64_t[?]", n + 1)
  ffi.copy(values, bytes:sub(first), 8 * n)
  for i = 1, n do list[i] = tonumber(values[i - 1]) end
  return list
end

return M
