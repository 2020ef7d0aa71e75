--- GlobalAveragePooling2D {data_format =, keepdims = false}: the mean of each channel.
return require "mgpu.nn.layers.global_pooling" ("GlobalAveragePooling2D", "mean", 2)
