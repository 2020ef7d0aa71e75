-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0: the cases of this set. Their numbers are in
-- functional.safetensors, by their path in this table. Written by make_golden.py. A recipe { salt,
-- scale = 1, offset = 0 } stands for numbers of hash.lua.
--
-- Step s (from 0 to steps - 1) trains on the inputs a = array(70 + s) of {rows, 6} and b = array(80
-- + s) of {rows, 4}, the targets price = array(90 + s) and kind = labels(rows, 100 + s, 3), and the
-- sample weights array(rows, 110, 0.5, 1) of price. weights[k]: recipe of tensor k of get_weights()
-- at the start. curve[s + 1]: total loss (with loss_weights and regularizers), loss of price, loss
-- of kind; final[k]: the weights after all steps of SGD(0.1, momentum 0.9).
return {
  rows = 6,
  steps = 5,
  weights = {
    { name = "narrow/kernel", shape = { 6, 4 }, salt = 60, scale = 0.5 },
    { name = "narrow/bias", shape = { 4 }, salt = 61, scale = 0.5 },
    { name = "shared/kernel", shape = { 4, 5 }, salt = 62, scale = 0.5 },
    { name = "shared/bias", shape = { 5 }, salt = 63, scale = 0.5 },
    { name = "deep/kernel", shape = { 10, 3 }, salt = 64, scale = 0.5 },
    { name = "deep/bias", shape = { 3 }, salt = 65, scale = 0.5 },
    { name = "price/kernel", shape = { 3, 1 }, salt = 66, scale = 0.5 },
    { name = "price/bias", shape = { 1 }, salt = 67, scale = 0.5 },
    { name = "kind/kernel", shape = { 5, 3 }, salt = 68, scale = 0.5 },
    { name = "kind/bias", shape = { 3 }, salt = 69, scale = 0.5 },
  },
}
