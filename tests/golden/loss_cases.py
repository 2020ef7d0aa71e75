"""Golden set of losses and accuracies in float64: per sample, reduced, weighted, the gradient."""

import keras
import numpy as np
import tensorflow as tf

import hashed
from nets import compute_in

N, CLASSES = 6, 5
IDS = hashed.labels(N, 50, CLASSES)
ONE_HOT = np.eye(CLASSES)[IDS]
SOFT = hashed.array((N, CLASSES), 51, 0.5, 0.5)
SOFT = SOFT / SOFT.sum(axis=1, keepdims=True)
BITS = hashed.labels(N * CLASSES, 52, 2).reshape(N, CLASSES).astype(float)
WEIGHTS = hashed.array((N,), 53, 1.0, 1.0)
LOGITS = hashed.array((N, CLASSES), 54, 4.0)
UNNORMALISED = hashed.array((N, CLASSES), 55, 0.45, 0.5)
PROBABILITIES = UNNORMALISED / UNNORMALISED.sum(axis=1, keepdims=True)
# Certain of the first class: three rows are wrong, clipping decides their loss.
EXTREME = np.eye(CLASSES)[[0] * N]

# loss, args, y_true, y_pred
CASES = [(name, args, truth, prediction) for name, truths in [
    ("CategoricalCrossentropy", [ONE_HOT, SOFT]), ("SparseCategoricalCrossentropy", [IDS]),
    ("BinaryCrossentropy", [BITS, SOFT])] for truth in truths for args, prediction in [
        ({}, PROBABILITIES), ({}, UNNORMALISED), ({}, EXTREME), ({"from_logits": True}, LOGITS)]]
CASES += [
    ("CategoricalCrossentropy", {"label_smoothing": 0.1}, ONE_HOT, PROBABILITIES),
    ("CategoricalCrossentropy", {"label_smoothing": 0.1, "from_logits": True}, ONE_HOT, LOGITS),
    ("BinaryCrossentropy", {"label_smoothing": 0.1}, BITS, PROBABILITIES),
    ("BinaryCrossentropy", {"label_smoothing": 0.1, "from_logits": True}, BITS, LOGITS),
    ("CategoricalCrossentropy", {"from_logits": True}, ONE_HOT, 100 * LOGITS),
    ("BinaryCrossentropy", {"from_logits": True}, BITS, 100 * LOGITS),
    ("MeanSquaredError", {}, SOFT, LOGITS),
    ("MeanSquaredError", {}, ONE_HOT, PROBABILITIES),
]

SIGNS = 2 * BITS - 1
CASES += [("MeanAbsoluteError", {}, SOFT, LOGITS), ("Huber", {}, SOFT, LOGITS),
          ("Huber", {"delta": 0.5}, SOFT, LOGITS), ("KLDivergence", {}, SOFT, PROBABILITIES),
          ("KLDivergence", {}, ONE_HOT, UNNORMALISED), ("Hinge", {}, SIGNS, LOGITS),
          ("Hinge", {}, BITS, LOGITS), ("CosineSimilarity", {}, SOFT, LOGITS),
          ("CosineSimilarity", {"axis": 1}, ONE_HOT, PROBABILITIES)]

TIED = np.round(2 * PROBABILITIES) / 2
METRICS = [
    ("CategoricalAccuracy", ONE_HOT, PROBABILITIES), ("CategoricalAccuracy", ONE_HOT, TIED),
    ("SparseCategoricalAccuracy", IDS, PROBABILITIES), ("SparseCategoricalAccuracy", IDS, TIED),
    ("BinaryAccuracy", BITS, UNNORMALISED), ("BinaryAccuracy", BITS, EXTREME),
]


def _reduced(loss, truth, prediction, weights=None):
    """The reduced loss and its gradient with respect to the prediction."""
    prediction = tf.constant(prediction)
    with tf.GradientTape() as tape:
        tape.watch(prediction)
        value = loss(tf.constant(truth), prediction, sample_weight=weights)
    assert value.dtype == "float64"
    return value, tape.gradient(value, prediction)


def _loss_case(name, args, truth, prediction):
    make = getattr(keras.losses, name)
    mean, gradient = _reduced(make(**args), truth, prediction)
    weighted, weighted_gradient = _reduced(make(**args), truth, prediction, WEIGHTS)
    per_sample = make(reduction="none", **args)(tf.constant(truth), tf.constant(prediction))
    assert np.isclose(np.mean(per_sample.numpy()), float(mean), rtol=1e-14)
    assert np.isclose(np.sum(per_sample.numpy() * WEIGHTS) / N, float(weighted), rtol=1e-14)
    return {"loss": keras.losses.get(name).name.removesuffix("_loss"), "args": args, "y_true_shape": list(truth.shape),
            "y_true": truth, "y_pred": prediction, "per_sample": per_sample, "mean": mean,
            "gradient": gradient, "weighted": weighted, "weighted_gradient": weighted_gradient}


def _metric_case(name, truth, prediction):
    plain, weighted = getattr(keras.metrics, name)(), getattr(keras.metrics, name)()
    plain.update_state(truth, prediction)
    weighted.update_state(truth, prediction, sample_weight=WEIGHTS)
    per_sample = getattr(keras.metrics, plain.name)(tf.constant(truth), tf.constant(prediction))
    return {"metric": plain.name, "y_true_shape": list(truth.shape), "y_true": truth,
            "y_pred": prediction, "per_sample": tf.cast(per_sample, tf.float64),
            "mean": plain.result(), "weighted": weighted.result()}


def losses():
    """Set 6."""
    compute_in("float64")
    return {"samples": N, "classes": CLASSES, "sample_weight": WEIGHTS,
            "losses": [_loss_case(*case) for case in CASES],
            "metrics": [_metric_case(*case) for case in METRICS]}


SETS = {"losses": (losses, """
losses[i]: loss, args by Keras's names, y_true (class ids when y_true_shape is {samples}), y_pred
{samples, classes}: per_sample values, their mean (Keras's default reduction), gradient of the mean
with respect to y_pred; weighted: with sample_weight (sum of the weighted values / samples), and its
gradient. Predictions that are not logits: normalised rows, rows that do not sum to 1, rows certain
of class 0 (there 1e-7 clipping decides).

metrics[i]: per_sample, mean, weighted (divided by the sum of weights);
of equal predictions the first wins. All in float64, arrays flat and row-major.""")}
