--- resnet101 {classes = 1000, include_top = true, weights =, ...}: ResNet-101 of keras.applications,
--- 44,707,176 parameters.
--     mgpu.models.resnet101 { classes = 10, input_shape = { 64, 64, 3 } }     -- RETURNS an uncompiled Model
-- Options and preprocess_input ("caffe"): lua/mgpu/zoo/classifier.lua.
-- Example:
--     local base = mgpu.models.resnet101 { include_top = false, input_shape = { 32, 32, 3 } }
--     print((base:count_params()))  --> 42658176
return require("mgpu.zoo.resnet").bottleneck("resnet101", { 3, 4, 23, 3 })
