--- resnet152 {classes = 1000, include_top = true, weights =, ...}: ResNet-152 of keras.applications,
--- 60,419,944 parameters.
--     mgpu.models.resnet152 { classes = 10, input_shape = { 64, 64, 3 } }     -- RETURNS an uncompiled Model
-- Options and preprocess_input ("caffe"): lua/mgpu/zoo/classifier.lua.
return require("mgpu.zoo.resnet").bottleneck("resnet152", { 3, 8, 36, 3 })
