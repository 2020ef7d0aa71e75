"""The set `constraints`: keras.constraints alone, and in layers that are trained."""

import keras
import numpy as np

import hashed
from layer_cases import compute_in

ALONE = [
    ("MaxNorm", {}), ("MaxNorm", {"max_value": 0.5, "axis": 1}),
    ("MaxNorm", {"max_value": 0.7, "axis": [0, 1]}), ("UnitNorm", {}), ("UnitNorm", {"axis": 1}),
    ("MinMaxNorm", {}), ("MinMaxNorm", {"min_value": 0.8, "max_value": 1.1, "rate": 0.3, "axis": 1}),
    ("MinMaxNorm", {"min_value": 2.0, "max_value": 3.0}), ("NonNeg", {}),
]
# layer, shape of x, arguments, constraints of its weights by name
TRAINED = [
    ("Dense", (6, 5), {"units": 4}, {"kernel": ("MaxNorm", {"max_value": 0.4}), "bias": ("NonNeg", {})}),
    ("Conv2D", (2, 5, 5, 3), {"filters": 2, "kernel_size": 2},
     {"kernel": ("UnitNorm", {"axis": [0, 1, 2]}), "bias": ("MaxNorm", {"max_value": 0.1})}),
    ("Embedding", (4, 3), {"input_dim": 6, "output_dim": 3},
     {"embeddings": ("MinMaxNorm", {"max_value": 0.6, "axis": 1})}),
    ("SeparableConv2D", (2, 5, 5, 3), {"filters": 2, "kernel_size": 2},
     {"depthwise": ("NonNeg", {}), "pointwise": ("MaxNorm", {"max_value": 0.5, "axis": 2}), "bias": ("NonNeg", {})}),
    ("BatchNormalization", (6, 5), {}, {"gamma": ("NonNeg", {}), "beta": ("UnitNorm", {})}),
    ("PReLU", (6, 5), {}, {"alpha": ("NonNeg", {})}),
]
STEPS, SHAPE, SALT = 3, (4, 5), 7


def _constraint(name, args):
    args = {k: tuple(v) if isinstance(v, list) else v for k, v in args.items()}
    return getattr(keras.constraints, name)(**args)


def _alone(name, args):
    value = _constraint(name, args)(keras.ops.convert_to_tensor(hashed.array(SHAPE, SALT)))
    return {"constraint": name, "args": args, "value": np.asarray(value)}


def _trained(name, shape, args, constraints):
    """The weights after SGD steps on the mean square of the output, from hashed weights."""
    given = {key + "_constraint": _constraint(*c) for key, c in constraints.items()}
    layer = getattr(keras.layers, name)(**args, **given)
    x = hashed.labels(shape[0] * shape[1], SALT, 6).reshape(shape) if name == "Embedding" \
        else hashed.array(shape, SALT)
    layer.build(shape)
    layer.set_weights([hashed.array(w.shape, SALT + 1 + k) for k, w in enumerate(layer.weights)])
    model = keras.Sequential([keras.Input(shape[1:], dtype="int32" if name == "Embedding" else "float64"), layer])
    model.compile(optimizer=keras.optimizers.SGD(0.5), loss="mse")
    y = np.zeros((shape[0], *model.output_shape[1:]))
    for _ in range(STEPS):
        model.train_on_batch(x, y)
    return {"layer": name, "shape": list(shape), "args": args,
            "constraints": {key: {"class_name": c[0], "config": c[1]} for key, c in constraints.items()},
            "weights": [w.numpy() for w in layer.weights]}


def constraints():
    """The set `constraints`."""
    compute_in("float64")
    return {"shape": list(SHAPE), "salt": SALT, "steps": STEPS, "learning_rate": 0.5,
            "alone": [_alone(*case) for case in ALONE], "trained": [_trained(*case) for case in TRAINED]}


SETS = {"constraints": (constraints, """
alone[i]: the constraint's value for array(shape, salt), in float64. trained[i]: a layer whose weight k (from 0)
starts as array(size, salt + 1 + k), with constraints by the names of its weights; weights[k]: its values after
`steps` steps of SGD (learning_rate) on the mean square of its output for x = array(size, salt), or for
the ids labels(size, salt, 6). Axes count as in Keras, from 0.""")}
