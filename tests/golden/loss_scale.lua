-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0: the cases of this set. Their numbers are in
-- loss_scale.safetensors, by their path in this table. Written by make_golden.py. A recipe { salt,
-- scale = 1, offset = 0 } stands for numbers of hash.lua.
--
-- cases[i]: an inner optimizer with args, and initial_scale and dynamic_growth_steps of the
-- LossScaleOptimizer around it. Variable k (from 0) has shapes[k + 1] and starts as
-- array(value_salt + k). Step s (from 0) applies the gradients dynamic_scale * array(gradient_salt
-- + 10 s + k); where bad[s + 1] is "inf" or "nan", the first element of the last gradient becomes
-- that. steps[s + 1]: dynamic_scale, step_counter and iterations after step s, and all variables'
-- values in one list.
return {
  shapes = { { 2, 3 }, { 4 } },
  bad = { "", "", "", "inf", "", "nan", "nan", "", "", "", "", "" },
  value_salt = 540,
  gradient_salt = 550,
  cases = {
    { optimizer = "SGD", args = { learning_rate = 0.1, momentum = 0.9 }, initial_scale = 64,
      dynamic_growth_steps = 2 },
    { optimizer = "Adam", args = { learning_rate = 0.01 }, initial_scale = 32768, dynamic_growth_steps = 3 },
    { optimizer = "SGD", args = { learning_rate = 0.1 }, initial_scale = 1, dynamic_growth_steps = 1 },
  },
}
