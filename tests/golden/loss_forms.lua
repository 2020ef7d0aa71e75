-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0: the cases of this set. Their numbers are in
-- loss_forms.safetensors, by their path in this table. Written by make_golden.py. A recipe { salt,
-- scale = 1, offset = 0 } stands for numbers of hash.lua.
--
-- cases[i]: a loss with args, by Keras's names (axes count from 0), for the targets y_true and the
-- predictions y_pred. none: the unreduced values, flat; sum and mean: reduced; gradient: of the
-- mean with respect to y_pred. All in float64, but CTC, which TensorFlow computes in float32.
return {
  cases = {
    { loss = "Dice", args = {}, y_true_shape = { 3, 4, 5 }, y_pred_shape = { 3, 4, 5 } },
    { loss = "Dice", args = { axis = { 1, 2 } }, y_true_shape = { 3, 4, 5 }, y_pred_shape = { 3, 4, 5 } },
    { loss = "Dice", args = { axis = 1 }, y_true_shape = { 3, 4, 5 }, y_pred_shape = { 3, 4, 5 } },
    { loss = "Tversky", args = {}, y_true_shape = { 3, 4, 5 }, y_pred_shape = { 3, 4, 5 } },
    { loss = "Tversky", args = { alpha = 0.3, beta = 0.7, axis = { 1, 2 } }, y_true_shape = { 3, 4, 5 },
      y_pred_shape = { 3, 4, 5 } },
    { loss = "Tversky", args = { alpha = 0.9, axis = -1 }, y_true_shape = { 3, 4, 5 }, y_pred_shape = { 3, 4, 5 } },
    { loss = "Circle", args = {}, y_true_shape = { 6 }, y_pred_shape = { 6, 4 } },
    { loss = "Circle", args = { gamma = 16, margin = 0.2 }, y_true_shape = { 6 }, y_pred_shape = { 6, 4 } },
    { loss = "Circle", args = { remove_diagonal = false, gamma = 4 }, y_true_shape = { 6 }, y_pred_shape = { 6, 4 } },
    { loss = "Circle", args = {}, y_true_shape = { 6 }, y_pred_shape = { 6, 4 } },
    { loss = "CTC", args = {}, y_true_shape = { 4, 4 }, y_pred_shape = { 4, 7, 5 } },
    { loss = "CategoricalFocalCrossentropy", args = { axis = 1 }, y_true_shape = { 3, 4, 5 },
      y_pred_shape = { 3, 4, 5 } },
    { loss = "BinaryFocalCrossentropy", args = { axis = 1, gamma = 1.5 }, y_true_shape = { 3, 4, 5 },
      y_pred_shape = { 3, 4, 5 } },
    { loss = "CategoricalGeneralizedCrossEntropy", args = { q = 0.7 }, y_true_shape = { 6 },
      y_pred_shape = { 6, 10 } },
    { loss = "CategoricalHinge", args = {}, y_true_shape = { 3, 4, 5 }, y_pred_shape = { 3, 4, 5 } },
  },
}
