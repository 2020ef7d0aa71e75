--- What the examples that train the CIFAR-10 network on several processes share.
local mgpu = require "mgpu"

return function(command_line)
  local M = {}

  --- add(parser, file, monitor): the options, where the best weights by `monitor` go into `file` unless it is named.
  function M.add(parser, file, monitor)
    M.file, M.monitor = file, monitor
    command_line.add_epochs(parser, 200)
    parser:option("--checkpt", ("Load the weights from FILE at the start if it exists, and save the best ones in it, "
      .. "by %s. Without FILE: %s."):format(monitor, file)):args "?":argname "FILE"
    parser:flag("--aug", "Augment the training images.")
    parser:flag("--logdevp", "Say what runs on the devices of this process before training.")
    command_line.add_data(parser, { "cifar10", "shapes" })
    parser:option("--datadir", "The folder with the files of CIFAR-10."):argname "DIR"
    parser:option("--network", "No effect: hosts are found as the launcher names them; MGPU_INTERFACE names a "
      .. "network card."):argname "DOMAIN"
    command_line.add_limit(parser)
  end

  --- load(options) -> train, test: {x =, y =, classes =}, uint8 images and one-hot labels.
  -- Every process holds all rows, and computes those of its part of each batch.
  function M.load(options)
    local sets = { command_line.load(options) }
    for i, set in ipairs(sets) do
      local x, y = command_line.first_rows(set, options.limit)
      sets[i] = { x = x, y = mgpu.to_categorical(y, set.classes), classes = set.classes }
    end
    print("x_train shape: " .. command_line.shape_text(sets[1].x))
    print(sets[1].x:shape()[1] .. " train samples")
    print(sets[2].x:shape()[1] .. " test samples")
    return unpack(sets)
  end

  --- model(options, train) -> the network, compiled for options.device and options.lr, with the weights of the
  --- checkpoint if there is one; and callbacks, of which rank 0 saves the best weights.
  function M.model(options, train)
    local model, callbacks = mgpu.models.cifar10_cnn { classes = train.classes }, {}
    local path = options.checkpt and (options.checkpt[1] or M.file)
    if path and command_line.exists(path) then
      model:load_weights(path)
      print("Loaded the weights in " .. path)
    end
    if path then
      callbacks[1] = mgpu.callbacks.ModelCheckpoint { path, monitor = M.monitor, mode = "max", verbose = 1,
        save_best_only = true, save_weights_only = true }
    end
    model:compile { optimizer = mgpu.optimizers.RMSprop { learning_rate = options.lr, decay = 1e-6 },
      loss = "categorical_crossentropy", metrics = { "accuracy" }, devices = options.devices or { options.device },
      strategy = options.strategy }
    if options.logdevp then print(mgpu.explain(model, { batch_size = options.batch_size })) end
    return model, callbacks
  end

  --- fit_images(model, options, train, test, callbacks): trains on the images of `train`, divided by 255; with --aug
  --- shifted and flipped.
  function M.fit_images(model, options, train, test, callbacks)
    local x = train.x:to "float32" / 255
    local fit_options = { epochs = options.epochs, callbacks = callbacks,
      validation_data = { test.x:to "float32" / 255, test.y } }
    if options.aug then
      print "Using real-time data augmentation."
      local generator = mgpu.ImageDataGenerator { width_shift_range = 0.1, height_shift_range = 0.1,
        horizontal_flip = true }
      generator:fit(x)
      model:fit(generator:flow(x, train.y, { batch_size = options.batch_size }):prefetch(2), fit_options)
    else
      print "Not using data augmentation."
      fit_options.batch_size = options.batch_size
      model:fit(x, train.y, fit_options)
    end
  end

  return M
end
