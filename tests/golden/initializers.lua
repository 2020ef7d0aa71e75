-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0, written by make_golden.py. Hashed values:
-- hash.lua.
--
-- cases[i]: initializer, args by Keras's names, kernel shape: mean and std (standard deviation) of
-- the values; min and max: the support, never left (normal distributions have none). orthogonal:
-- the kernel as a matrix {product of the first axes, last axis} has orthogonal columns of length
-- gain; std is the root mean square. identity: gain times the unit matrix.
return {
  cases = {
    {
      initializer = "zeros", args = {}, shape = { 3, 3, 16, 32 }, mean = 0, std = 0, min = 0,
      max = 0,
    },
    {
      initializer = "zeros", args = {}, shape = { 100, 50 }, mean = 0, std = 0, min = 0, max = 0,
    },
    {
      initializer = "ones", args = {}, shape = { 3, 3, 16, 32 }, mean = 1, std = 0, min = 1,
      max = 1,
    },
    {
      initializer = "ones", args = {}, shape = { 100, 50 }, mean = 1, std = 0, min = 1, max = 1,
    },
    {
      initializer = "constant", args = { value = 0.25 }, shape = { 3, 3, 16, 32 }, mean = 0.25,
      std = 0, min = 0.25, max = 0.25,
    },
    {
      initializer = "constant", args = { value = 0.25 }, shape = { 100, 50 }, mean = 0.25, std = 0,
      min = 0.25, max = 0.25,
    },
    {
      initializer = "random_normal", args = {}, shape = { 3, 3, 16, 32 }, mean = 0,
      std = 0.050000000000000003,
    },
    {
      initializer = "random_normal", args = {}, shape = { 100, 50 }, mean = 0,
      std = 0.050000000000000003,
    },
    {
      initializer = "random_normal",
      args = { mean = 1, stddev = 0.5 },
      shape = { 3, 3, 16, 32 },
      mean = 1,
      std = 0.5,
    },
    {
      initializer = "random_normal",
      args = { mean = 1, stddev = 0.5 },
      shape = { 100, 50 },
      mean = 1,
      std = 0.5,
    },
    {
      initializer = "random_uniform",
      args = {},
      shape = { 3, 3, 16, 32 },
      mean = 0,
      std = 0.028867513459481291,
      min = -0.050000000000000003,
      max = 0.050000000000000003,
    },
    {
      initializer = "random_uniform",
      args = {},
      shape = { 100, 50 },
      mean = 0,
      std = 0.028867513459481291,
      min = -0.050000000000000003,
      max = 0.050000000000000003,
    },
    {
      initializer = "random_uniform",
      args = { minval = 0, maxval = 2 },
      shape = { 3, 3, 16, 32 },
      mean = 1,
      std = 0.57735026918962584,
      min = 0,
      max = 2,
    },
    {
      initializer = "random_uniform",
      args = { minval = 0, maxval = 2 },
      shape = { 100, 50 },
      mean = 1,
      std = 0.57735026918962584,
      min = 0,
      max = 2,
    },
    {
      initializer = "truncated_normal",
      args = {},
      shape = { 3, 3, 16, 32 },
      mean = 0,
      std = 0.043981283051711992,
      min = -0.10000000000000001,
      max = 0.10000000000000001,
    },
    {
      initializer = "truncated_normal",
      args = {},
      shape = { 100, 50 },
      mean = 0,
      std = 0.043981283051711992,
      min = -0.10000000000000001,
      max = 0.10000000000000001,
    },
    {
      initializer = "truncated_normal",
      args = { mean = 1, stddev = 0.5 },
      shape = { 3, 3, 16, 32 },
      mean = 1,
      std = 0.43981283051711989,
      min = 0,
      max = 2,
    },
    {
      initializer = "truncated_normal",
      args = { mean = 1, stddev = 0.5 },
      shape = { 100, 50 },
      mean = 1,
      std = 0.43981283051711989,
      min = 0,
      max = 2,
    },
    {
      initializer = "glorot_uniform",
      args = {},
      shape = { 3, 3, 16, 32 },
      mean = 0,
      std = 0.06804138174397717,
      min = -0.11785113019775792,
      max = 0.11785113019775792,
    },
    {
      initializer = "glorot_uniform",
      args = {},
      shape = { 100, 50 },
      mean = 0,
      std = 0.11547005383792516,
      min = -0.20000000000000001,
      max = 0.20000000000000001,
    },
    {
      initializer = "glorot_normal", args = {}, shape = { 3, 3, 16, 32 }, mean = 0,
      std = 0.06804138174397717, min = -0.15470531331242879, max = 0.15470531331242879,
    },
    {
      initializer = "glorot_normal", args = {}, shape = { 100, 50 }, mean = 0,
      std = 0.11547005383792518, min = -0.26254362270913889, max = 0.26254362270913889,
    },
    {
      initializer = "he_uniform", args = {}, shape = { 3, 3, 16, 32 }, mean = 0,
      std = 0.11785113019775791, min = -0.20412414523193148, max = 0.20412414523193148,
    },
    {
      initializer = "he_uniform", args = {}, shape = { 100, 50 }, mean = 0,
      std = 0.1414213562373095, min = -0.2449489742783178, max = 0.2449489742783178,
    },
    {
      initializer = "he_normal", args = {}, shape = { 3, 3, 16, 32 }, mean = 0,
      std = 0.11785113019775792, min = -0.26795746285798844, max = 0.26795746285798844,
    },
    {
      initializer = "he_normal", args = {}, shape = { 100, 50 }, mean = 0, std = 0.1414213562373095,
      min = -0.32154895542958611, max = 0.32154895542958611,
    },
    {
      initializer = "lecun_uniform", args = {}, shape = { 3, 3, 16, 32 }, mean = 0,
      std = 0.083333333333333329, min = -0.14433756729740643, max = 0.14433756729740643,
    },
    {
      initializer = "lecun_uniform", args = {}, shape = { 100, 50 }, mean = 0,
      std = 0.10000000000000001, min = -0.17320508075688773, max = 0.17320508075688773,
    },
    {
      initializer = "lecun_normal", args = {}, shape = { 3, 3, 16, 32 }, mean = 0,
      std = 0.083333333333333329, min = -0.18947453905642606, max = 0.18947453905642606,
    },
    {
      initializer = "lecun_normal", args = {}, shape = { 100, 50 }, mean = 0,
      std = 0.10000000000000001, min = -0.22736944686771129, max = 0.22736944686771129,
    },
    {
      initializer = "variance_scaling",
      args = {},
      shape = { 3, 3, 16, 32 },
      mean = 0,
      std = 0.083333333333333329,
      min = -0.18947453905642606,
      max = 0.18947453905642606,
    },
    {
      initializer = "variance_scaling",
      args = {},
      shape = { 100, 50 },
      mean = 0,
      std = 0.10000000000000001,
      min = -0.22736944686771129,
      max = 0.22736944686771129,
    },
    {
      initializer = "variance_scaling",
      args = { scale = 2, mode = "fan_avg", distribution = "uniform" },
      shape = { 3, 3, 16, 32 },
      mean = 0,
      std = 0.096225044864937631,
      min = -0.16666666666666666,
      max = 0.16666666666666666,
    },
    {
      initializer = "variance_scaling",
      args = { scale = 2, mode = "fan_avg", distribution = "uniform" },
      shape = { 100, 50 },
      mean = 0,
      std = 0.16329931618554522,
      min = -0.28284271247461901,
      max = 0.28284271247461901,
    },
    {
      initializer = "variance_scaling",
      args = { scale = 0.5, mode = "fan_out", distribution = "untruncated_normal" },
      shape = { 3, 3, 16, 32 },
      mean = 0,
      std = 0.041666666666666664,
    },
    {
      initializer = "variance_scaling",
      args = { scale = 0.5, mode = "fan_out", distribution = "untruncated_normal" },
      shape = { 100, 50 },
      mean = 0,
      std = 0.10000000000000001,
    },
    {
      initializer = "orthogonal", args = {}, shape = { 3, 3, 16, 32 }, std = 0.083333333333333329,
      orthogonal = true, gain = 1,
    },
    {
      initializer = "orthogonal", args = {}, shape = { 100, 50 }, std = 0.10000000000000001,
      orthogonal = true, gain = 1,
    },
    {
      initializer = "orthogonal", args = { gain = 2 }, shape = { 3, 3, 16, 32 },
      std = 0.16666666666666666, orthogonal = true, gain = 2,
    },
    {
      initializer = "orthogonal", args = { gain = 2 }, shape = { 100, 50 },
      std = 0.20000000000000001, orthogonal = true, gain = 2,
    },
    {
      initializer = "identity", args = {}, shape = { 100, 50 }, identity = true, gain = 1,
    },
    {
      initializer = "identity", args = { gain = 2 }, shape = { 100, 50 }, identity = true, gain = 2,
    },
  },
}
