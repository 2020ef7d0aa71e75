-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0, written by make_golden.py. Hashed values:
-- hash.lua.
--
-- weights[k]: recipe of tensor k of get_weights(): salt scale offset, or `default` (moving
-- statistics); images of step s (from 0): array(n, images.salt + s, images.scale, images.offset),
-- labels(batch, labels.salt + s, classes); all rounded to the net's dtype; loss: mean categorical
-- cross-entropy.
--
-- losses[s]: before the update of RMSprop step s, by Keras in float32, f64_losses in float64 from
-- the same float32 values; final_norms[k]: L2 norm of weights[k] after the last.
return {
  dtype = "float32",
  batch = 128,
  input_shape = { 28, 28, 1 },
  classes = 10,
  images = { salt = 1000, scale = 0.5, offset = 0.5 },
  labels = { salt = 2000 },
  weights = {
    {
      name = "conv1/kernel", shape = { 5, 5, 1, 6 }, trainable = true, salt = 100,
      scale = 0.4898979485566356, offset = 0,
    },
    {
      name = "conv1/bias", shape = { 6 }, trainable = true, salt = 101,
      scale = 0.050000000000000003, offset = 0,
    },
    {
      name = "conv2/kernel", shape = { 5, 5, 6, 16 }, trainable = true, salt = 102,
      scale = 0.20000000000000001, offset = 0,
    },
    {
      name = "conv2/bias", shape = { 16 }, trainable = true, salt = 103,
      scale = 0.050000000000000003, offset = 0,
    },
    {
      name = "dense1/kernel", shape = { 400, 120 }, trainable = true, salt = 104,
      scale = 0.1224744871391589, offset = 0,
    },
    {
      name = "dense1/bias", shape = { 120 }, trainable = true, salt = 105,
      scale = 0.050000000000000003, offset = 0,
    },
    {
      name = "dense2/kernel", shape = { 120, 84 }, trainable = true, salt = 106,
      scale = 0.22360679774997896, offset = 0,
    },
    {
      name = "dense2/bias", shape = { 84 }, trainable = true, salt = 107,
      scale = 0.050000000000000003, offset = 0,
    },
    {
      name = "dense3/kernel", shape = { 84, 10 }, trainable = true, salt = 108,
      scale = 0.2672612419124244, offset = 0,
    },
    {
      name = "dense3/bias", shape = { 10 }, trainable = true, salt = 109,
      scale = 0.050000000000000003, offset = 0,
    },
  },
  learning_rate = 0.001,
  losses = {
    2.5234465599060059, 2.6887784004211426, 2.3731780052185059, 2.3075218200683594,
    2.3234524726867676, 2.3183574676513672, 2.3279662132263184, 2.316288948059082,
    2.3165688514709473, 2.314115047454834, 2.2799098491668701, 2.3425729274749756,
  },
  f64_losses = {
    2.5234467170790831, 2.6887783176600752, 2.3731779307400473, 2.3075219232489363,
    2.3234523776293363, 2.3183576608705945, 2.3279660318397548, 2.3162890425468072,
    2.3165687223125051, 2.3141151244244362, 2.2799097976883278, 2.3425727974671702,
  },
  final_norms = {
    3.3642640728780084, 0.047582443211556157, 5.6316572530619924, 0.12991319282030675,
    15.492145854771588, 0.29381315304737698, 12.905290085173114, 0.26216762270008331,
    4.4292605774891456, 0.090345563533511059,
  },
}
