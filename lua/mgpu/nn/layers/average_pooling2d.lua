--- AveragePooling2D {pool_size = 2, strides =, padding =, data_format =}: the mean of each window;
-- padding does not count.
return require "mgpu.nn.layers.pooling2d" ("AveragePooling2D", "avg_pool2d")
