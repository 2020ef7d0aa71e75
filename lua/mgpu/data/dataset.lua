--- Datasets: what mgpu.data's sources return. Methods make new datasets and leave the old one alone.
--
--   :shuffle(n, seed)   elements in random order, drawn from a window of n (all of them with n >= their
--                       number); another order at each pass; without a seed, from mgpu.seed
--   :batch(n, {drop_remainder = false})   n elements as one, along a new first axis
--   :map(fn)            fn(x, y, ...) of each element; traced once per shape (mgpu.jit)
--   :cycle(n)           n passes, or passes without end
--   :take(n) :skip(n)   the first n elements of a pass; those after them
--   :prefetch(n)        a thread copies rows for the n batches to come while this one is used
--   :iter([position])   a fresh pass: for x, y in ds:iter() do; it may be left early. iterator:position()
--                       is a plain table from which another iter goes on with the next element.
--   :length()           elements in a pass; nil if it has no end
-- An element is one row of each tensor (without the axis of rows) until :batch; stages have the meaning
-- and order of tf.data's.
local core = require "mgpu.core"

local ops = core.ops

local Dataset = {}
Dataset.__index = Dataset
Dataset.__tostring = function(self) return "dataset of " .. (self:length() or "endless") .. " elements" end

local SHUFFLE_STREAM = 2 -- of the random numbers, apart from those of layers and fit

local function fail(who, message, ...) core.fail("usage", who .. ": " .. message:format(...)) end

local function check_count(who, n, least)
  if type(n) ~= "number" or n % 1 ~= 0 or n < least or n == math.huge then
    fail(who, "expected a whole number of at least %d, got %s", least, tostring(n))
  end
  return n
end

-- A dataset is a stage over another: make(pass) returns a pull function for a pass, whose values are
-- elements: a row number, or an array of them (a batch of rows), before the rows are fetched; {tensors}
-- afterwards. `rows`: whether it still deals in row numbers.
local function stage(source, fields)
  fields.source, fields.tensors = source, source.tensors
  if fields.rows == nil then fields.rows = source.rows end
  fields.depth = fields.depth or source.depth
  return setmetatable(fields, Dataset)
end

--- The dataset of all rows of host tensors.
function Dataset.of_rows(tensors, count)
  return setmetatable({ tensors = tensors, count = count, rows = true, make = function()
    local at = 0
    return function()
      if at < count then
        at = at + 1
        return at - 1
      end
    end
  end }, Dataset)
end

function Dataset:length() return self.count end

-- ---- order --------------------------------------------------------------------------------------

-- A window of n elements; each that leaves it at random is replaced by the next. The choices are
-- those of one permutation per round of n, a function of seed and pass alone.
local function windowed(pull, n, order_of)
  local window, round, choices, at = {}, 0, nil, 0
  for i = 1, n do
    window[i] = pull()
    if window[i] == nil then break end
  end
  return function()
    if #window == 0 then return nil end
    if not choices or at == #choices then
      choices, at, round = order_of(n, round), 0, round + 1
    end
    at = at + 1
    local place = choices[at] % #window + 1
    local chosen, nxt = window[place], pull()
    if nxt ~= nil then
      window[place] = nxt
    else
      window[place] = window[#window]
      window[#window] = nil
    end
    return chosen
  end
end

-- Everything at once: a permutation.
local function permuted(pull, order_of)
  local all = {}
  for element in pull do all[#all + 1] = element end
  local order, at = #all > 0 and order_of(#all, 0) or {}, 0
  return function()
    at = at + 1
    return order[at] and all[order[at] + 1]
  end
end

function Dataset:shuffle(n, seed)
  check_count("shuffle", n, 1)
  if seed ~= nil then check_count("shuffle: the seed", seed, 0) end
  local source = self
  return stage(self, { count = self.count, passes = true, make = function(pass)
    local function order_of(count, round)
      local before = core.rng_state()
      if seed then core.rng_state { seed = seed % 2 ^ 31, base = 0 } end
      local order = core.permutation(count, SHUFFLE_STREAM, pass * 1048576 + round)
      core.rng_state(before)
      return order:totable()
    end
    local pull = source.make(pass)
    if source.count and n >= source.count then return permuted(pull, order_of) end
    return windowed(pull, n, order_of)
  end })
end

function Dataset:cycle(n)
  if n ~= nil then check_count("cycle", n, 0) end
  local source = self
  local count = n and self.count and n * self.count or nil
  if n and not self.count then fail("cycle", "the dataset has no end already") end
  return stage(self, { count = count, make = function(pass)
    local round, pull, empty = 0, nil, false
    return function()
      while not empty do
        if not pull then
          if n and round >= n then return nil end
          pull, round = source.make(pass * (n or 1) + round), round + 1
          local first = pull()
          if first ~= nil then return first end
          empty = true
        end
        local element = pull and pull()
        if element ~= nil then return element end
        pull = nil
      end
    end
  end })
end

function Dataset:take(n)
  check_count("take", n, 0)
  local source = self
  return stage(self, { count = self.count and math.min(n, self.count) or n, make = function(pass)
    local pull, left = source.make(pass), n
    return function()
      if left == 0 then return nil end
      left = left - 1
      return pull()
    end
  end })
end

function Dataset:skip(n)
  check_count("skip", n, 0)
  local source = self
  return stage(self, { count = self.count and math.max(self.count - n, 0), make = function(pass)
    local pull = source.make(pass)
    for _ = 1, n do
      if pull() == nil then break end
    end
    return pull
  end })
end

-- ---- from row numbers to tensors ----------------------------------------------------------------

local function row_tensor(rows) return core.tensor(rows, { dtype = "int32" }) end

-- One row of each tensor, or the rows of a batch.
local function fetch(tensors, element)
  local list, single = {}, type(element) == "number"
  local index = row_tensor(single and { element } or element)
  for i, t in ipairs(tensors) do
    local y = ops.gather(t, index:to(t:device()), { axis = 1 })
    if single then y = ops.reshape(y, { shape = { select(2, unpack(y:shape())) } }) end
    list[i] = y
  end
  core.eval(unpack(list))
  return list
end

-- The tensors of elements that are row numbers; with a depth and batches, a thread fetches ahead.
local function fetching(source, pull)
  if not source.rows then return pull end
  local tensors, stream, ended = source.tensors, nil, false
  return function()
    local element
    if not stream then
      element = pull()
      if element == nil then return nil end
      if not source.depth or type(element) == "number" then return fetch(tensors, element) end
      stream = core.stream(source.depth + 1, unpack(tensors))
      stream:push(element)
    end
    while not ended and stream:ahead() <= source.depth do
      element = pull()
      if element == nil then
        ended = true
      else
        stream:push(element)
      end
    end
    return stream:ahead() > 0 and { stream:pop() } or nil
  end
end

local function stacked(elements)
  local list = {}
  for k = 1, #elements[1] do
    local parts = {}
    for i, element in ipairs(elements) do
      local t = element[k]
      local shape = t:shape()
      table.insert(shape, 1, 1)
      parts[i] = ops.reshape(t, { shape = shape })
    end
    list[k] = #parts == 1 and parts[1] or ops.concat(parts, { axis = 1 })
  end
  core.eval(unpack(list))
  return list
end

function Dataset:batch(n, given)
  check_count("batch", n, 1)
  local drop = type(given) == "table" and given.drop_remainder or false
  if given ~= nil and type(given) ~= "table" then fail("batch", "options are a table, got %s", type(given)) end
  for key in pairs(given or {}) do
    if key ~= "drop_remainder" then fail("batch", "unknown option %q (drop_remainder)", tostring(key)) end
  end
  local source = self
  local as_rows = self.rows and not self.batched
  local count = self.count and (drop and math.floor(self.count / n) or math.ceil(self.count / n))
  return stage(self, { count = count, rows = as_rows, batched = true, make = function(pass)
    local pull = as_rows and source.make(pass) or fetching(source, source.make(pass))
    return function()
      local list = {}
      for i = 1, n do
        list[i] = pull()
        if list[i] == nil then break end
      end
      if #list == 0 or drop and #list < n then return nil end
      return as_rows and list or stacked(list)
    end
  end })
end

function Dataset:map(fn)
  if type(fn) ~= "function" then fail("map", "expected a function, got %s", type(fn)) end
  local source, traced = self, core.jit(fn)
  return stage(self, { count = self.count, rows = false, make = function(pass)
    local pull = fetching(source, source.make(pass))
    return function()
      local element = pull()
      if element == nil then return nil end
      local result = { traced(unpack(element)) }
      if #result == 0 or type(result[1]) ~= "userdata" then
        fail("map", "the function must return tensors, got %s", type(result[1]))
      end
      return result
    end
  end })
end

function Dataset:prefetch(n)
  check_count("prefetch", n, 1)
  local source = self
  return stage(self, { count = self.count, depth = n, make = function(pass)
    return source.make(pass)
  end })
end

-- ---- passes -------------------------------------------------------------------------------------

local Iterator = {}
Iterator.__index = Iterator

function Iterator:__call()
  local element = self.pull()
  if element == nil then return nil end
  self.element = self.element + 1
  return unpack(element)
end

--- {pass =, element =}: what has been taken; iter(position) goes on behind it.
function Iterator:position() return { pass = self.pass, element = self.element } end

-- A depth given after map reaches back to where the rows are fetched.
local function pass_on_depth(self)
  local depth, at = nil, self
  while at do
    depth = depth or at.depth
    if depth and not at.depth then at.depth = depth end
    at = at.source
  end
end

function Dataset:iter(position)
  if position ~= nil and (type(position) ~= "table" or type(position.pass) ~= "number"
    or type(position.element) ~= "number") then
    fail("iter", "a position is what iterator:position() gave")
  end
  pass_on_depth(self)
  self.passes_made = self.passes_made or 0
  local pass = position and position.pass or self.passes_made
  self.passes_made = pass + 1
  local it = setmetatable({ pass = pass, element = 0, pull = fetching(self, self.make(pass)) }, Iterator)
  for _ = 1, position and position.element or 0 do it() end
  return it
end

return Dataset
