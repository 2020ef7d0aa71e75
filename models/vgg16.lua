--- vgg16 {classes = 1000, include_top = true, weights =, ...}: VGG-16 of keras.applications, 138,357,544 parameters.
--     mgpu.models.vgg16 { classes = 10, input_shape = { 64, 64, 3 } }     -- RETURNS an uncompiled Model
-- Options and preprocess_input ("caffe"): lua/mgpu/zoo/classifier.lua.
-- Example:
--     local base = mgpu.models.vgg16 { include_top = false, input_shape = { 32, 32, 3 } }
--     print(base:get_layer "block5_conv3", (base:count_params()))  --> Conv2D "block5_conv3" 14714688
return require("mgpu.zoo.vgg").define("vgg16", { 2, 2, 3, 3, 3 })
