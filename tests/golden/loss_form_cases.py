"""Golden set of losses whose targets or values have other forms than one number a prediction: float64."""

import keras
import numpy as np
import tensorflow as tf

import hashed
from nets import compute_in

IMAGES = hashed.labels(3 * 4 * 5, 70, 2).reshape(3, 4, 5).astype(float)
P_IMAGES = hashed.array((3, 4, 5), 71, 0.5, 0.5)
IDS = np.array([0, 1, 0, 2, 1, 0])
UNIT = hashed.array((6, 4), 72, 1.0)
UNIT /= np.sqrt((UNIT ** 2).sum(axis=1, keepdims=True))
LONELY = np.array([0, 1, 2, 3, 4, 4])  # only two rows have a partner
CTC_LOGITS = hashed.array((4, 7, 5), 73, 3.0)
# Repeats, one label, the longest label that 7 steps can hold, and no label at all.
CTC_LABELS = np.array([[1, 1, 2, 0], [4, 0, 0, 0], [1, 2, 3, 4], [0, 0, 0, 0]])

CASES = [
    ("Dice", {}, IMAGES, P_IMAGES), ("Dice", {"axis": (1, 2)}, IMAGES, P_IMAGES),
    ("Dice", {"axis": 1}, IMAGES, P_IMAGES),
    ("Tversky", {}, IMAGES, P_IMAGES),
    ("Tversky", {"alpha": 0.3, "beta": 0.7, "axis": (1, 2)}, IMAGES, P_IMAGES),
    ("Tversky", {"alpha": 0.9, "axis": -1}, IMAGES, P_IMAGES),
    ("Circle", {}, IDS, UNIT), ("Circle", {"gamma": 16.0, "margin": 0.2}, IDS, UNIT),
    ("Circle", {"remove_diagonal": False, "gamma": 4.0}, IDS, UNIT),
    ("Circle", {}, LONELY, UNIT),
    ("CTC", {}, CTC_LABELS, CTC_LOGITS),
    ("CategoricalFocalCrossentropy", {"axis": 1}, P_IMAGES, P_IMAGES),
    ("BinaryFocalCrossentropy", {"axis": 1, "gamma": 1.5}, IMAGES, P_IMAGES),
    ("CategoricalGeneralizedCrossEntropy", {"q": 0.7}, IDS, P_IMAGES.reshape(6, 10)),
    ("CategoricalHinge", {}, IMAGES, P_IMAGES),
]


def _case(name, args, truth, prediction):
    make = getattr(keras.losses, name)
    source = tf.constant(prediction)
    with tf.GradientTape() as tape:
        tape.watch(source)
        mean = make(**args)(tf.constant(truth), source)
    shown = {key: list(value) if isinstance(value, tuple) else value for key, value in args.items()}
    return {"loss": name, "args": shown, "y_true_shape": list(truth.shape), "y_true": truth,
            "y_pred_shape": list(prediction.shape), "y_pred": prediction,
            "none": np.reshape(make(reduction="none", **args)(tf.constant(truth), source), -1),
            "sum": make(reduction="sum", **args)(tf.constant(truth), source), "mean": mean,
            "gradient": tape.gradient(mean, source)}


def loss_forms():
    """The set `loss_forms`."""
    compute_in("float64")
    return {"cases": [_case(*case) for case in CASES]}


SETS = {"loss_forms": (loss_forms, """
cases[i]: a loss with args, by Keras's names (axes count from 0), for the targets y_true and the predictions
y_pred. none: the unreduced values, flat; sum and mean: reduced; gradient: of the mean with respect to y_pred.
All in float64, but CTC, which TensorFlow computes in float32.""")}
