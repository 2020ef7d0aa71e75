--- GlobalMaxPooling2D {data_format =, keepdims = false}: the largest of each channel.
return require "mgpu.nn.layers.global_pooling" ("GlobalMaxPooling2D", "max", 2)
