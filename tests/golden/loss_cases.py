"""Golden sets of losses and accuracies in float64: per sample, reduced, weighted, and the gradient."""

import keras
import numpy as np
import tensorflow as tf

import hashed
from nets import compute_in

N, CLASSES = 6, 5
WEIGHTS = hashed.array((N,), 53, 1.0, 1.0)


def _rows_of_sum_1(array):
    return array / array.sum(axis=1, keepdims=True)


# Targets and predictions of the cases, by the names that the cases give.
IDS = hashed.labels(N, 50, CLASSES)
ONE_HOT = np.eye(CLASSES)[IDS]
BITS = hashed.labels(N * CLASSES, 52, 2).reshape(N, CLASSES).astype(float)
SAMPLE_TRUTHS = {"ids": IDS, "one_hot": ONE_HOT, "bits": BITS, "signs": 2 * BITS - 1,
                 "soft": _rows_of_sum_1(hashed.array((N, CLASSES), 51, 0.5, 0.5))}
LOGITS = hashed.array((N, CLASSES), 54, 4.0)
UNNORMALISED = hashed.array((N, CLASSES), 55, 0.45, 0.5)
PROBABILITIES = _rows_of_sum_1(UNNORMALISED)
SAMPLE_PREDICTIONS = {
    "logits": LOGITS, "large_logits": 100 * LOGITS, "unnormalised": UNNORMALISED,
    "probabilities": PROBABILITIES,
    "tied": np.round(2 * PROBABILITIES) / 2,
    # Certain of the first class: three rows are wrong, and clipping decides their loss.
    "extreme": np.eye(CLASSES)[[0] * N]}

# loss, args, y_true, y_pred
CASES = [(name, args, truth, prediction) for name, truths in [
    ("CategoricalCrossentropy", ["one_hot", "soft"]), ("SparseCategoricalCrossentropy", ["ids"]),
    ("BinaryCrossentropy", ["bits", "soft"])] for truth in truths for args, prediction in [
        ({}, "probabilities"), ({}, "unnormalised"), ({}, "extreme"),
        ({"from_logits": True}, "logits")]]
CASES += [
    ("CategoricalCrossentropy", {"label_smoothing": 0.1}, "one_hot", "probabilities"),
    ("CategoricalCrossentropy", {"label_smoothing": 0.1, "from_logits": True}, "one_hot", "logits"),
    ("BinaryCrossentropy", {"label_smoothing": 0.1}, "bits", "probabilities"),
    ("BinaryCrossentropy", {"label_smoothing": 0.1, "from_logits": True}, "bits", "logits"),
    ("CategoricalCrossentropy", {"from_logits": True}, "one_hot", "large_logits"),
    ("BinaryCrossentropy", {"from_logits": True}, "bits", "large_logits"),
    ("MeanSquaredError", {}, "soft", "logits"),
    ("MeanSquaredError", {}, "one_hot", "probabilities"),
    ("MeanAbsoluteError", {}, "soft", "logits"),
    ("Huber", {}, "soft", "logits"),
    ("Huber", {"delta": 0.5}, "soft", "logits"),
    ("KLDivergence", {}, "soft", "probabilities"),
    ("KLDivergence", {}, "one_hot", "unnormalised"),
    ("Hinge", {}, "signs", "logits"),
    ("Hinge", {}, "bits", "logits"),
    ("Poisson", {}, "soft", "probabilities"),
    ("Poisson", {}, "bits", "unnormalised"),
    ("LogCosh", {}, "soft", "logits"),
    ("LogCosh", {}, "bits", "large_logits"),
    ("CosineSimilarity", {}, "soft", "logits"),
    ("CosineSimilarity", {"axis": 1}, "one_hot", "probabilities"),
    ("MeanAbsolutePercentageError", {}, "soft", "logits"),
    ("MeanSquaredLogarithmicError", {}, "soft", "logits"),
    ("SquaredHinge", {}, "signs", "logits"), ("SquaredHinge", {}, "bits", "logits"),
    ("CategoricalHinge", {}, "one_hot", "logits"),
    ("CategoricalGeneralizedCrossEntropy", {}, "ids", "probabilities"),
    ("CategoricalFocalCrossentropy", {}, "one_hot", "unnormalised"),
    ("CategoricalFocalCrossentropy", {"alpha": [0.125, 0.25, 0.375, 0.5, 0.625], "gamma": 1.5,
                                      "label_smoothing": 0.1}, "one_hot", "probabilities"),
    ("CategoricalFocalCrossentropy", {"from_logits": True}, "soft", "logits"),
    ("BinaryFocalCrossentropy", {}, "bits", "unnormalised"),
    ("BinaryFocalCrossentropy", {"apply_class_balancing": True, "alpha": 0.4, "gamma": 3.0,
                                 "label_smoothing": 0.2}, "bits", "probabilities"),
    ("BinaryFocalCrossentropy", {"from_logits": True}, "soft", "logits"),
]

METRICS = [
    ("CategoricalAccuracy", "one_hot", "probabilities"), ("CategoricalAccuracy", "one_hot", "tied"),
    ("SparseCategoricalAccuracy", "ids", "probabilities"),
    ("SparseCategoricalAccuracy", "ids", "tied"),
    ("BinaryAccuracy", "bits", "unnormalised"), ("BinaryAccuracy", "bits", "extreme"),
]


def _reduced(loss, truth, prediction, weights=None):
    """The reduced loss and its gradient with respect to the prediction."""
    prediction = tf.constant(prediction)
    with tf.GradientTape() as tape:
        tape.watch(prediction)
        value = loss(tf.constant(truth), prediction, sample_weight=weights)
    assert value.dtype == "float64"
    return value, tape.gradient(value, prediction)


def _inputs(truth, prediction):
    """The targets and predictions of these names, as fields of a case."""
    y_true, y_pred = SAMPLE_TRUTHS[truth], SAMPLE_PREDICTIONS[prediction]
    return y_true, y_pred, {"truth": truth, "prediction": prediction,
                            "y_true_shape": list(y_true.shape), "y_true": y_true, "y_pred": y_pred}


def _loss_case(name, args, truth_name, prediction_name):
    truth, prediction, fields = _inputs(truth_name, prediction_name)
    make = getattr(keras.losses, name)
    mean, gradient = _reduced(make(**args), truth, prediction)
    weighted, weighted_gradient = _reduced(make(**args), truth, prediction, WEIGHTS)
    per_sample = make(reduction="none", **args)(tf.constant(truth), tf.constant(prediction))
    assert np.isclose(np.mean(per_sample.numpy()), float(mean), rtol=1e-14)
    assert np.isclose(np.sum(per_sample.numpy() * WEIGHTS) / N, float(weighted), rtol=1e-14)
    return {"loss": make().name.removesuffix("_loss"), "args": args} | fields | {
        "per_sample": per_sample, "mean": mean, "gradient": gradient,
        "weighted": weighted, "weighted_gradient": weighted_gradient}


def _metric_case(name, truth_name, prediction_name):
    truth, prediction, fields = _inputs(truth_name, prediction_name)
    plain, weighted = getattr(keras.metrics, name)(), getattr(keras.metrics, name)()
    plain.update_state(truth, prediction)
    weighted.update_state(truth, prediction, sample_weight=WEIGHTS)
    per_sample = getattr(keras.metrics, plain.name)(tf.constant(truth), tf.constant(prediction))
    return {"metric": plain.name} | fields | {"per_sample": tf.cast(per_sample, tf.float64),
            "mean": plain.result(), "weighted": weighted.result()}


def losses():
    """The set `losses`."""
    compute_in("float64")
    return {"samples": N, "classes": CLASSES, "sample_weight": WEIGHTS,
            "losses": [_loss_case(*case) for case in CASES],
            "metrics": [_metric_case(*case) for case in METRICS]}


# ---- reductions of values with more than one axis -------------------------------------------------

CUBE = (4, 3, 5)
RAW = hashed.array(CUBE, 61, 0.45, 0.5)
PREDICTIONS = {"logits": hashed.array(CUBE, 60, 4.0), "raw": RAW,
               "tiny": 1e-8 * hashed.array(CUBE, 60, 4.0)}
SOFT_CUBE = hashed.array(CUBE, 62, 0.5, 0.5)
TRUTHS = {"soft": SOFT_CUBE,
          # TensorFlow's gradient is right only for targets that add up to 1
          "shares": SOFT_CUBE / SOFT_CUBE.sum(axis=1, keepdims=True),
          "bits": hashed.labels(60, 63, 2).reshape(CUBE).astype(float),
          "ids": hashed.labels(12, 64, 5).reshape(4, 3),
          "ids_from_minus_1": hashed.labels(12, 64, 5).reshape(4, 3) - 1,
          "ids_of_axis_1": hashed.labels(20, 64, 3).reshape(4, 5)}

REDUCED = [
    ("CategoricalCrossentropy", {}, "soft", "raw"),
    ("CategoricalCrossentropy", {"axis": 1}, "soft", "raw"),
    ("CategoricalCrossentropy", {"axis": 1, "from_logits": True}, "shares", "logits"),
    ("CategoricalCrossentropy", {"label_smoothing": 0.2}, "soft", "raw"),
    ("SparseCategoricalCrossentropy", {}, "ids", "raw"),
    ("SparseCategoricalCrossentropy", {"axis": 1}, "ids_of_axis_1", "raw"),
    ("SparseCategoricalCrossentropy", {"axis": 1, "from_logits": True, "ignore_class": 1},
     "ids_of_axis_1", "logits"),
    ("SparseCategoricalCrossentropy", {"ignore_class": 2}, "ids", "raw"),
    ("SparseCategoricalCrossentropy", {"ignore_class": -1, "from_logits": True},
     "ids_from_minus_1", "logits"),
    ("BinaryCrossentropy", {"axis": 1}, "bits", "raw"),
    ("BinaryCrossentropy", {"axis": -2, "from_logits": True, "label_smoothing": 0.3}, "bits",
     "logits"),
    ("MeanSquaredError", {}, "soft", "logits"), ("MeanAbsoluteError", {}, "soft", "logits"),
    ("Huber", {"delta": 0.7}, "soft", "logits"), ("KLDivergence", {}, "soft", "raw"),
    ("Hinge", {}, "bits", "logits"), ("CosineSimilarity", {}, "soft", "logits"),
    ("CosineSimilarity", {"axis": 1}, "soft", "logits"),
    ("CosineSimilarity", {}, "soft", "tiny"),
]


def _reduction_case(name, args, truth, prediction):
    known, source = dict(args), tf.constant(PREDICTIONS[prediction])
    moved = name.startswith("Sparse") and known.pop("axis", -1) == 1
    y = tf.constant(TRUTHS[truth])
    size = (4, 5) if args.get("axis") in (1, -2) else (4, 3)
    rows, every = hashed.array((4,), 65, 1.0, 1.0), hashed.array(size, 66, 1.0, 1.0)

    def run(reduction, weight=None):
        with tf.GradientTape() as tape:
            tape.watch(source)
            # the sparse loss has no axis argument: it takes classes along the last axis
            p = tf.transpose(source, [0, 2, 1]) if moved else source
            loss = getattr(keras.losses, name)(reduction=reduction, **known)
            value = loss(y, p, sample_weight=weight)
        return value, tape.gradient(value, source)

    case = {"loss": keras.losses.get(name).name.removesuffix("_loss"), "args": args,
            "truth": truth, "prediction": prediction, "values_shape": list(size),
            "none": run("none")[0]}
    for key, weight in [("plain", None), ("rows", rows[:, None]), ("every", every)]:
        for reduction in ["sum_over_batch_size", "sum", "mean_with_sample_weight"]:
            # Left out: here Keras divides by the sum of the row weights, however many values a row has.
            if key == "rows" and reduction == "mean_with_sample_weight":
                continue
            case[f"{key}_{reduction}"] = run(reduction, weight)[0]
    case["gradient"] = run("mean_with_sample_weight", every)[1]
    return case


def reductions():
    """The set `loss_reductions`."""
    compute_in("float64")
    return {"shape": list(CUBE), "cases": [_reduction_case(*case) for case in REDUCED]}


SETS = {"losses": (losses, """
losses[i]: a loss with args, by Keras's names, for the targets `truth` (numbers y_true, class ids when
y_true_shape is {samples}) and the predictions `prediction` (numbers y_pred of {samples, classes}):
logits, large_logits, probabilities (rows that sum to 1), unnormalised (rows that do not) or extreme
(rows certain of class 0, where clipping at 1e-7 decides the loss). per_sample: the values; mean: their
mean, Keras's default reduction; gradient: of the mean with respect to y_pred; weighted and
weighted_gradient: the same with sample_weight (sum of the weighted values / samples).

metrics[i]: per_sample, mean, and weighted (divided by the sum of the weights). Of equal predictions
(`tied`) the first counts as the largest. All in float64."""),
        "loss_reductions": (reductions, """
cases[i]: a loss with args, by Keras's names (axes count from 0). The predictions have `shape`: logits =
array(60, 4), raw = array(61, 0.45, 0.5), tiny = logits / 1e8. The targets: soft = array(62, 0.5, 0.5);
shares = soft divided by its sums along axis 1; bits = labels(63, 2); ids = labels(64, 5) of {4, 3};
ids_from_minus_1 = ids - 1; ids_of_axis_1 = labels(64, 3) of {4, 5}, for classes along axis 1. none: the
unreduced values, of values_shape. plain_*, rows_* and every_*: reduced as the name says without weights,
with the weights array({4, 1}, 65, 1, 1), and with array(values_shape, 66, 1, 1). gradient: of
every_mean_with_sample_weight with respect to the predictions. All in float64.""")}
