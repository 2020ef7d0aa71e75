-- Writes a tiny data set in the format of ImageNet's TFRecord files: drawn shapes as JPEG images of several sizes.
--
--     mgpulua examples/make_imagenet_records.lua --help
--     mgpulua examples/resnet50_tfrecord.lua --datadir imagenet --network resnet18 --classes 10 --image_size 64
--
-- What it teaches: write_tfrecord from a function that makes one row a call.

local mgpu = require "mgpu"
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local parser = command_line.parser("Writes a tiny data set in the format of ImageNet's TFRecord files, to try "
  .. "resnet50_tfrecord.lua with.")
parser:option("--datadir", "The folder for the files, which is made.", "imagenet"):argname "DIR"
command_line.add_count(parser, "--images", 1, "Images for training; a fifth as many are for validation.", "1000")
command_line.add_count(parser, "--shards", 1, "Files for training.", "4")
local options = parser:parse()
if options.shards > 512 then command_line.stop "--shards: at most 512" end

-- As in ImageNet's files, labels count from 1: 0 is the background.
local SCHEMA = { { "image/encoded", "jpeg" }, { "image/height", "int64" }, { "image/width", "int64" },
  { "image/class/label", "int64" }, { "image/class/text", "string" } }
local SIZES = { 64, 80, 96 }

-- A function that returns the next of n rows. ARGS which: 1 training, 2 validation.
local function rows(n, which)
  local sets = {}
  for i, size in ipairs(SIZES) do
    -- A set for validation has a fifth of the images that are asked for.
    local count = math.ceil(n / #SIZES) * (which == 2 and 5 or 1)
    sets[i] = ({ mgpu.datasets.shapes(count, { size = size }) })[which]
    sets[i].labels = sets[i].y:totable()
  end
  local i = 0
  return function()
    if i == n then return nil end
    local set, row = sets[i % #SIZES + 1], math.floor(i / #SIZES) + 1
    i = i + 1
    local image, class = set.x:slice { row }, set.labels[row]
    return { image, image:shape()[1], image:shape()[2], class + 1, set.class_names[class + 1] }
  end
end

require("mgpu.core").make_folder(options.datadir)
local function write(part, n, which, shards)
  mgpu.data.write_tfrecord(options.datadir .. "/" .. part, rows(n, which), SCHEMA, { shards = shards })
  print(("Wrote %d %s images to %s"):format(n, part, options.datadir))
end
write("train", options.images, 1, options.shards)
write("validation", math.ceil(options.images / 5), 2, 1)
