-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0: the cases of this set. Their numbers are in
-- zoo.safetensors, by their path in this table. Written by make_golden.py. A recipe { salt, scale =
-- 1, offset = 0 } stands for numbers of hash.lua.
--
-- summaries[k]: the model `model` of mgpu.models with `options`: its name, params, trainable ones,
-- number of layers, and `hash`, h = (33 h + byte) mod 2^47 over the lines of all layers in Keras's
-- order: "name class shape" of its output and " weight shape" for each weight, "\n" at the end; an
-- automatic name is empty.
--
-- predictions[k]: `output` for array(50, 0.5, 0.5) of the shape {2, input}, computed in float64.
-- Weight w (from 0, in the order of the layers, the trainable ones of each first) is array(100 + w,
-- scale, offset), rounded to float32: kernels have the scale sqrt(6 / fan_in), where fan_in leaves
-- out the last axis (of a depthwise kernel both last axes), times 0.5 for the last kernel; gamma
-- 0.1, `gamma` (1); moving_variance 0.2, 1; all others 0.1, 0. part: which model of vae_deconv.
--
-- preprocessing[k]: preprocess_input in `mode` of array(50, 127.5, 127.5), of the shape {2, 2, 3,
-- 3} or, channels_first, {2, 3, 2, 3}.
return {
  summaries = {
    { model = "resnet50", options = {}, name = "resnet50", params = 25636712, trainable = 25583592, layers = 177,
      hash = 102231745070293 },
    { model = "resnet50", options = { include_top = false, pooling = "max", input_shape = { 64, 96, 3 } },
      name = "resnet50", params = 23587712, trainable = 23534592, layers = 176, hash = 100540500144781 },
    { model = "resnet101", options = { classes = 7 }, name = "resnet101", params = 42672519, trainable = 42567175,
      layers = 347, hash = 105046782652983 },
    { model = "resnet152", options = {}, name = "resnet152", params = 60419944, trainable = 60268520, layers = 517,
      hash = 26985556786317 },
    { model = "vgg16", options = { input_shape = { 64, 32, 1 }, classes = 3 }, name = "vgg16", params = 35705539,
      trainable = 35705539, layers = 23, hash = 43361421041714 },
    { model = "vgg19", options = { include_top = false }, name = "vgg19", params = 20024384, trainable = 20024384,
      layers = 22, hash = 125516070412377 },
    { model = "mobilenet_v2", options = {}, name = "mobilenetv2_1.00_224", params = 3538984, trainable = 3504872,
      layers = 156, hash = 22418291389062 },
    { model = "mobilenet_v2", options = { alpha = 0.35, input_shape = { 97, 64, 3 } }, name = "mobilenetv2_0.35_97",
      params = 1691208, trainable = 1677128, layers = 156, hash = 36599015543791 },
    { model = "mobilenet_v2", options = { alpha = 1.4, include_top = false, pooling = "avg" },
      name = "mobilenetv2_1.40_None", params = 4363712, trainable = 4315776, layers = 155, hash = 43225461268251 },
    { model = "densenet121", options = {}, name = "densenet121", params = 8062504, trainable = 7978856, layers = 429,
      hash = 46688546056242 },
    { model = "densenet121", options = { include_top = false, pooling = "avg" }, name = "densenet121",
      params = 7037504, trainable = 6953856, layers = 428, hash = 134532263689901 },
    { model = "efficientnet_b0", options = {}, name = "efficientnetb0", params = 5330571, trainable = 5288548,
      layers = 240, hash = 81248107781055 },
    { model = "efficientnet_b0", options = { include_top = false, input_shape = { 97, 64, 3 } },
      name = "efficientnetb0", params = 4049571, trainable = 4007548, layers = 237, hash = 28302024401119 },
    { model = "convnext", options = {}, name = "convnext_tiny", params = 28589128, trainable = 28589128, layers = 135,
      hash = 89698891579959 },
    { model = "convnext",
      options = { variant = "base", include_top = false, pooling = "avg", input_shape = { 64, 32, 3 } },
      name = "convnext_base", params = 87566464, trainable = 87566464, layers = 260, hash = 59239651512577 },
  },
  predictions = {
    { model = "resnet50", options = { input_shape = { 32, 32, 3 }, classes = 10 }, gamma = 0.6 },
    { model = "resnet18", options = { input_shape = { 32, 48, 3 }, classes = 10 }, gamma = 0.7 },
    { model = "vgg16", options = { include_top = false, pooling = "avg", input_shape = { 32, 32, 3 } } },
    { model = "mobilenet_v2", options = { alpha = 0.35, input_shape = { 37, 64, 3 }, classes = 10 }, gamma = 0.9 },
    { model = "densenet121", options = { input_shape = { 32, 32, 3 }, classes = 10 }, gamma = 0.9 },
    { model = "convnext", options = { depths = { 1, 2, 1, 1 }, projection_dims = { 8, 12, 16, 24 },
      input_shape = { 64, 32, 3 }, classes = 10 } },
    { model = "convnext", options = { depths = { 1, 1, 1, 1 }, projection_dims = { 4, 8, 8, 12 },
      input_shape = { 32, 64, 3 }, include_top = false, include_preprocessing = false } },
    { model = "unet", options = { input_shape = { 8, 16, 2 }, classes = 3, filters = 4, depth = 2,
      batch_normalization = true }, gamma = 1 },
    { model = "unet", options = { input_shape = { 16, 16, 1 }, classes = 1, filters = 2, depth = 3,
      batch_normalization = false } },
    { model = "cifar10_cnn", options = { input_shape = { 32, 32, 3 }, classes = 10 } },
    { model = "vae_deconv", options = { input_shape = { 12, 8, 2 }, latent_dim = 3, filters = 4, units = 8 },
      part = "encoder" },
    { model = "vae_deconv", options = { input_shape = { 12, 8, 2 }, latent_dim = 3, filters = 4, units = 8 },
      part = "decoder" },
  },
  preprocessing = {
    { mode = "caffe", data_format = "channels_last" },
    { mode = "caffe", data_format = "channels_first" },
    { mode = "tf", data_format = "channels_last" },
    { mode = "tf", data_format = "channels_first" },
    { mode = "torch", data_format = "channels_last" },
    { mode = "torch", data_format = "channels_first" },
  },
}
