-- Golden values of Keras 3.15.1 on TensorFlow 2.21.0: the cases of this set. Their numbers are in
-- masked_metrics.safetensors, by their path in this table. Written by make_golden.py. A recipe {
-- salt, scale = 1, offset = 0 } stands for numbers of hash.lua.
--
-- cases[i]: `plain` and `weighted` are the results of a metric after two batches (b = 0 and 1) of 4
-- rows and steps[b + 1] steps. x is array({4, steps, 2}, salt + b) with 0 at the steps masked[b +
-- 1][row] (counted from 0); the model is Masking and Dense, whose weight k (from 0) is array(size,
-- salt + 20 + k, 2, k). The targets are hashed with salt + 10 + b: array({4, steps, 2}) for
-- `floats`, labels for the others. weights: of the rows, by batch. model: Masking and Dense(1) of
-- ones, x = array({3, 4, 2}, salt + 30, 2) with 0 in steps 2-3, 0 and 1-2 of its rows, y =
-- array({3, 4, 1}, salt + 31, 3), without and with the weights 1, 2, 0.5. tested: loss, mae and mse
-- (among the weighted_metrics) of test_on_batch; fitted: mae and mse of a fit of two batches,
-- without learning.
return {
  salt = 700,
  steps = { 5, 3 },
  masked = { { { 3, 4 }, { 1 }, {}, { 0, 1, 2, 3, 4 } }, { { 2 }, { 0, 2 }, { 0, 1, 2 }, {} } },
  weights = { { 1, 2, 0.5, 3 }, { 0.25, 1, 4, 1.5 } },
  cases = {
    { name = "mae", kind = "floats" },
    { name = "mse", kind = "floats" },
    { name = "cosine_similarity", kind = "floats" },
    { name = "huber", kind = "floats" },
    { name = "a function", kind = "floats" },
    { name = "a function of each number", kind = "floats" },
    { name = "accuracy", kind = "one_hot" },
    { name = "categorical_accuracy", kind = "one_hot" },
    { name = "top_k_categorical_accuracy", kind = "one_hot" },
    { name = "categorical_crossentropy", kind = "one_hot" },
    { name = "kl_divergence", kind = "one_hot" },
    { name = "accuracy", kind = "ids" },
    { name = "sparse_categorical_accuracy", kind = "ids" },
    { name = "sparse_top_k_categorical_accuracy", kind = "ids" },
    { name = "sparse_categorical_crossentropy", kind = "ids" },
    { name = "accuracy", kind = "bits" },
    { name = "binary_accuracy", kind = "bits" },
    { name = "binary_crossentropy", kind = "bits" },
    { name = "hinge", kind = "bits" },
    { name = "precision", kind = "bits" },
    { name = "recall", kind = "bits" },
    { name = "auc", kind = "bits" },
  },
}
