--- resnet50 {classes = 1000, include_top = true, weights =, ...}: ResNet-50 of keras.applications,
--- 25,636,712 parameters.
--     mgpu.models.resnet50 { classes = 10, input_shape = { 64, 64, 3 } }     -- RETURNS an uncompiled Model
-- Options and preprocess_input ("caffe"): lua/mgpu/zoo/classifier.lua.
return require("mgpu.zoo.resnet").bottleneck("resnet50", { 3, 4, 6, 3 })
