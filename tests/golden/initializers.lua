-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0: the cases of this set. Their numbers are in
-- initializers.safetensors, by their path in this table. Written by make_golden.py. A recipe {
-- salt, scale = 1, offset = 0 } stands for numbers of hash.lua.
--
-- cases[i]: an initializer with args, by Keras's names, for a kernel of `shape`. mean and std
-- (standard deviation) describe the values, min and max the interval that contains all of them
-- (normal distributions have none). orthogonal: the kernel, as a matrix {product of the first axes,
-- last axis}, has orthogonal columns of length gain, and std is the root mean square. identity:
-- gain times the unit matrix.
return {
  cases = {
    { initializer = "zeros", args = {}, shape = { 3, 3, 16, 32 } },
    { initializer = "zeros", args = {}, shape = { 100, 50 } },
    { initializer = "ones", args = {}, shape = { 3, 3, 16, 32 } },
    { initializer = "ones", args = {}, shape = { 100, 50 } },
    { initializer = "constant", args = { value = 0.25 }, shape = { 3, 3, 16, 32 } },
    { initializer = "constant", args = { value = 0.25 }, shape = { 100, 50 } },
    { initializer = "random_normal", args = {}, shape = { 3, 3, 16, 32 } },
    { initializer = "random_normal", args = {}, shape = { 100, 50 } },
    { initializer = "random_normal", args = { mean = 1, stddev = 0.5 }, shape = { 3, 3, 16, 32 } },
    { initializer = "random_normal", args = { mean = 1, stddev = 0.5 }, shape = { 100, 50 } },
    { initializer = "random_uniform", args = {}, shape = { 3, 3, 16, 32 } },
    { initializer = "random_uniform", args = {}, shape = { 100, 50 } },
    { initializer = "random_uniform", args = { minval = 0, maxval = 2 }, shape = { 3, 3, 16, 32 } },
    { initializer = "random_uniform", args = { minval = 0, maxval = 2 }, shape = { 100, 50 } },
    { initializer = "truncated_normal", args = {}, shape = { 3, 3, 16, 32 } },
    { initializer = "truncated_normal", args = {}, shape = { 100, 50 } },
    { initializer = "truncated_normal", args = { mean = 1, stddev = 0.5 }, shape = { 3, 3, 16, 32 } },
    { initializer = "truncated_normal", args = { mean = 1, stddev = 0.5 }, shape = { 100, 50 } },
    { initializer = "glorot_uniform", args = {}, shape = { 3, 3, 16, 32 } },
    { initializer = "glorot_uniform", args = {}, shape = { 100, 50 } },
    { initializer = "glorot_normal", args = {}, shape = { 3, 3, 16, 32 } },
    { initializer = "glorot_normal", args = {}, shape = { 100, 50 } },
    { initializer = "he_uniform", args = {}, shape = { 3, 3, 16, 32 } },
    { initializer = "he_uniform", args = {}, shape = { 100, 50 } },
    { initializer = "he_normal", args = {}, shape = { 3, 3, 16, 32 } },
    { initializer = "he_normal", args = {}, shape = { 100, 50 } },
    { initializer = "lecun_uniform", args = {}, shape = { 3, 3, 16, 32 } },
    { initializer = "lecun_uniform", args = {}, shape = { 100, 50 } },
    { initializer = "lecun_normal", args = {}, shape = { 3, 3, 16, 32 } },
    { initializer = "lecun_normal", args = {}, shape = { 100, 50 } },
    { initializer = "variance_scaling", args = {}, shape = { 3, 3, 16, 32 } },
    { initializer = "variance_scaling", args = {}, shape = { 100, 50 } },
    { initializer = "variance_scaling", args = { scale = 2, mode = "fan_avg", distribution = "uniform" },
      shape = { 3, 3, 16, 32 } },
    { initializer = "variance_scaling", args = { scale = 2, mode = "fan_avg", distribution = "uniform" },
      shape = { 100, 50 } },
    { initializer = "variance_scaling", args = { scale = 0.5, mode = "fan_out", distribution = "untruncated_normal" },
      shape = { 3, 3, 16, 32 } },
    { initializer = "variance_scaling", args = { scale = 0.5, mode = "fan_out", distribution = "untruncated_normal" },
      shape = { 100, 50 } },
    { initializer = "orthogonal", args = {}, shape = { 3, 3, 16, 32 }, orthogonal = true },
    { initializer = "orthogonal", args = {}, shape = { 100, 50 }, orthogonal = true },
    { initializer = "orthogonal", args = { gain = 2 }, shape = { 3, 3, 16, 32 }, orthogonal = true },
    { initializer = "orthogonal", args = { gain = 2 }, shape = { 100, 50 }, orthogonal = true },
    { initializer = "identity", args = {}, shape = { 100, 50 }, identity = true },
    { initializer = "identity", args = { gain = 2 }, shape = { 100, 50 }, identity = true },
  },
}
