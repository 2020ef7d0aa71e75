--- mgpu.layers: one line a class, loaded on first use.
return require "mgpu.index" ("layer", "mgpu.layers", {
  Activation = "activation",
  AveragePooling2D = "average_pooling2d",
  BatchNormalization = "batch_normalization",
  Conv2D = "conv2d",
  Dense = "dense",
  Dropout = "dropout",
  Flatten = "flatten",
  GlobalAveragePooling2D = "global_average_pooling2d",
  Input = "input",
  MaxPooling2D = "max_pooling2d",
  ReLU = "relu",
  Reshape = "reshape",
  Softmax = "softmax",
})
