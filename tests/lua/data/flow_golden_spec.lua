-- Chains of datasets give the elements that tf.data gives: golden/flow.lua, recorded by golden/flow_cases.py.

local check = require "check"
local golden = require "golden.load" "flow"
local mgpu = require "mgpu"

local test = check.test

local predicates = {
  even = function(x) return (x % 2):eq(0) end,
  above_3 = function(x) return x:gt(3) end,
  none = function(x) return x:lt(0) end,
  sum_even = function(x) return (x:sum() % 2):eq(0) end,
  first_even = function(x) return (x % 2):eq(0) end,
}
local maps = {
  double = function(x) return x * 2 end,
  with_square = function(x) return x, x * x end,
  swap = function(x, y) return y, x end,
  nest = function(x, y) return { x, y }, x + y end,
}

local function range(n) return mgpu.data.from_tensors { mgpu.arange(n) } end
local function count_to(x) return range(x:item()) end

-- Element i is the numbers 1 .. lengths[i].
local function ragged(lengths)
  return mgpu.data.generator(function()
    local i = 0
    return function()
      i = i + 1
      return lengths[i] and mgpu.arange(1, lengths[i] + 1)
    end
  end, { length = #lengths })
end

local build

local function built(chains)
  local list = {}
  for i, chain in ipairs(chains) do list[i] = build(chain) end
  return list
end

local steps = {
  range = function(_, s) return range(s.n) end,
  pairs = function(_, s) return mgpu.data.from_tensors { mgpu.arange(s.n), mgpu.arange(10, s.n + 10) } end,
  rows = function(_, s) return mgpu.data.from_tensors { mgpu.arange(s.n * s.size):reshape { s.n, s.size } } end,
  ragged = function(_, s) return ragged(s.lengths) end,
  zip = function(_, s) return mgpu.data.zip(built(s.of)) end,
  concatenate = function(ds, s) return ds:concatenate(build(s.with)) end,
  interleave = function(_, s)
    return mgpu.data.interleave(built(s.of), { cycle_length = s.cycle_length, block_length = s.block_length })
  end,
  flat_map = function(ds) return ds:flat_map(count_to) end,
  interleave_map = function(ds, s)
    return ds:interleave(count_to, { cycle_length = s.cycle_length, block_length = s.block_length })
  end,
  filter = function(ds, s) return ds:filter(predicates[s.by]) end,
  map = function(ds, s) return ds:map(maps[s.by]) end,
  batch = function(ds, s) return ds:batch(s.n, { drop_remainder = s.drop_remainder }) end,
  unbatch = function(ds) return ds:unbatch() end,
  padded_batch = function(ds, s)
    return ds:padded_batch(s.n, { padded_shapes = s.padded_shapes, padding_values = s.padding_values,
      drop_remainder = s.drop_remainder })
  end,
  window = function(ds, s)
    return ds:window(s.n, { shift = s.shift, stride = s.stride, drop_remainder = s.drop_remainder })
  end,
  take = function(ds, s) return ds:take(s.n) end,
  skip = function(ds, s) return ds:skip(s.n) end,
  shard = function(ds, s) return ds:shard(s.i, s.n) end,
  cycle = function(ds, s) return ds:cycle(s.n) end,
  cache = function(ds) return ds:cache() end,
  enumerate = function(ds, s) return ds:enumerate(s.start) end,
}

function build(chain)
  local ds
  for _, s in ipairs(chain) do ds = steps[s.op](ds, s) end
  return ds
end

-- Tensors as nested tables.
local function plain(value)
  if type(value) == "userdata" then return value:totable() end
  local list = {}
  for i, v in ipairs(value) do list[i] = plain(v) end
  return list
end

local function elements(it)
  local list = {}
  while true do
    local e = { it() }
    if e[1] == nil then return list end
    list[#list + 1] = plain(#e == 1 and e[1] or e)
  end
end

local function name_of(chain, i)
  local names = {}
  for k, s in ipairs(chain) do names[k] = s.op end
  return ("case %d: %s"):format(i, table.concat(names, " "))
end

for i, case in ipairs(golden.cases) do
  test(name_of(case.chain, i), function()
    local ds = build(case.chain)
    check.equal(elements(ds:iter()), case.elements)
    -- every position continues with the rest
    for k = 0, #case.elements do
      check.equal(elements(ds:iter { pass = 0, element = k }), { unpack(case.elements, k + 1) })
    end
    if case.length >= 0 then check.equal(ds:length(), case.length) end
    local known = ds:length()
    if known then check.equal(known, #case.elements) end
  end)
end
