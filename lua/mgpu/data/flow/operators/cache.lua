--- cache: the elements of one pass, kept and given out in every pass.
--
-- dataset.kept is shared by all operators of the dataset: elements, the first ones of the pass; complete, whether they
-- are all; source, the operator that gives the next one, if one is open; path, the file, or nil. The first pass is kept
-- whichever pass is asked for, so that a resumed training sees the elements that it saw before.
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local operator = require "mgpu.data.flow.operator"
local stack = require "mgpu.data.flow.stack"
local structure = require "mgpu.data.flow.structure"

-- ---- the file -----------------------------------------------------------------------------------

-- Files of cached elements: what ds:cache(path) writes.
--
-- The format is safetensors. Leaf i of the elements (structure.lua) is the tensor "i" of shape {n, ...}, with a row for
-- each element. Where shapes differ, rows are padded to the largest, and "i/shapes" {n, axes} holds the shapes. Text is
-- its bytes one string after another, "i", with "i/lengths". Batches of text have "i/counts", the number of strings in
-- each; batches of batches "i/counts" of the outer and "i/counts/2" of the inner ones. Metadata: format, count and
-- structure, the elements' structure as JSON. The store's own checksum covers all of it.

local FORMAT = "mgpulua cache 1"
local CHUNK = 4096 -- numbers that are turned into text at a time

local function fail(path, message, ...) core.fail("data", ("cache: %s: " .. message):format(path, ...)) end

-- A tensor of whole numbers, perhaps none.
local function numbers(list, dtype) -- {} alone would have no dtype
  if #list == 0 then return core.ops.full { shape = { 0 }, value = 0, dtype = dtype } end
  return core.tensor(list, { dtype = dtype })
end

local function kind_of(leaf)
  if core.is_tensor(leaf) then return ("%s %d"):format(leaf:dtype(), leaf:rank()) end
  return type(leaf) == "string" and "text" or "texts"
end

-- ---- writing ------------------------------------------------------------------------------------

-- The largest size on each axis, and the shapes of all tensors one after another if they are not equal.
local function shapes_of(list)
  local cell, all, differ = list[1]:shape(), {}, false
  for _, t in ipairs(list) do
    for axis, size in ipairs(t:shape()) do
      differ = differ or size ~= cell[axis]
      cell[axis] = math.max(cell[axis], size)
      all[#all + 1] = size
    end
  end
  return cell, differ and all
end

local function put_tensors(tensors, i, list)
  local cell, differing = shapes_of(list)
  tensors[i] = stack.tensors(list, cell)
  if differing then tensors[i .. "/shapes"] = core.tensor(differing, { dtype = "int64" }):reshape { #list, #cell } end
end

local function put_text(tensors, i, strings)
  local bytes, lengths = {}, {}
  for k, text in ipairs(strings) do
    lengths[k] = #text
    for at = 1, #text do bytes[#bytes + 1] = text:byte(at) end
  end
  tensors[i], tensors[i .. "/lengths"] = numbers(bytes, "uint8"), numbers(lengths, "int64")
end

-- The name of the tensor with the numbers of entries of batches of text: level 1 is the batches, level 2 those in them.
local function counts_name(i, level) return level == 1 and i .. "/counts" or ("%s/counts/%d"):format(i, level) end

local function put_texts(tensors, i, batches)
  local level = 0
  repeat
    local entries, counts = {}, {}
    for k, batch in ipairs(batches) do
      counts[k] = #batch
      for _, entry in ipairs(batch) do entries[#entries + 1] = entry end
    end
    level = level + 1
    tensors[counts_name(i, level)] = numbers(counts, "int64")
    batches = entries
  until type(batches[1]) ~= "table"
  put_text(tensors, i, batches)
end

-- The leaves of all elements by their number. Errors: elements of different structures.
local function columns_of(path, elements)
  local columns, first = {}, nil
  for k, element in ipairs(elements) do
    local leaves, paths = structure.flatten(element)
    first = first or paths
    if paths ~= first then
      fail(path, "element %d has %s, element 1 has %s: elements that differ cannot be cached in a file", k, paths,
        first)
    end
    for i, leaf in ipairs(leaves) do
      columns[i] = columns[i] or {}
      columns[i][k] = leaf
      if kind_of(leaf) ~= kind_of(columns[i][1]) then
        fail(path, "%s is %s in element %d, but %s in element 1: elements that differ cannot be cached in a file",
          structure.path(element, i), kind_of(leaf), k, kind_of(columns[i][1]))
      end
    end
  end
  return columns
end

-- write(path, elements): writes the file, whole or not at all. Errors: I/O; elements of different structures, dtypes
-- or numbers of axes.
local function write(path, elements)
  local tensors, kinds = {}, {}
  for i, list in ipairs(columns_of(path, elements)) do
    kinds[i] = kind_of(list[1]):match "^%a+%d*"
    local put = kinds[i] == "text" and put_text or kinds[i] == "texts" and put_texts or put_tensors
    put(tensors, tostring(i), list)
  end
  local like = #elements > 0 and structure.unflatten(elements[1], kinds) or core.empty_array
  local ok, message = pcall(core.store_save, path, tensors, { format = FORMAT, count = ("%d"):format(#elements),
    structure = core.json_encode(like) }, "safetensors")
  if not ok then checks.forward("cache", message) end
end

-- ---- reading ------------------------------------------------------------------------------------

-- The tensor of that name. Errors: it is not in the file, or has another number of rows or axes than expected.
local function find(file, name, rows, rank)
  local t = file.tensors[name]
  if not t then fail(file.path, "the file is damaged: it has no tensor %q", name) end
  if rows and t:shape()[1] ~= rows or rank and t:rank() ~= rank then
    fail(file.path, "the file is damaged: the tensor %q has shape {%s}", name, table.concat(t:shape(), ", "))
  end
  return t
end

-- The entries of a tensor of whole numbers from 0 on; their sum must be `total`, if given.
local function whole_numbers(file, name, rows, total)
  local list, sum = find(file, name, rows, 1):totable(), 0
  for _, n in ipairs(list) do
    if n < 0 then fail(file.path, "the file is damaged: %q has a number below 0", name) end
    sum = sum + n
  end
  if total and sum ~= total then fail(file.path, "the file is damaged: %q does not fit the text", name) end
  return list, sum
end

local function cut(file, t, shape, name, k)
  local start = {}
  for axis, size in ipairs(shape) do
    if size < 0 or size > t:shape()[axis] then
      fail(file.path, "the file is damaged: %q has a wrong shape for element %d", name, k)
    end
    start[axis] = 0
  end
  return core.ops.slice(t, { start = start, stop = shape })
end

local function take_tensors(file, i, count)
  local list, name = stack.rows_of(find(file, i, count)), i .. "/shapes"
  if not file.tensors[name] then return list end
  local shapes = find(file, name, count, 2):totable()
  for k, t in ipairs(list) do
    if #shapes[k] ~= t:rank() then fail(file.path, "the file is damaged: %q does not fit %q", name, i) end
    list[k] = cut(file, t, shapes[k], name, k)
    core.eval(list[k])
  end
  return list
end

local function take_text(file, i, count)
  local bytes, list = find(file, i, nil, 1):totable(), {}
  for k, length in ipairs((whole_numbers(file, i .. "/lengths", count, #bytes))) do list[k] = length end
  local at = 0
  for k, length in ipairs(list) do
    local parts = {}
    for first = at + 1, at + length, CHUNK do
      parts[#parts + 1] = string.char(unpack(bytes, first, math.min(first + CHUNK - 1, at + length)))
    end
    list[k], at = table.concat(parts), at + length
  end
  return list
end

local function take_texts(file, i, count)
  local levels = {}
  repeat
    levels[#levels + 1], count = whole_numbers(file, counts_name(i, #levels + 1), count)
  until not file.tensors[counts_name(i, #levels + 1)]
  local entries = take_text(file, i, count)
  for level = #levels, 1, -1 do
    local batches, at = {}, 0
    for k, n in ipairs(levels[level]) do
      batches[k] = structure.text {}
      for j = 1, n do batches[k][j] = entries[at + j] end
      at = at + n
    end
    entries = batches
  end
  return entries
end

local function take(file, i, kind, count)
  local takers = { text = take_text, texts = take_texts }
  return (takers[kind] or take_tensors)(file, tostring(i), count)
end

local function load(path)
  local ok, tensors, notes = pcall(core.store_load, path)
  if ok then return tensors, notes end
  checks.forward("cache", tensors)
end

-- read(path) -> the elements. Errors: I/O; a file that is damaged or no cache.
local function read(path)
  local tensors, notes = load(path)
  local count = tonumber(notes.count)
  if notes.format ~= FORMAT or not count or count < 0 or count % 1 ~= 0 or not notes.structure then
    fail(path, "the file is not a cache of this version: give another path, or delete the file")
  end
  local file, like = { path = path, tensors = tensors }, core.json_decode(notes.structure)
  local columns, elements = {}, {}
  if type(like) ~= "table" or like[1] == nil and count > 0 then
    fail(path, "the file is damaged: it has no structure")
  end
  for i, kind in ipairs((structure.flatten(like))) do columns[i] = take(file, i, kind, count) end
  for k = 1, count do
    local leaves = {}
    for i, list in ipairs(columns) do leaves[i] = list[k] end
    elements[k] = structure.unflatten(like, leaves)
  end
  return elements
end

-- ---- the operator -------------------------------------------------------------------------------

local Cache = operator.class(true)

--- memory(path) -> the empty `kept` of a dataset.
function Cache.memory(path) return { elements = {}, path = path } end

-- Raises unless the file has as many elements as the dataset, where their number is known.
local function check_count(dataset, n)
  if not dataset.count or dataset.count == n then return end
  core.fail("data", ("cache: %s has %d elements, the dataset here has %s: it holds elements of another dataset: give "
    .. "another path, or remove the file to have it written again"):format(dataset.kept.path, n,
    dataset.count == math.huge and "no end" or dataset.count))
end

-- Reads the file if it is there.
function Cache:begin()
  local kept = self.dataset.kept
  if not kept.complete and kept.path and core.file_exists(kept.path) then
    local elements = read(kept.path)
    check_count(self.dataset, #elements)
    kept.elements, kept.complete = elements, true
  end
end

local function close_source(kept)
  if kept.source then kept.source:close() end
  kept.source = nil
end

-- Adds the next element to those kept, or notes that there is none.
local function keep_next(self)
  local kept, elements = self.dataset.kept, self.dataset.kept.elements
  if not kept.source then
    kept.source = operator.open(self.dataset.input, 0)
    kept.source:leap(#elements)
  end
  local element = kept.source:pull()
  if element then
    elements[#elements + 1] = element
    return
  end
  close_source(kept)
  if kept.path then write(kept.path, elements) end
  kept.complete = true
end

function Cache:pull()
  local kept = self.dataset.kept
  if self.at == #kept.elements and not kept.complete then keep_next(self) end
  local element = kept.elements[self.at + 1]
  if element then self.at = self.at + 1 end
  return element
end

function Cache:leap(n)
  local kept = self.dataset.kept
  local here = math.min(n, #kept.elements - self.at)
  self.at = self.at + here
  if here == n or kept.complete then return here end
  for left_out = here, n - 1 do
    if not self:pull() then return left_out end
  end
  return n
end

-- Another pass that is under way opens the source again.
function Cache:close() close_source(self.dataset.kept) end

return Cache
