--- What fit, evaluate and predict print: Keras 3's progress bar, one line an epoch, or the lines of Keras 2.
--
-- verbose 0: nothing; 1: a bar that is redrawn in place on a terminal, one line an epoch elsewhere; 2: one line an
-- epoch. style "keras2" with verbose 2 prints the lines of Keras 2. Reading the metrics waits for the device, so they
-- are read only when something is drawn, at most ten times a second.
-- Each drawing is one write, and rests in one row of the terminal: a narrow one gets a shorter bar and fewer values.
local core = require "mgpu.core"
local logs = require "mgpu.train.logs"

local Progress = {}
Progress.__index = Progress

local INTERVAL = 0.1 -- seconds between two drawings
local WIDTH, NARROW = 20, 5 -- columns of the bar: at most, and in a narrow terminal

local function write(text) (require "mgpu").output(text) end

-- ---- text ---------------------------------------------------------------------------------------

local function number(value)
  if type(value) == "table" then -- a metric with several thresholds
    local sum = 0
    for _, v in ipairs(value) do sum = sum + v end
    value = sum / #value
  elseif type(value) ~= "number" then -- of a callback
    return tostring(value)
  end
  if value ~= value then return "nan" end
  return (math.abs(value) > 1e-3 and "%.4f" or "%.4e"):format(value)
end

-- Keras 2's name of a value: accuracy is acc, the learning rate lr.
local function old_name(name)
  if name == "learning_rate" then return "lr" end
  if name:find "binary_accuracy$" or name:find "categorical_accuracy$" then return name end
  return (name:gsub("accuracy$", "acc"))
end

-- The values as an array of texts, in Keras's order: version 3 has the sorted names of the training set, then the
-- sorted names of the validation set, then names that callbacks added; version 2 has loss first.
local function value_texts(values, style)
  local train, validation, rest = {}, {}, {}
  for name, value, added in logs.each(values) do
    local list = added and rest or name:find "^val_" and validation or train
    local shown = style == "keras2" and old_name(name) or name
    list[#list + 1] = core.printable(("%s: %s"):format(shown, number(value)), true)
  end
  if style ~= "keras2" then
    table.sort(train)
    table.sort(validation)
  end
  for _, list in ipairs { validation, rest } do
    for _, text in ipairs(list) do train[#train + 1] = text end
  end
  return train
end

-- The texts after a dash each, as many as fit into `room` columns.
local function joined(texts, room)
  local text = ""
  for _, each in ipairs(texts) do
    if #text + #each + 3 > room then break end
    text = text .. " - " .. each
  end
  return text
end

local function remaining(seconds)
  if seconds > 3600 then
    return ("%d:%02d:%02d"):format(seconds / 3600, seconds / 60 % 60, seconds % 60)
  elseif seconds > 60 then
    return ("%d:%02d"):format(seconds / 60, seconds % 60)
  end
  return ("%ds"):format(seconds)
end

local function per_step(seconds)
  if seconds >= 1 or seconds == 0 then return ("%.0fs/step"):format(seconds) end
  if seconds >= 1e-3 then return ("%.0fms/step"):format(seconds * 1e3) end
  return ("%.0fus/step"):format(seconds * 1e6)
end

-- ---- drawing ------------------------------------------------------------------------------------

-- Seconds a step. The first step is left out where there are others: it contains the tracing.
local function step_time(self, done, now)
  if self.after_first and done > self.first then return (now - self.after_first) / (done - self.first) end
  return (now - self.started) / math.max(done, 1)
end

-- The bar behind the number of steps; the number alone where the number of all steps is not known.
local function counted(count, done, steps, width)
  if not steps then return count end
  local filled = math.floor(width * math.min(done / steps, 1))
  return ("\27[1m%s\27[0m "):format(count) .. (filled > 0 and "\27[32m" .. ("━"):rep(filled) .. "\27[0m" or "")
    .. "\27[37m" .. ("━"):rep(width - filled) .. "\27[0m"
end

-- Replaces the line on the terminal. While steps are done it shows the estimated time that is left, and fits into a
-- row; the last drawing shows the elapsed time and all values.
local function draw(self, done, values, finished)
  local now = core.clock()
  local each, steps = step_time(self, done, now), self.steps
  local count = steps and ("%%%dd/%%d"):format(#tostring(steps)):format(done, steps) or ("%7d/Unknown"):format(done)
  local time = steps and not finished and remaining(each * math.max(steps - done, 0))
    or ("%.0fs"):format(now - self.started)
  local room = finished and math.huge or (core.columns() or 80) - #count - #time - #per_step(each) - 4
  local texts = value_texts(values)
  local wanted = #joined(texts, math.huge)
  local width = steps and math.max(NARROW, math.min(WIDTH, room - wanted)) or 0
  write(("\r%s \27[1m%s\27[0m %s%s\27[K%s"):format(counted(count, done, steps, width), time, per_step(each),
    joined(texts, room - width), finished and "\n" or ""))
  self.drawn, self.open = core.clock(), not finished
end

-- The line of a whole epoch.
local function line(self, values, done)
  local elapsed, text = core.clock() - self.started, joined(value_texts(values, self.style), math.huge)
  if self.style == "keras2" then return (" - %.0fs%s\n"):format(elapsed, text) end
  local dash = self.verbose == 2 and " - " or " "
  return ("%d/%d%s%.0fs%s%s%s\n"):format(done, self.steps, dash, elapsed, dash,
    per_step(elapsed / math.max(done, 1)), text)
end

-- ---- called by fit and evaluate -----------------------------------------------------------------

--- header(rows, validation_rows): prints the first line of Keras 2, if that is the style.
function Progress:header(rows, validation_rows)
  if self.style ~= "keras2" then return end
  local validation = validation_rows and (", validate on %d samples"):format(validation_rows) or ""
  write(rows and ("Train on %d samples%s\n"):format(rows, validation) or "")
end

--- begin(steps, epoch, epochs): an epoch of `steps` steps (nil: unknown) starts. Keras 3 leaves the title out where
--- there is one epoch. epoch = nil: an evaluation, without a title.
function Progress:begin(steps, epoch, epochs)
  self.steps, self.started, self.drawn, self.after_first = steps, core.clock(), core.clock(), nil
  if self.verbose > 0 and epoch and (epochs > 1 or self.style == "keras2") then
    write(("Epoch %d/%d\n"):format(epoch, epochs))
  end
end

--- step(done, read): called after each step; read() returns the logs so far and waits for the device.
function Progress:step(done, read)
  if not self.bar then return end
  local now = core.clock()
  if not self.after_first then self.after_first, self.first = now, done end
  if now - self.drawn >= INTERVAL then draw(self, done, read()) end
end

--- finish(values, done): the epoch has ended, after `done` steps, with these logs.
function Progress:finish(values, done)
  if self.verbose == 0 then return end
  self.steps = self.steps or done
  if self.bar then draw(self, done, values, true) else write(line(self, values, done)) end
end

--- close(): ends the line that an error interrupted.
function Progress:close()
  if self.open then write "\n" end
  self.open = false
end

--- new(verbose, style)
function Progress.new(verbose, style)
  return setmetatable({ verbose = verbose, style = verbose == 2 and style or nil,
    bar = verbose == 1 and core.columns() ~= nil }, Progress)
end

return Progress
