--- What the examples that train on ImageNet's TFRecord files share: their options, and both parts as datasets.
local mgpu = require "mgpu"

local NETWORKS = { "resnet50", "resnet18", "resnet34", "resnet101", "resnet152", "mobilenet_v2" }

local SCHEMA = { { "image/encoded", "jpeg", channels = 3 }, { "image/class/label", "int64" } }

-- Pixels from -1 to 1, as the last step of both parts.
local CENTERED = { mean = 127.5, std = 127.5 }

local function with_centered(changes)
  for name, value in pairs(CENTERED) do changes[name] = value end
  return changes
end

return function(command_line)
  local M = {}

  --- add(parser): the options.
  function M.add(parser)
    command_line.add_epochs(parser, 10)
    command_line.add_count(parser, "--imgs_per_epoch", 0, "Images per epoch; 0 means all.", "0")
    parser:option("--datadir", "The folder with the files train-* and validation-*.", "imagenet"):argname "DIR"
    parser:flag("--distort_color", "Change brightness, saturation, hue and contrast of the training images.")
    parser:option("--network", "The network: " .. table.concat(NETWORKS, ", ") .. ".", NETWORKS[1]):choices(NETWORKS)
      :argname "NAME"
    command_line.add_count(parser, "--classes", 1, "The number of classes, without the background.", "1000")
    command_line.add_count(parser, "--image_size", 32, "Rows and columns of the images that the network sees.", "224")
  end

  local function records(options, part)
    local found, ds = pcall(mgpu.data.tfrecord, ("%s/%s-*"):format(options.datadir, part), SCHEMA)
    if not found then
      command_line.stop("%s: give their folder with --datadir, or write a small set with make_imagenet_records.lua",
        (ds:gsub("^%S+:%d+: ", "")))
    end
    return ds
  end

  --- load(options) -> train, test, steps: datasets of batches of options.batch_size images, the first one without an
  --- end; and the steps of an epoch.
  function M.load(options)
    local size, batch_size = options.image_size, options.batch_size
    local train = records(options, "train")
    local images = train:length()
    print("Num images: " .. images)
    local changes = with_centered { horizontal_flip = true,
      random_resized_crop = { size, size, area = { 0.1, 1 }, aspect = { 0.8, 1.25 } } }
    if options.distort_color then
      changes.brightness, changes.hue = 32, 0.2
      changes.saturation, changes.contrast = { 0.5, 1.5 }, { 0.5, 1.5 }
    end
    local per_epoch = options.imgs_per_epoch > 0 and options.imgs_per_epoch or images
    train = train:shuffle(10000):cycle():augment(changes):batch(batch_size):prefetch(4)
    -- The center of the image, 7/8 of its shorter side.
    local test = records(options, "validation")
      :augment(with_centered { resize = math.ceil(size * 8 / 7), center_crop = { size, size } })
      :batch(batch_size):prefetch(4)
    return train, test, math.max(math.floor(per_epoch / batch_size), 1)
  end

  --- model(options) -> the network. Labels count from 1 in ImageNet's files: class 0 is the background.
  function M.model(options)
    local size = options.image_size
    return mgpu.models[options.network] { input_shape = { size, size, 3 }, classes = options.classes + 1 }
  end

  --- run(model, options, train, test, steps): trains, evaluates, and prints the last lines.
  function M.run(model, options, train, test, steps)
    local clock = require("mgpu.core").clock -- seconds
    local start = clock()
    model:fit(train, { epochs = options.epochs, steps_per_epoch = steps,
      callbacks = mgpu.callbacks.SamplesPerSec { options.batch_size } })
    print(("[TRAINING] finished in %.3f s"):format(clock() - start))
    local loss, accuracy = unpack(model:evaluate(test, { verbose = 0 }))
    print(("\nTest loss, acc: %s, %s"):format(loss, accuracy))
  end

  return M
end
