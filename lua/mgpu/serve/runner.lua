--- Runs a model on rows that were joined from several requests.
--
-- The rows of a batch are filled up to a power of two, or to the largest batch, by repeating the last row: so few plans
-- are compiled, one for each of these sizes and each shape of a row. A model of which not all inputs and outputs have
-- an open number of rows runs each request by itself, as it is; so does any model with batches of one row.
local core = require "mgpu.core"
local host_part = require "mgpu.nn.host_part"
local values = require "mgpu.serve.values"

local M = {}

local Runner = {}
Runner.__index = Runner

-- The columns of the model's inputs as what a jitted call of `body` takes.
local function tensors_of(self, columns)
  local list = {}
  for i, c in ipairs(columns) do
    if c.texts then
      list[i] = c.texts
      if #c.shape == 2 then
        list[i] = {}
        for row, text in ipairs(c.texts) do list[i][row] = { text } end
      end
    else
      list[i] = values.to_tensor(c)
    end
  end
  return self.part and host_part.results(self.part, list) or list
end

local function outputs_of(result)
  return type(result) == "table" and not core.is_tensor(result) and result or { result }
end

--- new(model, signature, batch) -> a runner; batch: most rows at a time.
function M.new(model, signature, batch)
  local part = model.reads_values and host_part.of(model) or nil
  local body = part and part.body or model
  local function call(...)
    local x = { ... }
    return unpack(outputs_of(body(#x > 1 and x or x[1])))
  end
  return setmetatable({ signature = signature, batch = batch, part = part, call = core.jit(call, { frozen = true }),
    batches = 0 }, Runner)
end

-- The rows first to last (from 1) of a column, filled up to `rows` with its last one.
local function part_of(column, first, last, rows)
  local c = { dtype = column.dtype, shape = { rows, unpack(column.shape, 2) } }
  if column.texts then
    local width = values.count(column.shape, 2)
    c.texts = {}
    for row = 1, rows do
      local from = math.min(first + row - 1, last)
      for k = 1, width do c.texts[(row - 1) * width + k] = column.texts[(from - 1) * width + k] end
    end
    return c
  end
  local bytes = values.count(column.shape, 2) * values.size_of(column.dtype)
  c.bytes = column.bytes:sub((first - 1) * bytes + 1, last * bytes)
  if rows > last - first + 1 then
    c.bytes = c.bytes .. c.bytes:sub(-bytes):rep(rows - (last - first + 1))
  end
  return c
end

-- Some columns of equal rows, one after another.
local function joined(list)
  if #list == 1 then return list[1] end
  local c, rows = { dtype = list[1].dtype, shape = { unpack(list[1].shape) } }, 0
  for _, column in ipairs(list) do rows = rows + column.shape[1] end
  c.shape[1] = rows
  if list[1].texts then
    c.texts = {}
    for _, column in ipairs(list) do
      for _, text in ipairs(column.texts) do c.texts[#c.texts + 1] = text end
    end
    return c
  end
  local parts = {}
  for i, column in ipairs(list) do parts[i] = column.bytes end
  c.bytes = table.concat(parts)
  return c
end

local function compute(self, columns)
  self.batches = self.batches + 1
  local outputs = { core.no_grad(function() return self.call(unpack(tensors_of(self, columns))) end) }
  for i, t in ipairs(outputs) do outputs[i] = values.from_tensor(t) end
  return outputs
end

-- The least power of two that is not below n, but at most the largest batch.
local function filled(self, n)
  local size = 1
  while size < n do size = size * 2 end
  return math.min(size, math.max(self.batch, n))
end

-- Runs n joined rows, in several batches if they are more than one. RETURNS the outputs' columns of n rows.
local function run_rows(self, columns, n)
  local parts = {}
  for first = 1, n, self.batch do
    local last = math.min(first + self.batch - 1, n)
    local rows, some = filled(self, last - first + 1), {}
    for i, c in ipairs(columns) do some[i] = part_of(c, first, last, rows) end
    for i, c in ipairs(compute(self, some)) do
      if c.shape[1] ~= rows then
        core.fail("unsupported", ("serve: output \"%s\" has %s rows for a batch of %d: start with --batch 1"):format(
          self.signature.outputs[i].name, c.shape[1] or "no", rows))
      end
      parts[i] = parts[i] or {}
      table.insert(parts[i], part_of(c, 1, last - first + 1, last - first + 1))
    end
  end
  for i, list in ipairs(parts) do parts[i] = joined(list) end
  return parts
end

--- runner:run(jobs): sets job.outputs, an array of columns, of each job. jobs: {columns =, rows =} with rows of equal
--- shapes; one job if the signature does not join.
function Runner:run(jobs)
  if not self.signature.joins or self.batch == 1 then
    for _, job in ipairs(jobs) do job.outputs = compute(self, job.columns) end
    return
  end
  local columns, n = {}, 0
  for i = 1, #self.signature.inputs do
    local list = {}
    for k, job in ipairs(jobs) do list[k] = job.columns[i] end
    columns[i] = joined(list)
  end
  for _, job in ipairs(jobs) do n = n + job.rows end
  local outputs, at = run_rows(self, columns, n), 0
  for _, job in ipairs(jobs) do
    job.outputs = {}
    for i, c in ipairs(outputs) do job.outputs[i] = part_of(c, at + 1, at + job.rows, job.rows) end
    at = at + job.rows
  end
end

return M
