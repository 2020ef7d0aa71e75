-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0: the cases of this set. Their numbers are in
-- lenet5_curve.safetensors, by their path in this table. Written by make_golden.py. A recipe {
-- salt, scale = 1, offset = 0 } stands for numbers of hash.lua.
--
-- weights[k]: recipe of tensor k of get_weights(), or `default`, the value of all its elements
-- (moving statistics). Step s (from 0) trains on the images array(n, images.salt + s, images.scale,
-- images.offset) and the class ids labels(batch, labels.salt + s, classes). Weights and images are
-- rounded to `dtype`. The loss is the mean categorical cross-entropy.
--
-- losses[s + 1]: the loss before the update of RMSprop step s, computed by Keras in float32;
-- f64_losses: the same in float64 from the same float32 weights and images; final_norms[k]: the L2
-- norm of tensor k of get_weights() after the last step.
return {
  dtype = "float32",
  batch = 128,
  input_shape = { 28, 28, 1 },
  classes = 10,
  images = { salt = 1000, scale = 0.5, offset = 0.5 },
  labels = { salt = 2000 },
  weights = {
    { name = "conv1/kernel", shape = { 5, 5, 1, 6 }, trainable = true, salt = 100, scale = 0.4898979485566356 },
    { name = "conv1/bias", shape = { 6 }, trainable = true, salt = 101, scale = 0.05 },
    { name = "conv2/kernel", shape = { 5, 5, 6, 16 }, trainable = true, salt = 102, scale = 0.2 },
    { name = "conv2/bias", shape = { 16 }, trainable = true, salt = 103, scale = 0.05 },
    { name = "dense1/kernel", shape = { 400, 120 }, trainable = true, salt = 104, scale = 0.1224744871391589 },
    { name = "dense1/bias", shape = { 120 }, trainable = true, salt = 105, scale = 0.05 },
    { name = "dense2/kernel", shape = { 120, 84 }, trainable = true, salt = 106, scale = 0.22360679774997896 },
    { name = "dense2/bias", shape = { 84 }, trainable = true, salt = 107, scale = 0.05 },
    { name = "dense3/kernel", shape = { 84, 10 }, trainable = true, salt = 108, scale = 0.2672612419124244 },
    { name = "dense3/bias", shape = { 10 }, trainable = true, salt = 109, scale = 0.05 },
  },
  learning_rate = 0.001,
}
