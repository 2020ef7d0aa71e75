-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0: the cases of this set. Their numbers are in
-- masking.safetensors, by their path in this table. Written by make_golden.py. A recipe { salt,
-- scale = 1, offset = 0 } stands for numbers of hash.lua.
--
-- cases[i]: a model of two inputs, ids {3, 4} and array({3, 4, 3}, salt + 20) whose row 2 is 0.5
-- from step 3 on (counted from 1), with an Embedding(5, 3, mask_zero) and the layer `name`: see
-- masking_cases.py. Its weight k (from 0) is array(size, salt + k), 2 more for moving statistics.
-- output: in inference, training: in training; loss: mse for y = array(shape, salt + 30); weighted:
-- with the weights 1, 2 and 0.5 of the rows.
return {
  ids = { { 1, 2, 0, 0 }, { 3, 0, 4, 0 }, { 2, 1, 3, 4 } },
  salt = 60,
  cases = {
    { name = "Dense", shape = { 3, 4, 2 } },
    { name = "GlobalAveragePooling1D", shape = { 3, 2 } },
    { name = "BatchNormalization", shape = { 3, 4, 2 } },
    { name = "Conv1D", shape = { 3, 4, 2 } },
    { name = "Add", shape = { 3, 4, 2 } },
    { name = "Multiply", shape = { 3, 4, 2 } },
    { name = "Concatenate", shape = { 3, 8, 2 } },
    { name = "Softmax", shape = { 3, 4, 2 } },
    { name = "SoftmaxFeatures", shape = { 3, 4, 2 } },
    { name = "SoftmaxBoth", shape = { 3, 4, 2 } },
  },
}
