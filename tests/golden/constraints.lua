-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0: the cases of this set. Their numbers are in
-- constraints.safetensors, by their path in this table. Written by make_golden.py. A recipe { salt,
-- scale = 1, offset = 0 } stands for numbers of hash.lua.
--
-- alone[i]: the constraint's value for array(shape, salt), in float64. trained[i]: a layer whose
-- weight k (from 0) starts as array(size, salt + 1 + k), with constraints by the names of its
-- weights; weights[k]: its values after `steps` steps of SGD (learning_rate) on the mean square of
-- its output for x = array(size, salt), or for the ids labels(size, salt, 6). Axes count as in
-- Keras, from 0.
return {
  shape = { 4, 5 },
  salt = 7,
  steps = 3,
  learning_rate = 0.5,
  alone = {
    { constraint = "MaxNorm", args = {} },
    { constraint = "MaxNorm", args = { max_value = 0.5, axis = 1 } },
    { constraint = "MaxNorm", args = { max_value = 0.7, axis = { 0, 1 } } },
    { constraint = "UnitNorm", args = {} },
    { constraint = "UnitNorm", args = { axis = 1 } },
    { constraint = "MinMaxNorm", args = {} },
    { constraint = "MinMaxNorm", args = { min_value = 0.8, max_value = 1.1, rate = 0.3, axis = 1 } },
    { constraint = "MinMaxNorm", args = { min_value = 2, max_value = 3 } },
    { constraint = "NonNeg", args = {} },
  },
  trained = {
    { layer = "Dense", shape = { 6, 5 }, args = { units = 4 },
      constraints = { kernel = { class_name = "MaxNorm", config = { max_value = 0.4 } },
      bias = { class_name = "NonNeg", config = {} } } },
    { layer = "Conv2D", shape = { 2, 5, 5, 3 }, args = { filters = 2, kernel_size = 2 },
      constraints = { kernel = { class_name = "UnitNorm", config = { axis = { 0, 1, 2 } } },
      bias = { class_name = "MaxNorm", config = { max_value = 0.1 } } } },
    { layer = "Embedding", shape = { 4, 3 }, args = { input_dim = 6, output_dim = 3 },
      constraints = { embeddings = { class_name = "MinMaxNorm", config = { max_value = 0.6, axis = 1 } } } },
    { layer = "SeparableConv2D", shape = { 2, 5, 5, 3 }, args = { filters = 2, kernel_size = 2 },
      constraints = { depthwise = { class_name = "NonNeg", config = {} },
      pointwise = { class_name = "MaxNorm", config = { max_value = 0.5, axis = 2 } },
      bias = { class_name = "NonNeg", config = {} } } },
    { layer = "BatchNormalization", shape = { 6, 5 }, args = {},
      constraints = { gamma = { class_name = "NonNeg", config = {} },
      beta = { class_name = "UnitNorm", config = {} } } },
    { layer = "PReLU", shape = { 6, 5 }, args = {},
      constraints = { alpha = { class_name = "NonNeg", config = {} } } },
  },
}
