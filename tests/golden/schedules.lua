-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0: the cases of this set. Their numbers are in
-- schedules.safetensors, by their path in this table. Written by make_golden.py. A recipe { salt,
-- scale = 1, offset = 0 } stands for numbers of hash.lua.
--
-- cases[i]: a schedule with args, by Keras's names; arguments that are not given have Keras's
-- defaults. rates[s + 1]: the rate at step s (from 0), in float64.
return {
  cases = {
    { schedule = "ExponentialDecay", args = { initial_learning_rate = 0.1, decay_steps = 4, decay_rate = 0.5 } },
    { schedule = "ExponentialDecay",
      args = { initial_learning_rate = 0.1, decay_steps = 4, decay_rate = 0.96, staircase = true } },
    { schedule = "PiecewiseConstantDecay", args = { boundaries = { 3, 10, 20 }, values = { 0.3, 0.2, 0.1, 0.05 } } },
    { schedule = "PiecewiseConstantDecay", args = { boundaries = { 7 }, values = { 0.1, 0.7 } } },
    { schedule = "PolynomialDecay", args = { initial_learning_rate = 0.1, decay_steps = 10 } },
    { schedule = "PolynomialDecay",
      args = { initial_learning_rate = 0.1, decay_steps = 20, end_learning_rate = 0.01, power = 0.5 } },
    { schedule = "PolynomialDecay",
      args = { initial_learning_rate = 0.1, decay_steps = 6, power = 2, cycle = true } },
    { schedule = "InverseTimeDecay", args = { initial_learning_rate = 0.1, decay_steps = 4, decay_rate = 0.5 } },
    { schedule = "InverseTimeDecay",
      args = { initial_learning_rate = 0.1, decay_steps = 1.5, decay_rate = 0.5, staircase = true } },
    { schedule = "CosineDecay", args = { initial_learning_rate = 0.1, decay_steps = 20 } },
    { schedule = "CosineDecay", args = { initial_learning_rate = 0.1, decay_steps = 12, alpha = 0.2 } },
    { schedule = "CosineDecay", args = { initial_learning_rate = 0.01, decay_steps = 12, alpha = 0.1,
      warmup_target = 0.1, warmup_steps = 6 } },
    { schedule = "CosineDecay", args = { initial_learning_rate = 0.01, decay_steps = 12, warmup_target = 0.1 } },
    { schedule = "CosineDecayRestarts", args = { initial_learning_rate = 0.1, first_decay_steps = 4 } },
    { schedule = "CosineDecayRestarts",
      args = { initial_learning_rate = 0.1, first_decay_steps = 5, t_mul = 1, m_mul = 0.8, alpha = 0.1 } },
    { schedule = "CosineDecayRestarts", args = { initial_learning_rate = 0.1, first_decay_steps = 3, t_mul = 1.3,
      m_mul = 0.9, alpha = 0.05 } },
  },
}
