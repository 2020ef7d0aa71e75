--- What fit and evaluate print: Keras 3's progress bar, one line an epoch, or the lines of Keras 2.
--
-- verbose 0: nothing; 1: a bar that is redrawn in place on a terminal, one line an epoch elsewhere; 2: one line an
-- epoch. style "keras2" with verbose 2 prints the lines of Keras 2. Reading the metrics waits for the device, so they
-- are read only when something is drawn, at most ten times a second.
local core = require "mgpu.core"
local logs = require "mgpu.train.logs"

local Progress = {}
Progress.__index = Progress

local INTERVAL = 0.1 -- seconds between two drawings
local WIDTH = 20

local function write(text) (require "mgpu").output(text) end

-- ---- text ---------------------------------------------------------------------------------------

local function number(value)
  return (math.abs(value) > 1e-3 or value == 0) and ("%.4f"):format(value)
    or ("%.4e"):format(value)
end

-- The values in Keras's order: version 3 sorts the names of the training set, then those of the validation set, then
-- come those that callbacks added; version 2 has loss first and calls accuracy acc.
local function values_text(values, style)
  local train, validation, rest = {}, {}, {}
  for name, value, added in logs.each(values) do
    local list = added and rest or name:find "^val_" and validation or train
    if style == "keras2" then name = name:gsub("accuracy$", "acc") end
    list[#list + 1] = ("%s: %s"):format(name, number(value))
  end
  if style ~= "keras2" then
    table.sort(train)
    table.sort(validation)
  end
  for _, list in ipairs { validation, rest } do
    for _, text in ipairs(list) do train[#train + 1] = text end
  end
  return #train > 0 and " - " .. table.concat(train, " - ") or ""
end

local function duration(seconds)
  if seconds >= 3600 then
    return ("%d:%02d:%02d"):format(seconds / 3600, seconds / 60 % 60, seconds % 60)
  elseif seconds >= 60 then
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

local function bar(done, steps)
  local filled = math.floor(WIDTH * done / steps)
  return ("\27[1m%d/%d\27[0m \27[32m%s\27[0m\27[37m%s\27[0m"):format(done, steps,
    ("━"):rep(filled), ("━"):rep(WIDTH - filled))
end

-- Replaces the line on the terminal. While training it shows the estimated time that is left.
function Progress:draw(done, values)
  local elapsed = core.clock() - self.started
  local each = elapsed / math.max(done, 1)
  local finished = done >= self.steps
  local time = finished and duration(elapsed) or duration(each * (self.steps - done))
  write(("\r\27[K%s \27[1m%s\27[0m %s%s"):format(bar(done, self.steps), time, per_step(each),
    values_text(values)))
  io.stdout:flush() -- the line has no newline yet
  self.drawn = core.clock()
  self.open = true
end

-- The line of a whole epoch.
function Progress:line(values)
  local elapsed = core.clock() - self.started
  if self.style == "keras2" then
    return (" - %.0fs%s\n"):format(elapsed, values_text(values, "keras2"))
  end
  local dash = self.verbose == 2 and " - " or " "
  return ("%d/%d%s%s%s%s%s\n"):format(self.steps, self.steps, dash, duration(elapsed), dash,
    per_step(elapsed / self.steps), values_text(values))
end

-- ---- called by fit and evaluate -----------------------------------------------------------------

--- header(rows, validation_rows): prints the first line of Keras 2, if that is the style.
function Progress:header(rows, validation_rows)
  if self.verbose ~= 2 or self.style ~= "keras2" then return end
  local validation = validation_rows and (", validate on %d samples"):format(validation_rows) or ""
  write(("Train on %d samples%s\n"):format(rows, validation))
end

--- begin(steps, title): an epoch of `steps` steps (nil: unknown) starts.
function Progress:begin(steps, title)
  self.steps, self.started, self.drawn = steps, core.clock(), core.clock()
  if self.verbose > 0 and title then write(title .. "\n") end
end

--- step(done, read): called after each step; read() returns the logs so far and waits for the device.
function Progress:step(done, read)
  if not self.bar or not self.steps or core.clock() - self.drawn < INTERVAL or done >= self.steps then return end
  self:draw(done, read())
end

--- finish(values, done): the epoch has ended, after `done` steps, with these logs.
function Progress:finish(values, done)
  if self.verbose == 0 then return end
  self.steps = self.steps or done
  if self.bar then
    self:draw(self.steps, values)
    write "\n"
  else
    write(self:line(values))
  end
  self.open = false
end

--- close(): ends the line that an error interrupted.
function Progress:close()
  if self.open then write "\n" end
  self.open = false
end

--- new(verbose, style)
function Progress.new(verbose, style)
  return setmetatable({ verbose = verbose, style = style,
    bar = verbose == 1 and core.isatty() }, Progress)
end

return Progress
