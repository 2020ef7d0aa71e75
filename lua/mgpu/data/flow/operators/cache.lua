--- cache: the elements of one pass, kept and given out in every pass.
--
-- dataset.kept is shared by all operators of the dataset: elements, the first ones of the pass; complete, whether they
-- are all; source, the operator that gives the next one, if one is open; path, the file, or nil. The first pass is kept
-- whichever pass is asked for, so that a resumed training sees the elements that it saw before.
local cache_file = require "mgpu.data.flow.cache_file"
local core = require "mgpu.core"
local operator = require "mgpu.data.flow.operator"

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
    local elements = cache_file.read(kept.path)
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
  if kept.path then cache_file.write(kept.path, elements) end
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
