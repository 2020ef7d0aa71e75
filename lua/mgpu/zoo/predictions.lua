--- What the 1000 outputs of a classifier of ImageNet mean.
local core = require "mgpu.core"
local files = require "mgpu.data.datasets.files"
local options = require "mgpu.options"

local M = {}

local CLASSES = 1000
local SET = { name = "decode_predictions", folders = { "imagenet" } }
local FILE = { names = { "imagenet_class_index.json" }, kept = "imagenet_class_index.json",
  url = "https://storage.googleapis.com/download.tensorflow.org/data/imagenet_class_index.json",
  md5 = "c2c37ea517e94d9795004a39431a14cb" } -- Keras's checksum

local OPTIONS = options.declare { positional = 1, { "top", "integer", default = 5, min = 1, max = CLASSES },
  { "data_dir", "string" } }

-- {["0"] = {"n01440764", "tench"}, ...}, checked.
local function class_index(data_dir)
  local index = files.read_json(SET, FILE, data_dir)
  for id = 0, CLASSES - 1 do
    local entry = type(index) == "table" and index[tostring(id)]
    if type(entry) ~= "table" or type(entry[1]) ~= "string" or type(entry[2]) ~= "string" then
      core.fail("data", ("decode_predictions: %s has no name for class %d"):format(FILE.kept, id))
    end
  end
  return index
end

-- The classes of the `top` highest scores, the highest first.
local function best(scores, index, top)
  local order, list = {}, {}
  for id = 1, #scores do order[id] = id end
  table.sort(order, function(a, b)
    if scores[a] ~= scores[b] then return scores[a] > scores[b] end
    return a < b
  end)
  for i = 1, top do
    local name, description = unpack(index[tostring(order[i] - 1)])
    list[i] = { name, description, scores[order[i]] }
  end
  return list
end

--- decode_predictions(predictions, {top = 5, data_dir =}) -> for each row an array of {class, description, score}, as
--- {"n02123045", "tabby", 0.71}, the highest score first.
-- predictions: a tensor {n, 1000}, what model:predict gives. The names come from Keras's imagenet_class_index.json,
-- which is looked for, downloaded and kept as files of data sets are (lua/mgpu/data/datasets/files.lua), in `imagenet`.
-- Errors: another shape; NaN; the file is missing or damaged.
-- Source: keras.applications.imagenet_utils.
function M.decode_predictions(predictions, given)
  local chosen = options.check("decode_predictions", OPTIONS, given == nil and {} or given)
  if not core.is_tensor(predictions) then
    core.fail("usage", "decode_predictions: expected a tensor {n, 1000}, got a " .. type(predictions))
  end
  local shape = predictions:shape()
  if #shape ~= 2 or shape[2] ~= CLASSES then
    core.fail("usage", ("decode_predictions: expected predictions of shape {n, 1000}, got {%s}"):format(
      table.concat(shape, ", ")))
  end
  local index, decoded = class_index(chosen.data_dir), {}
  for i, scores in ipairs(predictions:totable()) do
    for _, score in ipairs(scores) do
      if score ~= score then core.fail("data", ("decode_predictions: row %d has NaN"):format(i)) end
    end
    decoded[i] = best(scores, index, chosen.top)
  end
  return decoded
end

return M
