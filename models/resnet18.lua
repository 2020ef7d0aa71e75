--- resnet18 {classes = 1000, include_top = true, weights =, ...}: ResNet-18 of torchvision,
--- 11,689,512 trainable parameters.
--     mgpu.models.resnet18 { classes = 10, input_shape = { 64, 64, 3 } }     -- RETURNS an uncompiled Model
-- Options and preprocess_input ("torch"): lua/mgpu/zoo/classifier.lua.
return require("mgpu.zoo.resnet").basic("resnet18", { 2, 2, 2, 2 })
