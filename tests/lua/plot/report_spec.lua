-- history:report: the page about a run.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local xml = require "xml"

local test = check.test
local L = mgpu.layers

-- A fit of a small model. RETURNS the history.
local function trained(epochs, given)
  mgpu.seed(1)
  local model = mgpu.Sequential { name = "a <model>", L.Input { 4 }, L.Dense { 3, name = "hidden" },
    L.Dense { 2, activation = "softmax", name = "out" } }
  model:compile { optimizer = mgpu.optimizers.SGD { 0.125, momentum = 0.5 }, loss = "sparse_categorical_crossentropy",
    metrics = "accuracy", devices = given and given.devices }
  local y = mgpu.tensor({ 0, 1, 0, 1, 0, 1, 0, 1, 0, 1 }, { dtype = "int32" })
  return model:fit(mgpu.rand { 10, 4 }, y, { epochs = epochs, batch_size = 4, verbose = 0, validation_split = 0.2,
    validation_freq = 2 })
end

local function reported(history, given)
  local path = check.path "report.html"
  history:report(path, given)
  local page = check.read(path)
  return xml((page:gsub("^<!DOCTYPE html>\n", ""))), page
end

-- The cells of all rows of all tables, each row as one text.
local function rows_of(root)
  local list = {}
  for i, row in ipairs(root:all "tr") do
    local cells = {}
    for k, cell in ipairs(row) do cells[k] = cell.text end
    list[i] = table.concat(cells, " | ")
  end
  return list
end

local function has_row(rows, pattern)
  for _, row in ipairs(rows) do
    if row:find(pattern) then return true end
  end
  check.fail(("no row %q among:\n%s"):format(pattern, table.concat(rows, "\n")))
end

test("the page has curves, numbers, model, settings, times, devices and versions", function()
  local history = trained(4)
  local root = reported(history)
  check.equal(root:all "h1"[1].text, "Training of a <model>")
  local rows, h = rows_of(root), history.history
  has_row(rows, ("^loss | %.5g | "):format(h.loss[4]):gsub("[|.%-]", "%%%0"))
  has_row(rows, "^epoch | loss | accuracy | val_loss | val_accuracy | seconds$")
  has_row(rows, "^3 | [%d.]+ | [%d.]+ |  |  | [%d.e%-]+$") -- without validation
  has_row(rows, "^4 | [%d.]+ | [%d.]+ | [%d.]+ | [%d.]+ | [%d.e%-]+$")
  has_row(rows, "^median epoch | ")
  has_row(rows, "^hidden | Dense | %(None, 3%) | 15 | 15$")
  has_row(rows, "^all layers |  |  | 23 | 23$")
  has_row(rows, "^optimizer | SGD$")
  has_row(rows, "^optimizer's options | .*learning_rate = 0.125.*momentum = 0.5")
  has_row(rows, "^loss | SparseCategoricalCrossentropy$")
  has_row(rows, "^batch_size | 4$")
  has_row(rows, "^validation_freq | 2$")
  has_row(rows, "^training samples | 8$")
  has_row(rows, "^mgpulua | " .. core.version:gsub("%p", "%%%0") .. "$")
  has_row(rows, "^" .. core.default_device():gsub("%p", "%%%0") .. " | .")
  check.equal(#root:all "svg", 3) -- curves, times, the model
end)

test("the page loads nothing and has no script", function()
  local root, page = reported(trained(1), { title = "100% <b>" })
  check.equal(root:all "h1"[1].text, "100% <b>")
  for _, name in ipairs { "script", "link", "img", "iframe" } do check.equal(#root:all(name), 0) end
  check.falsy(page:find "url%(" or page:find "@import" or page:find "src=" or page:find "href=")
  check.matches(page, "prefers%-color%-scheme:dark")
end)

test("the best epoch is the lowest loss and the highest accuracy", function()
  local history = trained(6)
  history.history.loss = { 3, 1, 0 / 0, 2, -math.huge, 5 }
  history.history.accuracy = { 0.1, 0.7, 0.6, math.huge, 0.2, 0.3 }
  local rows = rows_of((reported(history)))
  has_row(rows, "^loss | 5 | 1 | 2$")
  has_row(rows, "^accuracy | 0.3 | 0.7 | 2$")
end)

test("a long run shows every k-th epoch and the last; several devices are listed", function()
  local history = trained(2, { devices = { "ref:0", "ref:1" } })
  has_row(rows_of((reported(history))), "^devices | ref:0, ref:1$")
  for i = 3, 2001 do
    history.epoch[i], history.seconds[i] = i, 0.5
    for name, list in pairs { loss = history.history.loss } do
      list[i], history.epochs_of[name][i] = i, i
    end
  end
  local root, page = reported(history)
  has_row(rows_of(root), "^2001 | 2001 | ")
  check.equal(#root:all "summary", 2)
  check.matches(page, "every 5th epoch")
  check.truthy(#page < 300000)
end)

test("the settings are as in the fit, though the model was compiled again", function()
  local history = trained(1)
  history.model:compile { optimizer = "adam", loss = "sparse_categorical_crossentropy" }
  has_row(rows_of((reported(history))), "^optimizer | SGD$")
end)

test("wrong calls are refused", function()
  local history = trained(1)
  check.raises(function() history:report(check.path "x.htm") end, "must end in .html", "usage")
  check.raises(function() history:report() end, "must be text", "usage")
  check.raises(function() history:report(check.path "x.html", { titel = "x" }) end, 'did you mean "title"', "usage")
  check.raises(function() history:report(check.path "none/x.html") end, "none", "io")
  check.raises(function() trained(0):report(check.path "x.html") end, "has no epoch", "usage")
end)
