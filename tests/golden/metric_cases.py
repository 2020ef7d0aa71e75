"""Golden set of metrics: results after three updates, with and without sample weights.

Computed in float64, but for the TopK metrics, whose TensorFlow function accepts only float32.
"""

import keras
import numpy as np

import hashed
from nets import compute_in

ROWS, CLASSES, UPDATES = 7, 6, 3
LABEL_WEIGHTS = [0.5, 2.0, 1.0, 0.0, 1.5, 3.0]

# metric, args, kind of targets. ids, one_hot and bits go with predictions of {rows, classes}, column
# with {rows, 1}, flat with {rows}.
CASES = [
    ("TopKCategoricalAccuracy", {"k": 2}, "one_hot"),
    ("TopKCategoricalAccuracy", {}, "one_hot"),
    ("SparseTopKCategoricalAccuracy", {"k": 3}, "ids"),
    ("SparseTopKCategoricalAccuracy", {}, "ids"),
    ("Precision", {}, "bits"), ("Recall", {}, "bits"),
    ("Precision", {}, "flat"), ("Recall", {"thresholds": 0.6}, "column"),
    ("Precision", {"thresholds": 0.3}, "bits"), ("Recall", {"thresholds": 0.3}, "bits"),
    ("Precision", {"thresholds": [0.2, 0.5, 0.8]}, "bits"),
    ("Recall", {"thresholds": [0.2, 0.5, 0.8]}, "bits"),
    ("Precision", {"top_k": 2}, "bits"), ("Recall", {"top_k": 2}, "bits"),
    ("Precision", {"top_k": 6}, "bits"), ("Recall", {"top_k": 2}, "one_hot"),
    ("Precision", {"class_id": 1}, "bits"), ("Recall", {"class_id": 4, "thresholds": 0.4}, "bits"),
    ("Precision", {"top_k": 3, "class_id": 2, "thresholds": 0.1}, "bits"),
    ("AUC", {}, "column"), ("AUC", {}, "bits"), ("AUC", {}, "flat"),
    ("AUC", {"num_thresholds": 11}, "column"), ("AUC", {"num_thresholds": 2}, "column"),
    ("AUC", {"thresholds": [0.7, 0.1, 0.4]}, "column"),
    ("AUC", {"from_logits": True}, "column"),
    ("AUC", {"label_weights": LABEL_WEIGHTS}, "bits"),
    ("AUC", {"label_weights": LABEL_WEIGHTS, "thresholds": [0.2, 0.7]}, "bits"),
    ("MeanSquaredError", {}, "bits"), ("MeanAbsoluteError", {}, "bits"),
    ("BinaryAccuracy", {"threshold": 0.3}, "bits"), ("CategoricalAccuracy", {}, "one_hot"),
    ("SparseCategoricalAccuracy", {}, "ids"),
    ("Poisson", {}, "bits"), ("LogCoshError", {}, "bits"),
    ("RootMeanSquaredError", {}, "bits"), ("MeanAbsolutePercentageError", {}, "ones"),
    ("MeanSquaredLogarithmicError", {}, "bits"), ("CosineSimilarity", {}, "bits"),
    ("Hinge", {}, "bits"), ("SquaredHinge", {}, "bits"), ("CategoricalHinge", {}, "one_hot"),
    ("KLDivergence", {}, "bits"), ("BinaryCrossentropy", {"label_smoothing": 0.1}, "bits"),
    ("CategoricalCrossentropy", {"label_smoothing": 0.2}, "one_hot"),
    ("SparseCategoricalCrossentropy", {"ignore_class": 2}, "ids"),
    ("PearsonCorrelation", {}, "one_hot"), ("ConcordanceCorrelation", {}, "one_hot"),
    ("FBetaScore", {}, "one_hot"), ("FBetaScore", {"beta": 2.0, "threshold": 0.3}, "bits"),
    ("FBetaScore", {"average": "macro", "beta": 0.5}, "one_hot"),
    ("F1Score", {}, "bits"), ("F1Score", {"average": "micro", "threshold": 0.6}, "bits"),
    ("F1Score", {"average": "weighted"}, "bits"),
    ("R2Score", {}, "bits"), ("R2Score", {"class_aggregation": None}, "bits"),
    ("R2Score", {"class_aggregation": "variance_weighted_average", "num_regressors": 2}, "bits"),
    ("R2Score", {"num_regressors": 50}, "bits"),
    ("BinaryIoU", {"dtype": "float64"}, "column"),
    ("BinaryIoU", {"target_class_ids": [1], "threshold": 0.3, "dtype": "float64"}, "flat"),
    ("OneHotIoU", {"num_classes": CLASSES, "target_class_ids": [0, 2], "dtype": "float64"}, "one_hot"),
    ("OneHotMeanIoU", {"num_classes": CLASSES, "ignore_class": 1, "dtype": "float64"}, "one_hot"),
    ("MeanIoU", {"num_classes": CLASSES, "sparse_y_pred": False, "dtype": "float64"}, "ids"),
    ("IoU", {"num_classes": CLASSES, "target_class_ids": [1, 3], "sparse_y_pred": False,
             "ignore_class": 3, "dtype": "float64"}, "ids"),
]
for count in ["TruePositives", "FalsePositives", "FalseNegatives", "TrueNegatives"]:
    CASES += [(count, {}, "bits"), (count, {"thresholds": [0.2, 0.6]}, "column")]
for name, option in [("SensitivityAtSpecificity", "specificity"), ("PrecisionAtRecall", "recall"),
                     ("SpecificityAtSensitivity", "sensitivity"), ("RecallAtPrecision", "precision")]:
    CASES += [(name, {option: 0.5, "num_thresholds": 13}, "bits"),
              (name, {option: 0.7, "class_id": 2}, "bits"),
              (name, {option: 0.3, "num_thresholds": 1}, "column")]
for curve in ["ROC", "PR", "PRGAIN"]:
    for method in ["interpolation", "minoring", "majoring"]:
        CASES.append(("AUC", {"curve": curve, "summation_method": method, "num_thresholds": 20},
                      "column"))
    CASES += [
        ("AUC", {"curve": curve, "multi_label": True, "num_labels": CLASSES}, "bits"),
        ("AUC", {"curve": curve, "multi_label": True, "num_labels": CLASSES,
                 "label_weights": LABEL_WEIGHTS, "thresholds": [0.1, 0.2, 0.5]}, "bits")]


def _batch(kind, args, update):
    """Targets, predictions and weights of an update."""
    width = 1 if kind in ("column", "flat") else CLASSES
    p = hashed.array((ROWS, width), 300 + update, 0.5, 0.5)
    if args.get("from_logits"):
        p = 6 * p - 3
    ids = hashed.labels(ROWS, 310 + update, CLASSES)
    bits = hashed.labels(ROWS * width, 320 + update, 2).reshape(ROWS, width).astype(float)
    truth = {"ids": ids, "one_hot": np.eye(CLASSES)[ids], "ones": bits + 1}.get(kind, bits)
    if kind == "flat":
        p, truth = p[:, 0], truth[:, 0]
    return truth, p, hashed.array((ROWS,), 330 + update, 1.0, 1.0)


def _case(name, args, kind):
    make = getattr(keras.metrics, name)
    plain, weighted, results = make(**args), make(**args), []
    for update in range(UPDATES):
        truth, p, weight = _batch(kind, args, update)
        if "TopK" in name:  # in_top_k of TensorFlow takes float32 only
            p = p.astype("float32")
        plain.update_state(truth, p)
        weighted.update_state(truth, p, sample_weight=weight)
        results.append(np.array(plain.result()))  # which may be the variable itself
    if "IoU" not in name:  # which Keras computes in float32 in the end
        assert np.asarray(weighted.result()).dtype == "float64"
    args = {key: "none" if value is None else value for key, value in args.items() if key != "dtype"}
    return {"metric": name, "args": args, "kind": kind, "plain": results,
            "weighted": weighted.result()}


def metrics():
    """The set `metrics`."""
    compute_in("float64")
    return {"rows": ROWS, "classes": CLASSES, "updates": UPDATES,
            "cases": [_case(*case) for case in CASES]}


SETS = {"metrics": (metrics, """
Update u (from 0) gives a metric the predictions p = array(300 + u, 0.5, 0.5) of {rows, width}, or 6 p - 3
with from_logits; width is 1 for the kinds column and flat, else `classes`. The targets are
labels(rows, 310 + u, classes) for the kind ids, the same as one-hot rows for one_hot, and labels(rows *
width, 320 + u, 2) for bits, column and flat, plus 1 for ones. The sample weights are array(rows, 330 + u, 1, 1).
plain[u + 1]: the result after update u without weights; weighted: after all updates with weights. A
result is a list where the argument thresholds is a list, and where a score has one number a class. "none"
stands for None.""")}
