--- GlobalMaxPooling1D {data_format =, keepdims = false}: the largest of each channel.
return require "mgpu.nn.layers.global_pooling" ("GlobalMaxPooling1D", "max", 1)
