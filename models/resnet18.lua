--- resnet18 {classes = 1000, include_top = true, weights =, ...}: ResNet-18 of torchvision,
--- 11,689,512 trainable parameters.
--     mgpu.models.resnet18 { classes = 10, input_shape = { 64, 64, 3 } }     -- RETURNS an uncompiled Model
-- Options and preprocess_input ("torch"): lua/mgpu/zoo/classifier.lua.
-- Example:
--     local model = mgpu.models.resnet18 { classes = 10, input_shape = { 32, 32, 3 } }
--     print(unpack(model:predict(mgpu.rand { 1, 32, 32, 3 }):shape()))  --> 1 10
return require("mgpu.zoo.resnet").basic("resnet18", { 2, 2, 2, 2 })
