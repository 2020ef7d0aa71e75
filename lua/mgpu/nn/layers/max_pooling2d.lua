--- MaxPooling2D {pool_size = 2, strides =, padding =, data_format =}: the largest of each window.
return require "mgpu.nn.layers.pooling2d" ("MaxPooling2D", "max_pool2d")
