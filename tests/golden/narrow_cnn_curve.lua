-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0, written by make_golden.py. Hashed values:
-- hash.lua.
--
-- weights[k]: recipe of tensor k of get_weights(): salt scale offset, or `default` (moving
-- statistics); images of step s (from 0): array(n, images.salt + s, images.scale, images.offset),
-- labels(batch, labels.salt + s, classes); all rounded to the net's dtype; loss: mean categorical
-- cross-entropy.
--
-- losses[s]: before the update of RMSprop step s; final_norms[k]: L2 norm of weights[k] after the
-- last.
return {
  dtype = "float64",
  batch = 8,
  input_shape = { 12, 12, 1 },
  classes = 10,
  images = { salt = 1000, scale = 0.5, offset = 0.5 },
  labels = { salt = 2000 },
  weights = {
    {
      name = "conv1/kernel", shape = { 3, 3, 1, 4 }, trainable = true, salt = 100,
      scale = 0.81649658092772603, offset = 0,
    },
    {
      name = "conv1/bias", shape = { 4 }, trainable = true, salt = 101,
      scale = 0.050000000000000003, offset = 0,
    },
    {
      name = "conv2/kernel", shape = { 3, 3, 4, 8 }, trainable = true, salt = 102,
      scale = 0.40824829046386302, offset = 0,
    },
    {
      name = "conv2/bias", shape = { 8 }, trainable = true, salt = 103,
      scale = 0.050000000000000003, offset = 0,
    },
    {
      name = "bn/gamma", shape = { 8 }, trainable = true, salt = 104, scale = 0.050000000000000003,
      offset = 1,
    },
    {
      name = "bn/beta", shape = { 8 }, trainable = true, salt = 105, scale = 0.050000000000000003,
      offset = 0,
    },
    { name = "bn/moving_mean", shape = { 8 }, trainable = false, default = 0 },
    {
      name = "bn/moving_variance", shape = { 8 }, trainable = false, default = 1,
    },
    {
      name = "conv3/kernel", shape = { 3, 3, 8, 4 }, trainable = true, salt = 108,
      scale = 0.28867513459481287, offset = 0,
    },
    {
      name = "conv3/bias", shape = { 4 }, trainable = true, salt = 109,
      scale = 0.050000000000000003, offset = 0,
    },
    {
      name = "dense1/kernel", shape = { 36, 16 }, trainable = true, salt = 110,
      scale = 0.40824829046386302, offset = 0,
    },
    {
      name = "dense1/bias", shape = { 16 }, trainable = true, salt = 111,
      scale = 0.050000000000000003, offset = 0,
    },
    {
      name = "dense2/kernel", shape = { 16, 10 }, trainable = true, salt = 112,
      scale = 0.61237243569579447, offset = 0,
    },
    {
      name = "dense2/bias", shape = { 10 }, trainable = true, salt = 113,
      scale = 0.050000000000000003, offset = 0,
    },
  },
  filters = { 4, 8, 4 },
  dense = 16,
  learning_rate = 0.001,
  losses = {
    3.2340981727107927, 3.6222997553760878, 2.2315741975255317, 3.430834593879998,
    3.5257271450738572, 3.826147666047631, 2.791436548519123, 2.9783649141163928,
    3.0891814506359152, 2.3919269976751316, 3.5154167226478954, 3.1552250148260459,
    2.1313437926539835, 3.2607956070973048, 2.869132400729085, 2.8578497230239437,
    2.7831446447344259, 3.1180253003721052, 2.52049074953052, 2.8687301376565486,
  },
  final_norms = {
    2.6745256283091861, 0.041821506562514273, 3.9452674292554706, 0.090886222026031249,
    2.8113039410775253, 0.054181000742182364, 0.30372046669797426, 2.3432754996422847,
    2.8586352370967947, 0.03324681736101659, 5.7268250865205577, 0.11109475004681514,
    4.2013807356859116, 0.097042603150234441,
  },
}
