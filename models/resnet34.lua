--- resnet34 {classes = 1000, include_top = true, weights =, ...}: ResNet-34 of torchvision,
--- 21,797,672 trainable parameters.
--     mgpu.models.resnet34 { classes = 10, input_shape = { 64, 64, 3 } }     -- RETURNS an uncompiled Model
-- Options and preprocess_input ("torch"): lua/mgpu/zoo/classifier.lua.
-- Example:
--     local model = mgpu.models.resnet34 { classes = 10, input_shape = { 32, 32, 3 } }
--     -- the trainable parameters
--     print(select(2, model:count_params()))  --> 21289802
return require("mgpu.zoo.resnet").basic("resnet34", { 3, 4, 6, 3 })
