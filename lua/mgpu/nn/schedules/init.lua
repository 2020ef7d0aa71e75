--- mgpu.schedules: learning rates as functions of the step; for each class the file that defines it, loaded on first
--- use.
return require "mgpu.strict_table".lazy("schedule", "mgpu.nn.schedules", {
  CosineDecay = "decays",
  CosineDecayRestarts = "decays",
  ExponentialDecay = "decays",
  InverseTimeDecay = "decays",
  PiecewiseConstantDecay = "decays",
  PolynomialDecay = "decays",
})
