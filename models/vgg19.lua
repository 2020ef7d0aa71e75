--- vgg19 {classes = 1000, include_top = true, weights =, ...}: VGG-19 of keras.applications, 143,667,240 parameters.
--     mgpu.models.vgg19 { classes = 10, input_shape = { 64, 64, 3 } }     -- RETURNS an uncompiled Model
-- Options and preprocess_input ("caffe"): lua/mgpu/zoo/classifier.lua.
-- Example:
--     local base = mgpu.models.vgg19 { include_top = false, input_shape = { 32, 32, 3 } }
--     print(base:get_layer "block5_conv4", (base:count_params()))  --> Conv2D "block5_conv4" 20024384
return require("mgpu.zoo.vgg").define("vgg19", { 2, 2, 4, 4, 4 })
