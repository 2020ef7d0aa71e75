--- CSVLogger {filename, separator = ",", append = false}: writes the values of each epoch into a CSV file.
--
-- The first line has the names: epoch, then those in the logs, sorted. Each row is written and closed at once: after a
-- kill the file has all epochs that ended. append = true goes on below the rows of a file, with its columns, and drops
-- a row that was cut off. An epoch without a value has NA there. Numbers have as many digits as it takes to read the
-- same number back.
-- Errors, before the first step: a file that cannot be written. A row that cannot be written later is written with the
-- next one or at the end, and a line says so. Source: Keras's CSVLogger; here epochs count from 1.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     model:compile { loss = "mse", metrics = { "mae" } }
--     model:fit(mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }, { epochs = 2, verbose = 0,
--       callbacks = mgpu.callbacks.CSVLogger { "log.csv" } })
--     for line in io.lines "log.csv" do print(line) end
--     --> epoch,loss,mae
--     --> 1,...,...
--     --> 2,...,...
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"
local logs = require "mgpu.train.logs"

local CSVLogger = Callback:extend("CSVLogger", { positional = 1,
  { "filename", "string", required = true },
  { "separator", "string", default = "," },
  { "append", "boolean", default = false },
})

CSVLogger.adds = {}

--- Checks the file's name and the separator.
function CSVLogger:init()
  if self.filename == "" or self.filename:find "%z" then
    core.fail("usage", ('CSVLogger: option "filename" must name a file, got %q'):format(self.filename))
  end
  if #self.separator ~= 1 or self.separator:find '["\n\r]' then
    core.fail("usage", ('CSVLogger: option "separator" must be one character, and no quote or line end, got %q')
      :format(self.separator))
  end
end

-- ---- the file -----------------------------------------------------------------------------------

-- RETURNS the file's bytes, "" if there is none.
local function read(path)
  local file = io.open(path, "rb")
  local bytes = file and file:read "*a"
  if file then file:close() end
  return bytes or ""
end

-- Writes text after the first `size` bytes of the file. RETURNS the new size, or nil and the reason.
local function write(self, size, text)
  local ok, result = pcall(core.append_file, self.filename, size, text)
  if ok then return result end
  if core.error_code() ~= "io" then error(result, 0) end
  return nil, (result:gsub("^.-:%d+: ", ""))
end

-- ---- rows ---------------------------------------------------------------------------------------

-- The shortest text that reads back as the same number.
local function number(value)
  if value ~= value then return "nan" end
  for digits = 14, 17 do
    local text = ("%%.%dg"):format(digits):format(value)
    if tonumber(text) == value then return text end
  end
end

local function cell(self, value)
  if type(value) == "table" then
    local list = {}
    for i, v in ipairs(value) do list[i] = cell(self, v) end
    value = "[" .. table.concat(list, ", ") .. "]"
  elseif type(value) == "number" then
    return number(value)
  end
  value = tostring(value)
  local quoted = value:find '["\n\r]' or value:find(self.separator, 1, true)
  return quoted and '"' .. value:gsub('"', '""') .. '"' or value
end

local function row(self, values)
  local list = {}
  for i, value in ipairs(values) do list[i] = cell(self, value) end
  return table.concat(list, self.separator) .. "\n"
end

-- The names in the first line of a file to append to, without "epoch"; nil if it has no lines. Raises for another file.
local function columns_of_file(self)
  local head = self.append and read(self.filename):match "^([^\n]*)\n"
  if not head then return nil end
  local list, at = {}, 1
  head = head:gsub("\r$", "") .. self.separator
  while at <= #head do
    local last = head:find(self.separator, at, true)
    list[#list + 1], at = head:sub(at, last - 1), last + 1
  end
  if table.remove(list, 1) ~= "epoch" then
    core.fail("io", ("CSVLogger: %s: append = true, but its first line does not begin with epoch%s")
      :format(self.filename, self.separator))
  end
  return list
end

-- The columns: the columns of the file if it is appended to; else the names, sorted, in the logs of the first epoch and
-- of later epochs.
local function columns(self, values)
  local old = columns_of_file(self)
  if old then return old end
  local seen, list = {}, {}
  for name in logs.each(values) do seen[name] = true end
  for _, name in ipairs(self.params.metrics) do seen[name] = true end
  for name in pairs(seen) do list[#list + 1] = name end
  table.sort(list)
  return list
end

-- ---- the callback -------------------------------------------------------------------------------

--- Raises if the file cannot be written, or is not a CSV of epochs to append to.
function CSVLogger:check_fit()
  local size, message = write(self, #read(self.filename), "")
  if not size then core.fail("io", "CSVLogger: " .. message) end
  columns_of_file(self)
end

--- Finds where this run's rows begin, so that a checkpoint has that even before the first of them is written.
function CSVLogger:on_train_begin()
  self.columns, self.pending, self.clean = nil, "", false
  self.size = self.append and #(read(self.filename):match "^.*\n" or "") or 0
end

-- Appends the rows that wait. RETURNS nil, or the reason why they were not written.
local function write_pending(self)
  if not self.clean then self.size = math.min(self.size, #read(self.filename)) end -- somebody may have cut it
  local head = self.size == 0 and row(self, { "epoch", unpack(self.columns) }) or ""
  local size, message = write(self, self.size, head .. self.pending)
  if size then self.size, self.pending = size, "" end
  self.clean = size ~= nil
  return message
end

--- Writes the row of the epoch, after the rows that this run has written, or at first after those it is to keep.
function CSVLogger:on_epoch_end(epoch, values)
  self.columns = self.columns or columns(self, values)
  local list = { epoch }
  for i, name in ipairs(self.columns) do list[i + 1] = values[name] == nil and "NA" or values[name] end
  self.pending = self.pending .. row(self, list)
  local message = write_pending(self)
  if message then
    self.write("CSVLogger: epoch %d was not written, it is tried again with the next one: %s", epoch, message)
  end
end

--- Tries once more to write the rows that a failed write has left.
function CSVLogger:on_train_end()
  local message = self.pending ~= "" and write_pending(self)
  if message then self.write("CSVLogger: the last rows were not written: %s", message) end
end

--- Where the file ends, and its columns.
function CSVLogger:get_state() return { size = self.size, columns = self.columns, pending = self.pending } end

--- Continues from get_state's table: rows of epochs that will be done again are dropped.
function CSVLogger:set_state(state)
  self.size, self.columns, self.pending, self.clean = state.size, state.columns, state.pending, false
end

return CSVLogger
