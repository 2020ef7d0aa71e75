-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0: the cases of this set. Their numbers are in
-- mnist_cnn_gradients.safetensors, by their path in this table. Written by make_golden.py. A recipe
-- { salt, scale = 1, offset = 0 } stands for numbers of hash.lua.
--
-- weights[k]: recipe of tensor k of get_weights(), or `default`, the value of all its elements
-- (moving statistics). Step s (from 0) trains on the images array(n, images.salt + s, images.scale,
-- images.offset) and the class ids labels(batch, labels.salt + s, classes). Weights and images are
-- rounded to `dtype`. The loss is the mean categorical cross-entropy.
--
-- loss and gradients[k], in the order of trainable_weights, are computed in float64 from the
-- float32 weights and images: norm (L2), and samples[j], the element floor(unit(j - 1, sample_salt)
-- * size) of the flat gradient, counted from 0. f32_loss and f32_norm: the same computed by Keras
-- in float32; f32_deviation: |f32 - f64| / |f64|. It is up to 1e-3, because a ReLU input near 0 may
-- change its sign by float32 rounding, which changes the gradients of all earlier layers.
return {
  dtype = "float32",
  batch = 16,
  input_shape = { 28, 28, 1 },
  classes = 10,
  images = { salt = 1050, scale = 0.5, offset = 0.5 },
  labels = { salt = 2050 },
  weights = {
    { name = "conv1/kernel", shape = { 3, 3, 1, 32 }, trainable = true, salt = 100, scale = 0.816496580927726 },
    { name = "conv1/bias", shape = { 32 }, trainable = true, salt = 101, scale = 0.05 },
    { name = "conv2/kernel", shape = { 3, 3, 32, 256 }, trainable = true, salt = 102, scale = 0.14433756729740643 },
    { name = "conv2/bias", shape = { 256 }, trainable = true, salt = 103, scale = 0.05 },
    { name = "bn/gamma", shape = { 256 }, trainable = true, salt = 104, scale = 0.05, offset = 1 },
    { name = "bn/beta", shape = { 256 }, trainable = true, salt = 105, scale = 0.05 },
    { name = "bn/moving_mean", shape = { 256 }, trainable = false, default = 0 },
    { name = "bn/moving_variance", shape = { 256 }, trainable = false, default = 1 },
    { name = "conv3/kernel", shape = { 3, 3, 256, 128 }, trainable = true, salt = 108, scale = 0.05103103630798288 },
    { name = "conv3/bias", shape = { 128 }, trainable = true, salt = 109, scale = 0.05 },
    { name = "dense1/kernel", shape = { 15488, 128 }, trainable = true, salt = 110, scale = 0.019682395540555425 },
    { name = "dense1/bias", shape = { 128 }, trainable = true, salt = 111, scale = 0.05 },
    { name = "dense2/kernel", shape = { 128, 10 }, trainable = true, salt = 112, scale = 0.21650635094610965 },
    { name = "dense2/bias", shape = { 10 }, trainable = true, salt = 113, scale = 0.05 },
  },
  sample_count = 64,
  gradients = {
    { name = "conv1/kernel", shape = { 3, 3, 1, 32 }, sample_salt = 3000 },
    { name = "conv1/bias", shape = { 32 }, sample_salt = 3001 },
    { name = "conv2/kernel", shape = { 3, 3, 32, 256 }, sample_salt = 3002 },
    { name = "conv2/bias", shape = { 256 }, sample_salt = 3003 },
    { name = "bn/gamma", shape = { 256 }, sample_salt = 3004 },
    { name = "bn/beta", shape = { 256 }, sample_salt = 3005 },
    { name = "conv3/kernel", shape = { 3, 3, 256, 128 }, sample_salt = 3006 },
    { name = "conv3/bias", shape = { 128 }, sample_salt = 3007 },
    { name = "dense1/kernel", shape = { 15488, 128 }, sample_salt = 3008 },
    { name = "dense1/bias", shape = { 128 }, sample_salt = 3009 },
    { name = "dense2/kernel", shape = { 128, 10 }, sample_salt = 3010 },
    { name = "dense2/bias", shape = { 10 }, sample_salt = 3011 },
  },
}
