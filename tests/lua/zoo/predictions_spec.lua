-- decode_predictions of the classifiers, with a class index of the form of Keras's file.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local decode = mgpu.models.resnet50.decode_predictions

-- A folder with the file, whose class i is {"n0<i>", "name <i>"}; change(entries) may change it.
local function folder_with(change)
  local folder, entries = check.path "imagenet_files", {}
  for id = 0, 999 do entries[tostring(id)] = { ("n0%d"):format(id), "name " .. id } end
  if change then change(entries) end
  core.make_folder(folder)
  check.write(folder .. "/imagenet_class_index.json", core.json_encode(entries))
  return folder
end

test("the highest scores come first, with their classes", function()
  local x = mgpu.one_hot(mgpu.tensor({ 7, 999 }, { dtype = "int32" }), 1000) * 0.5
    + mgpu.one_hot(mgpu.tensor({ 0, 3 }, { dtype = "int32" }), 1000) * 0.25
  local folder = folder_with()
  check.equal(decode(x, { top = 2, data_dir = folder }), {
    { { "n07", "name 7", 0.5 }, { "n00", "name 0", 0.25 } },
    { { "n0999", "name 999", 0.5 }, { "n03", "name 3", 0.25 } },
  })
  check.equal(#decode(x, { data_dir = folder })[1], 5)
  check.equal(mgpu.models.vgg16.decode_predictions(x, { top = 1, data_dir = folder })[2][1][2], "name 999")
end)

test("other predictions, and files that are missing or damaged, are errors", function()
  local x, folder = mgpu.zeros { 1, 1000 }, folder_with()
  local function refused(message, code, ...)
    local arguments = { ... }
    check.raises(function() decode(unpack(arguments)) end, "decode_predictions: " .. message, code)
  end
  refused("expected a tensor {n, 1000}, got a table", "usage", { 1 })
  refused("expected predictions of shape {n, 1000}, got {1, 10}", "usage", mgpu.zeros { 1, 10 })
  refused('option "top" must be at most 1000, got 2000', "usage", x, { top = 2000 })
  refused("row 1 has NaN", "data", x / 0, { data_dir = folder })
  refused(".* has no imagenet_class_index.json", "io", x, { data_dir = check.path "none" })
  folder_with(function(entries) entries["500"] = nil end)
  refused("imagenet_class_index.json has no name for class 500", "data", x, { data_dir = folder })
  check.write(folder .. "/imagenet_class_index.json", "{")
  refused(".*imagenet_class_index.json: ", "data", x, { data_dir = folder })
end)
