-- What is drawn on a terminal: the bytes of Keras 3.15's progress bar, which was watched through a pseudo-terminal.
-- tests/lua/train/fit_spec.lua checks what is printed elsewhere.

local check = require "check"
local core = require "mgpu.core"
local logs = require "mgpu.train.logs"
local mgpu = require "mgpu"
local Progress = require "mgpu.train.progress"

local test = check.test

local BOLD, GREEN, GREY, OFF, CLEAR = "\27[1m", "\27[32m", "\27[37m", "\27[0m", "\27[K"

-- The bytes that fn(tick, progress) writes on a terminal with so many columns; tick(seconds) advances the clock.
local function drawn(columns, fn)
  local now, written = 1000, {}
  local clock, width, output = core.clock, core.columns, mgpu.output
  core.clock, core.columns = function() return now end, function() return columns end
  mgpu.output = function(text) written[#written + 1] = text end
  local ok, message = pcall(fn, function(seconds) now = now + seconds end, Progress.new(1))
  core.clock, core.columns, mgpu.output = clock, width, output
  if not ok then error(message, 0) end
  return table.concat(written), written
end

local function values(list)
  local result = logs.new()
  for i = 1, #list, 2 do result[list[i]] = list[i + 1] end
  return result
end

local function bar(filled, width)
  return (filled > 0 and GREEN .. ("━"):rep(filled) .. OFF or "") .. GREY .. ("━"):rep(width - filled) .. OFF
end

test("the bar shows steps, time left, time of a step and the metrics, then the elapsed time", function()
  check.equal(drawn(100, function(tick, progress)
    progress:begin(12, 1, 2)
    for step = 1, 12 do
      tick(0.12)
      if step == 3 then tick(0.4) end
      progress:step(step, function() return values { "loss", 0.1286, "mae", step == 1 and 0 or 0.0003584 } end)
      if step == 3 then return end
    end
  end), ("Epoch 1/2\n\r%s 1/12%s %s %s1s%s 120ms/step - loss: 0.1286 - mae: 0.0000e+00%s"):format(BOLD, OFF, bar(1, 20),
    BOLD, OFF, CLEAR) .. ("\r%s 2/12%s %s %s1s%s 120ms/step - loss: 0.1286 - mae: 3.5840e-04%s"):format(BOLD, OFF,
      bar(3, 20), BOLD, OFF, CLEAR) .. ("\r%s 3/12%s %s %s2s%s 320ms/step - loss: 0.1286 - mae: 3.5840e-04%s"):format(
        BOLD, OFF, bar(5, 20), BOLD, OFF, CLEAR))
  check.equal(drawn(20, function(tick, progress) -- the last line is whole, however narrow the terminal
    progress:begin(4)
    tick(2.6)
    progress:finish(values { "loss", 1, "b", 2, "val_loss", 3, "a", 0 / 0, "val_b", -1 }, 4)
  end), ("\r%s4/4%s %s %s3s%s 650ms/step - a: nan - b: 2.0000 - loss: 1.0000 - val_b: -1.0000 - val_loss: 3.0000%s\n")
    :format(BOLD, OFF, bar(20, 20), BOLD, OFF, CLEAR))
end)

test("style keras2 prints the lines of Keras 2", function()
  check.equal(drawn(80, function(tick)
    local progress = Progress.new(2, "keras2")
    progress:header(60000, 10000)
    progress:begin(469, 1, 12)
    tick(49.3)
    progress:step(469, logs.new)
    progress:finish(values { "loss", 0.31442, "accuracy", 0.92808, "val_loss", 1.58563, "val_accuracy", 0.9184 }, 469)
    progress:begin(469, 2, 12)
    tick(46.8)
    local late = values { "loss", 0.0782, "binary_accuracy", 0.9786 }
    logs.seal(late)
    late.learning_rate = 0.01
    progress:finish(late, 469)
  end), "Train on 60000 samples, validate on 10000 samples\nEpoch 1/12\n"
    .. " - 49s - loss: 0.3144 - acc: 0.9281 - val_loss: 1.5856 - val_acc: 0.9184\nEpoch 2/12\n"
    .. " - 47s - loss: 0.0782 - binary_accuracy: 0.9786 - lr: 0.0100\n")
end)

test("an unknown number of steps is shown as Keras shows it", function()
  check.equal(drawn(80, function(tick, progress)
    progress:begin(nil)
    tick(1.7)
    progress:step(7, function() return values { "loss", 2 } end)
    progress:finish(values { "loss", 2 }, 8)
  end), ("\r      7/Unknown %s2s%s 243ms/step - loss: 2.0000%s"):format(BOLD, OFF, CLEAR)
    .. ("\r%s8/8%s %s %s2s%s 0s/step - loss: 2.0000%s\n"):format(BOLD, OFF, bar(20, 20), BOLD, OFF, CLEAR))
end)

test("the time left has minutes and hours, the time of a step micro- and milliseconds", function()
  for _, row in ipairs { { 1, 99, "99s 1s/step", "1:39" }, { 100, 99, nil, "2:45:00" }, { 0.5, 2, nil, "1s" } } do
    local text = drawn(80, function(tick, progress)
      progress:begin(row[2] + 1)
      tick(row[1])
      progress:step(1, logs.new)
    end)
    check.matches(text, BOLD:gsub("%[", "%%[") .. row[4] .. "\27")
  end
  for seconds, text in pairs { [2.4] = "2s/step", [0.0123] = "12ms/step", [0.00015] = "150us/step" } do
    check.matches(drawn(80, function(tick, progress)
      progress:begin(1)
      tick(seconds)
      progress:finish(logs.new(), 1)
    end), text)
  end
end)

test("a drawing fits into a row: a narrow terminal gets a shorter bar and whole values", function()
  for columns, expected in pairs {
    [68] = bar(10, 20) .. " " .. BOLD .. "0s" .. OFF .. " 1s/step - loss: 1.5000 - mae: 2.5000" .. CLEAR,
    [54] = bar(3, 6) .. " " .. BOLD .. "0s" .. OFF .. " 1s/step - loss: 1.5000 - mae: 2.5000" .. CLEAR,
    [40] = bar(2, 5) .. " " .. BOLD .. "0s" .. OFF .. " 1s/step - loss: 1.5000" .. CLEAR,
    [10] = bar(2, 5) .. " " .. BOLD .. "0s" .. OFF .. " 1s/step" .. CLEAR,
  } do
    local text = drawn(columns, function(tick, progress)
      progress:begin(2)
      tick(0.9)
      progress:step(1, function() return values { "loss", 1.5, "mae", 2.5 } end)
    end)
    expected = expected:gsub("1s/step", "900ms/step")
    check.equal(text, "\r" .. BOLD .. "1/2" .. OFF .. " " .. expected)
    local shown = text:gsub("\27%[%d*[mK]", ""):gsub("━", "="):gsub("\r", "")
    check.truthy(#shown < columns or columns == 10, shown)
  end
end)

test("it draws, and reads the metrics, at most ten times a second, each time in one write", function()
  local reads = 0
  local _, writes = drawn(80, function(tick, progress)
    progress:begin(1000)
    for step = 1, 1000 do
      tick(0.001)
      progress:step(step, function()
        reads = reads + 1
        return values { "loss", 1 }
      end)
    end
  end)
  check.equal({ reads <= 10 and reads >= 9, #writes }, { true, reads })
end)

test("an error ends the line that is open", function()
  check.matches(drawn(80, function(tick, progress)
    progress:begin(3)
    tick(1)
    progress:step(1, logs.new)
    progress:close()
    progress:close()
  end), "\27%[K\n$")
end)

test("a metric with several values is shown by its mean, text as it is", function()
  check.matches(drawn(80, function(_, progress)
    progress:begin(1)
    progress:finish(values { "precision", { 0.25, 0.75 }, "note", "warm" }, 1)
  end), " - note: warm - precision: 0.5000" .. CLEAR)
end)

test("on a terminal fit draws a bar over the whole line, and only there", function()
  if select(2, check.run "command -v script stty") ~= 0 then check.skip "needs script and stty" end
  local path = check.path "fit.lua"
  check.write(path, [[
local mgpu = require "mgpu"
local model = mgpu.Sequential { mgpu.layers.Input { 1 }, mgpu.layers.Dense { 1 } }
model:compile { optimizer = "sgd", loss = "mse" }
model:fit(mgpu.ones { 8, 1 }, mgpu.ones { 8, 1 }, { epochs = 2, batch_size = 2, verbose = "auto",
  callbacks = { on_batch_end = function() require "mgpu.core".sleep(0.11) end } })
]])
  local text = check.run(("script -qec 'stty cols 50; %s %s' /dev/null </dev/null"):format(check.program, path))
  check.matches(text, "^Epoch 1/2\r?\n\r\27%[1m1/4\27%[0m .*\r\27%[1m4/4\27%[0m .*\n")
  check.falsy(check.run(check.program .. " " .. path):find "[\27\r]")
end)

test("verbose is 0, 1, 2 or auto", function()
  local model = require "fixtures".linear()
  local x, y = require "fixtures".line(4)
  for _, name in ipairs { "fit", "evaluate", "predict" } do
    local options = { verbose = "loud" }
    check.raises(function() model[name](model, x, name == "predict" and options or y, options) end,
      "progress_spec.lua:%d+: " .. name .. ': option "verbose" must be 0, 1, 2 or "auto", got "loud"', "usage")
    options.verbose = 3
    check.raises(function() model[name](model, x, name == "predict" and options or y, options) end, "at most 2")
  end
end)
