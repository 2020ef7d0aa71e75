--- resnet152 {classes = 1000, include_top = true, weights =, ...}: ResNet-152 of keras.applications,
--- 60,419,944 parameters.
--     mgpu.models.resnet152 { classes = 10, input_shape = { 64, 64, 3 } }     -- RETURNS an uncompiled Model
-- Options and preprocess_input ("caffe"): lua/mgpu/zoo/classifier.lua.
-- Example:
--     local base = mgpu.models.resnet152 { include_top = false, input_shape = { 32, 32, 3 } }
--     print((base:count_params()))  --> 58370944
return require("mgpu.zoo.resnet").bottleneck("resnet152", { 3, 8, 36, 3 })
