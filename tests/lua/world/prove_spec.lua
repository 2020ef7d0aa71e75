-- mgpulua --prove N: the first steps of a script on 1 and on N processes.

local check = require "check"
local test = check.test

local BEGIN = [[
  local mgpu = require "mgpu"
  mgpu.seed(3)
  local L, x, y = mgpu.layers, mgpu.rand { 60, 6 }, mgpu.rand { 60, 1 }
]]

local function prove(arguments)
  return check.run(("%s %s </dev/null"):format(check.program, arguments))
end

local function script(name, text)
  local path = check.path(name)
  check.write(path, BEGIN .. text)
  return path
end

local transports = require "mgpu.core".transports()
if #transports == 0 then
  test("--prove needs a transport", function() check.skip "no transport was built (libucx-dev)" end)
  return
end

test("the weights of a model are the same to rounding, in each row of the table", function()
  local path = script("same.lua", [[
    local model = mgpu.Sequential { mgpu.Input { 6 }, L.Dense { 8, activation = "relu" }, L.BatchNormalization {},
      L.Dropout { 0.3 }, L.Dense { 1 } }
    model:compile { optimizer = arg[1], loss = "mse" }
    model:fit(x, y, { batch_size = 16, verbose = 0 })
    print "not reached"]])
  local text, status = prove("--prove 3 " .. path .. " adam")
  check.equal(status, 0, text)
  check.matches(text, "after 5 steps, 3 processes against 1 +difference +rounding\n")
  check.matches(text, "dense/kernel +[%d.e+-]+ +[%d.e+-]+\n")
  check.matches(text, "batch_normalization/moving_variance +[%d.e+-]+ +[%d.e+-]+\n")
  check.matches(text, "the weights are the same, to rounding")
  check.equal(text:find "not reached", nil)
end)

test("statistics of each process's own rows are found out, and the status is 1", function()
  local path = script("other.lua", [[
    local model = mgpu.Sequential { mgpu.Input { 6 }, L.Dense { 8 }, L.BatchNormalization {}, L.Dense { 1 } }
    model:compile { optimizer = "adam", loss = "mse", bn = "local" }
    model:fit(x, y, { batch_size = 16, verbose = 0 })]])
  local text, status = prove("--prove 2 " .. path)
  check.equal(status, 1)
  check.matches(text, "dense/kernel +[%d.e+-]+ +[%d.e+-]+ +<%-%-\n")
  check.matches(text, "weights differ by more than rounding")
end)

test("a fit of fewer steps is compared at its end", function()
  local path = script("short.lua", [[
    local model = mgpu.Sequential { mgpu.Input { 6 }, L.Dense { 1 } }
    model:compile { optimizer = "sgd", loss = "mse" }
    model:fit(x, y, { batch_size = 30, verbose = 0 })]])
  local text, status = prove("--prove 2 " .. path)
  check.equal(status, 0, text)
  check.matches(text, "dense/bias")
end)

test("what cannot be compared is an error", function()
  local function refused(message, arguments)
    local text, status = prove(arguments)
    check.matches(text, message)
    check.equal(status ~= 0, true)
  end
  refused("%-%-prove 1: give a whole number of processes from 2 to 64", "--prove 1 " .. script("a.lua", ""))
  refused("%-%-prove N: the name of a script must follow", "--prove 2")
  refused("the script made no step of model:fit in one process: there is nothing to compare",
    "--prove 2 " .. script("none.lua", ""))
  refused("the script failed in one process %(see above%)", "--prove 2 " .. script("fails.lua", "error 'no'"))
end)
