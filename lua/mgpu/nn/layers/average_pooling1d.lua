--- AveragePooling1D {pool_size = 2, strides =, padding =, data_format =}: the mean of each window.
-- With padding "same" only the steps inside count, as in Keras.
return require "mgpu.nn.layers.pooling1d" ("AveragePooling1D", "avg_pool2d")
