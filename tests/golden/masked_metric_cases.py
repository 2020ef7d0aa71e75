"""The set `masked_metrics`: metrics of predictions with a mask, over batches of different lengths."""

import keras
import numpy as np

import hashed
from nets import compute_in

ROWS, STEPS, FEATURES, SALT = 4, (5, 3), 2, 700
MASKED = [[[3, 4], [1], [], [0, 1, 2, 3, 4]], [[2], [0, 2], [0, 1, 2], []]]  # steps of each row, by batch
WEIGHTS = [[1.0, 2.0, 0.5, 3.0], [0.25, 1.0, 4.0, 1.5]]
L, M = keras.layers, keras.metrics

# name, Keras's metric, kind of targets. Predictions: floats {rows, steps, 2}; ids and one_hot: softmax over 3 classes;
# bits: sigmoid, {rows, steps, 1}.
CASES = [
    ("mae", "mae", "floats"), ("mse", "mse", "floats"),
    ("cosine_similarity", keras.losses.cosine_similarity, "floats"), ("huber", keras.losses.huber, "floats"),
    ("a function", lambda y, p: keras.ops.max(keras.ops.abs(y - p), axis=-1), "floats"),
    ("a function of each number", lambda y, p: keras.ops.abs(y - p), "floats"),
    ("accuracy", "accuracy", "one_hot"), ("categorical_accuracy", "categorical_accuracy", "one_hot"),
    ("top_k_categorical_accuracy", M.TopKCategoricalAccuracy(k=2), "one_hot"),
    ("categorical_crossentropy", "categorical_crossentropy", "one_hot"),
    ("kl_divergence", "kl_divergence", "one_hot"),
    ("accuracy", "accuracy", "ids"), ("sparse_categorical_accuracy", "sparse_categorical_accuracy", "ids"),
    ("sparse_top_k_categorical_accuracy", M.SparseTopKCategoricalAccuracy(k=2), "ids"),
    ("sparse_categorical_crossentropy", "sparse_categorical_crossentropy", "ids"),
    ("accuracy", "accuracy", "bits"), ("binary_accuracy", "binary_accuracy", "bits"),
    ("binary_crossentropy", "binary_crossentropy", "bits"), ("hinge", keras.losses.hinge, "bits"),
    # Keras's own ignore the mask: the weights of their updates are those that the mask leaves
    ("precision", M.Precision, "bits"), ("recall", M.Recall, "bits"), ("auc", M.AUC, "bits"),
]


def _inputs(batch):
    x = hashed.array((ROWS, STEPS[batch], FEATURES), SALT + batch)
    for row, steps in enumerate(MASKED[batch]):
        x[row, steps] = 0
    return x


def _targets(kind, batch):
    shape = (ROWS, STEPS[batch])
    salt = SALT + 10 + batch
    if kind == "floats":
        return hashed.array(shape + (2,), salt)
    classes = 2 if kind == "bits" else 3
    ids = hashed.labels(int(np.prod(shape)), salt, classes).reshape(shape)
    return {"ids": ids, "one_hot": np.eye(3)[ids], "bits": ids[..., None].astype(float)}[kind]


def _model(kind):
    units, activation = {"floats": (2, None), "bits": (1, "sigmoid")}.get(kind, (3, "softmax"))
    model = keras.Sequential([keras.Input((None, FEATURES)), L.Masking(), L.Dense(units, activation=activation)])
    model.set_weights([hashed.array(w.shape, SALT + 20 + k, 2, k) for k, w in enumerate(model.weights)])
    return model


def _of_weights(make, model, kind, weighted):
    """The result of a metric whose updates get the weights that the mask leaves."""
    metric = make()
    for batch in range(2):
        p = model(_inputs(batch))
        kept = p._keras_mask.numpy().astype(float)
        weight = kept * np.array(WEIGHTS[batch])[:, None] if weighted else kept
        metric.update_state(_targets(kind, batch), p, sample_weight=weight[..., None])
    return np.asarray(metric.result(), "float64")


def _case(name, metric, kind):
    compute_in("float32" if "top_k" in name else "float64")  # TensorFlow has no other top_k
    model = _model(kind)
    if isinstance(metric, type):
        return {"name": name, "kind": kind, "plain": _of_weights(metric, model, kind, False),
                "weighted": _of_weights(metric, model, kind, True)}
    copy = metric if not isinstance(metric, M.Metric) else type(metric)(k=metric.k)
    model.compile(loss="mse", metrics=[metric], weighted_metrics=[copy], run_eagerly=True)
    for batch in range(2):
        weight = np.array(WEIGHTS[batch])[:, None]
        model.compute_metrics(None, _targets(kind, batch), model(_inputs(batch)), weight)
    found = [m for m in model.metrics if m.name == "compile_metrics"][0].result()
    plain, weighted = list(found.values())
    return {"name": name, "kind": kind, "plain": np.asarray(plain, "float64"),
            "weighted": np.asarray(weighted, "float64")}


def _facts():
    """A model of ones: loss, mae, weighted mse, in test_on_batch and in fit."""
    compute_in("float64")
    x = hashed.array((3, 4, 2), SALT + 30, 2)
    x[0, 2:], x[1, :1], x[2, 1:3] = 0, 0, 0
    found = {}
    for weighted in (False, True):
        model = keras.Sequential([keras.Input((4, 2)), L.Masking(), L.Dense(1, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.0), loss="mse", metrics=["mae"], weighted_metrics=["mse"])
        y, weight = hashed.array((3, 4, 1), SALT + 31, 3), np.array([[1.0], [2.0], [0.5]]) if weighted else None
        tested = model.test_on_batch(x, y, sample_weight=weight)
        fitted = model.fit(x, y, sample_weight=weight, batch_size=2, shuffle=False, verbose=0).history
        found["weighted" if weighted else "plain"] = {
            "tested": np.array(tested, "float64"),
            "fitted": np.array([fitted[k][0] for k in ("mae", "mse")], "float64")}
    return found


def masked_metrics():
    """The set `masked_metrics`."""
    return {"salt": SALT, "steps": STEPS, "masked": MASKED, "weights": WEIGHTS,
            "cases": [_case(*case) for case in CASES], "model": _facts()}


SETS = {"masked_metrics": (masked_metrics, """
cases[i]: `plain` and `weighted` are the results of a metric after two batches (b = 0 and 1) of 4 rows and steps[b + 1]
steps. x is array({4, steps, 2}, salt + b) with 0 at the steps masked[b + 1][row] (counted from 0); the model is Masking
and Dense, whose weight k (from 0) is array(size, salt + 20 + k, 2, k). The targets are hashed with salt + 10 + b:
array({4, steps, 2}) for `floats`, labels for the others. weights: of the rows, by batch.
model: Masking and Dense(1) of ones, x = array({3, 4, 2}, salt + 30, 2) with 0 in steps 2-3, 0 and 1-2 of its rows, y =
array({3, 4, 1}, salt + 31, 3), without and with the weights 1, 2, 0.5. tested: loss, mae and mse (among the
weighted_metrics) of test_on_batch; fitted: mae and mse of a fit of two batches, without learning.""")}
