--- mgpu.schedules: learning rates as functions of the step, one line a class, loaded on first use.
return require "mgpu.strict_table".lazy("schedule", "mgpu.nn.schedules", {
  CosineDecay = "cosine_decay",
  CosineDecayRestarts = "cosine_decay_restarts",
  ExponentialDecay = "exponential_decay",
  InverseTimeDecay = "inverse_time_decay",
  PiecewiseConstantDecay = "piecewise_constant_decay",
  PolynomialDecay = "polynomial_decay",
})
