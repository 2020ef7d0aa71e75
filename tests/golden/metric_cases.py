"""Golden set of metrics in float32 (Keras's top-k takes no other): three updates, plain and weighted."""

import keras
import numpy as np

import hashed
from nets import compute_in

ROWS, CLASSES, UPDATES = 7, 6, 3

# metric, args, kind of targets: ids, one_hot, bits (each with predictions {rows, classes}), column
CASES = [
    ("TopKCategoricalAccuracy", {"k": 2}, "one_hot"),
    ("TopKCategoricalAccuracy", {}, "one_hot"),
    ("SparseTopKCategoricalAccuracy", {"k": 3}, "ids"),
    ("Precision", {}, "bits"), ("Recall", {}, "bits"),
    ("Precision", {"thresholds": 0.3}, "bits"), ("Recall", {"thresholds": 0.3}, "bits"),
    ("Precision", {"thresholds": [0.2, 0.5, 0.8]}, "bits"),
    ("Recall", {"thresholds": [0.2, 0.5, 0.8]}, "bits"),
    ("Precision", {"top_k": 2}, "bits"), ("Recall", {"top_k": 2}, "bits"),
    ("Precision", {"class_id": 1}, "bits"), ("Recall", {"class_id": 4, "thresholds": 0.4}, "bits"),
    ("Precision", {"top_k": 3, "class_id": 2, "thresholds": 0.1}, "bits"),
    ("AUC", {}, "column"), ("AUC", {"num_thresholds": 11}, "column"),
    ("AUC", {"curve": "PR"}, "column"), ("AUC", {"curve": "PR", "num_thresholds": 5}, "column"),
    ("AUC", {"summation_method": "minoring", "num_thresholds": 20}, "column"),
    ("AUC", {"summation_method": "majoring", "curve": "PR", "num_thresholds": 20}, "column"),
    ("AUC", {"thresholds": [0.1, 0.4, 0.7]}, "column"),
    ("AUC", {"from_logits": True}, "column"),
    ("MeanSquaredError", {}, "bits"), ("MeanAbsoluteError", {}, "bits"),
    ("BinaryAccuracy", {"threshold": 0.3}, "bits"), ("CategoricalAccuracy", {}, "one_hot"),
]


def _batch(kind, args, update):
    """Targets, predictions and weights of an update."""
    width = 1 if kind == "column" else CLASSES
    p = hashed.array((ROWS, width), 300 + update, 0.5, 0.5)
    if args.get("from_logits"):
        p = 6 * p - 3
    ids = hashed.labels(ROWS, 310 + update, CLASSES)
    bits = hashed.labels(ROWS * width, 320 + update, 2).reshape(ROWS, width).astype(float)
    truth = {"ids": ids, "one_hot": np.eye(CLASSES)[ids]}.get(kind, bits)
    return truth, p, hashed.array((ROWS,), 330 + update, 1.0, 1.0)


def _case(name, args, kind):
    make = getattr(keras.metrics, name)
    plain, weighted, results = make(**args), make(**args), []
    for update in range(UPDATES):
        truth, p, weight = _batch(kind, args, update)
        p = p.astype("float32")
        plain.update_state(truth, p)
        weighted.update_state(truth, p, sample_weight=weight)
        results.append(plain.result())
    return {"metric": name, "args": args, "kind": kind,
            "plain": [np.array(r, dtype=float) for r in results],
            "weighted": np.array(weighted.result(), dtype=float)}


def metrics():
    """Set 9."""
    compute_in("float32")
    return {"rows": ROWS, "classes": CLASSES, "updates": UPDATES,
            "cases": [_case(*case) for case in CASES]}


SETS = {"metrics": (metrics, """
Update u (from 0): predictions array({rows, width}, 300 + u, 0.5, 0.5) (from_logits: 6 p - 3) with width
1 for kind column, else classes; targets ids = labels(rows, 310 + u, classes), one_hot of them, or
bits/column = labels(rows * width, 320 + u, 2); weights array(rows, 330 + u, 1, 1). plain[u]: the result
after update u; weighted: after all, with weights. A list where thresholds is one.""")}
