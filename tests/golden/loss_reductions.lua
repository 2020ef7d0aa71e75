-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0: the cases of this set. Their numbers are in
-- loss_reductions.safetensors, by their path in this table. Written by make_golden.py. A recipe {
-- salt, scale = 1, offset = 0 } stands for numbers of hash.lua.
--
-- cases[i]: a loss with args, by Keras's names (axes count from 0). The predictions have `shape`:
-- logits = array(60, 4), raw = array(61, 0.45, 0.5), tiny = logits / 1e8. The targets: soft =
-- array(62, 0.5, 0.5); shares = soft divided by its sums along axis 1; bits = labels(63, 2); ids =
-- labels(64, 5) of {4, 3}; ids_from_minus_1 = ids - 1; ids_of_axis_1 = labels(64, 3) of {4, 5}, for
-- classes along axis 1. none: the unreduced values, of values_shape. plain_*, rows_* and every_*:
-- reduced as the name says without weights, with the weights array({4, 1}, 65, 1, 1), and with
-- array(values_shape, 66, 1, 1). gradient: of every_mean_with_sample_weight with respect to the
-- predictions. All in float64.
return {
  shape = { 4, 3, 5 },
  cases = {
    { loss = "categorical_crossentropy", args = {}, truth = "soft", prediction = "raw", values_shape = { 4, 3 } },
    { loss = "categorical_crossentropy", args = { axis = 1 }, truth = "soft", prediction = "raw",
      values_shape = { 4, 5 } },
    { loss = "categorical_crossentropy", args = { axis = 1, from_logits = true }, truth = "shares",
      prediction = "logits", values_shape = { 4, 5 } },
    { loss = "categorical_crossentropy", args = { label_smoothing = 0.2 }, truth = "soft", prediction = "raw",
      values_shape = { 4, 3 } },
    { loss = "sparse_categorical_crossentropy", args = {}, truth = "ids", prediction = "raw",
      values_shape = { 4, 3 } },
    { loss = "sparse_categorical_crossentropy", args = { axis = 1 }, truth = "ids_of_axis_1", prediction = "raw",
      values_shape = { 4, 5 } },
    { loss = "sparse_categorical_crossentropy", args = { axis = 1, from_logits = true, ignore_class = 1 },
      truth = "ids_of_axis_1", prediction = "logits", values_shape = { 4, 5 } },
    { loss = "sparse_categorical_crossentropy", args = { ignore_class = 2 }, truth = "ids", prediction = "raw",
      values_shape = { 4, 3 } },
    { loss = "sparse_categorical_crossentropy", args = { ignore_class = -1, from_logits = true },
      truth = "ids_from_minus_1", prediction = "logits", values_shape = { 4, 3 } },
    { loss = "binary_crossentropy", args = { axis = 1 }, truth = "bits", prediction = "raw",
      values_shape = { 4, 5 } },
    { loss = "binary_crossentropy", args = { axis = -2, from_logits = true, label_smoothing = 0.3 }, truth = "bits",
      prediction = "logits", values_shape = { 4, 5 } },
    { loss = "mean_squared_error", args = {}, truth = "soft", prediction = "logits", values_shape = { 4, 3 } },
    { loss = "mean_absolute_error", args = {}, truth = "soft", prediction = "logits", values_shape = { 4, 3 } },
    { loss = "huber", args = { delta = 0.7 }, truth = "soft", prediction = "logits", values_shape = { 4, 3 } },
    { loss = "kl_divergence", args = {}, truth = "soft", prediction = "raw", values_shape = { 4, 3 } },
    { loss = "hinge", args = {}, truth = "bits", prediction = "logits", values_shape = { 4, 3 } },
    { loss = "cosine_similarity", args = {}, truth = "soft", prediction = "logits", values_shape = { 4, 3 } },
    { loss = "cosine_similarity", args = { axis = 1 }, truth = "soft", prediction = "logits",
      values_shape = { 4, 5 } },
    { loss = "cosine_similarity", args = {}, truth = "soft", prediction = "tiny", values_shape = { 4, 3 } },
  },
}
