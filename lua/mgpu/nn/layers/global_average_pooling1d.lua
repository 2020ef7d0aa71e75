--- GlobalAveragePooling1D {data_format =, keepdims = false}: the mean of each channel.
return require "mgpu.nn.layers.global_pooling" ("GlobalAveragePooling1D", "mean", 1)
