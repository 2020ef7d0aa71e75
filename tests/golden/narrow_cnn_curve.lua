-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0: the cases of this set. Their numbers are in
-- narrow_cnn_curve.safetensors, by their path in this table. Written by make_golden.py. A recipe {
-- salt, scale = 1, offset = 0 } stands for numbers of hash.lua.
--
-- weights[k]: recipe of tensor k of get_weights(), or `default`, the value of all its elements
-- (moving statistics). Step s (from 0) trains on the images array(n, images.salt + s, images.scale,
-- images.offset) and the class ids labels(batch, labels.salt + s, classes). Weights and images are
-- rounded to `dtype`. The loss is the mean categorical cross-entropy.
--
-- losses[s + 1]: the loss before the update of RMSprop step s; final_norms[k]: the L2 norm of
-- tensor k of get_weights() after the last step.
return {
  dtype = "float64",
  batch = 8,
  input_shape = { 12, 12, 1 },
  classes = 10,
  images = { salt = 1000, scale = 0.5, offset = 0.5 },
  labels = { salt = 2000 },
  weights = {
    { name = "conv1/kernel", shape = { 3, 3, 1, 4 }, trainable = true, salt = 100, scale = 0.816496580927726 },
    { name = "conv1/bias", shape = { 4 }, trainable = true, salt = 101, scale = 0.05 },
    { name = "conv2/kernel", shape = { 3, 3, 4, 8 }, trainable = true, salt = 102, scale = 0.408248290463863 },
    { name = "conv2/bias", shape = { 8 }, trainable = true, salt = 103, scale = 0.05 },
    { name = "bn/gamma", shape = { 8 }, trainable = true, salt = 104, scale = 0.05, offset = 1 },
    { name = "bn/beta", shape = { 8 }, trainable = true, salt = 105, scale = 0.05 },
    { name = "bn/moving_mean", shape = { 8 }, trainable = false, default = 0 },
    { name = "bn/moving_variance", shape = { 8 }, trainable = false, default = 1 },
    { name = "conv3/kernel", shape = { 3, 3, 8, 4 }, trainable = true, salt = 108, scale = 0.28867513459481287 },
    { name = "conv3/bias", shape = { 4 }, trainable = true, salt = 109, scale = 0.05 },
    { name = "dense1/kernel", shape = { 36, 16 }, trainable = true, salt = 110, scale = 0.408248290463863 },
    { name = "dense1/bias", shape = { 16 }, trainable = true, salt = 111, scale = 0.05 },
    { name = "dense2/kernel", shape = { 16, 10 }, trainable = true, salt = 112, scale = 0.6123724356957945 },
    { name = "dense2/bias", shape = { 10 }, trainable = true, salt = 113, scale = 0.05 },
  },
  filters = { 4, 8, 4 },
  dense = 16,
  learning_rate = 0.001,
}
