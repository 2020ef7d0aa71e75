"""The set `masking`: sequences with Embedding(mask_zero=True) and Masking through layers and losses."""

import keras
import numpy as np

import hashed
from layer_cases import compute_in

IDS, SALT = [[1, 2, 0, 0], [3, 0, 4, 0], [2, 1, 3, 4]], 60
L = keras.layers


def _steps(inputs):
    """The mask of the steps, as {batch, steps, 1}."""
    return keras.ops.expand_dims(keras.ops.not_equal(inputs[0], 0), -1)


def _head(name, inputs):
    """The rest of a model after the masked sequence."""
    heads = {
        "Dense": lambda h: L.Dense(2)(L.Dropout(0.5)(h)),
        "GlobalAveragePooling1D": lambda h: L.Dense(2)(L.GlobalAveragePooling1D()(h)),
        "BatchNormalization": lambda h: L.Dense(2)(L.BatchNormalization()(h)),
        "Conv1D": lambda h: L.Conv1D(2, 1)(h),
        # Keras aligns a mask with the last axes, so that of the steps needs an axis for the features
        "Softmax": lambda h: L.Dense(2)(L.Softmax(axis=1)(h, mask=_steps(inputs))),
        "SoftmaxFeatures": lambda h: L.Dense(2)(L.Softmax()(h, mask=_steps(inputs))),
        "SoftmaxBoth": lambda h: L.Dense(2)(L.Softmax(axis=[1, 2])(h, mask=_steps(inputs))),
        "Add": lambda h: L.Dense(2)(L.Add()([h, L.Masking(0.5)(inputs[1])])),
        "Multiply": lambda h: L.Dense(2)(L.Multiply()([h, inputs[1]])),
        "Concatenate": lambda h: L.Dense(2)(L.Concatenate(axis=1)([h, L.Masking(0.5)(inputs[1])])),
    }
    return heads[name]


def _case(name):
    ids, other = keras.Input((4,), dtype="int32"), keras.Input((4, 3), dtype="float64")
    h = L.Embedding(5, 3, mask_zero=True)(ids)
    model = keras.Model([ids, other], _head(name, [ids, other])(h))
    # negative variances would make NaN, hence the offset for moving statistics
    model.set_weights([hashed.array(w.shape, SALT + k) + (2 if "moving" in w.name else 0)
                       for k, w in enumerate(model.weights)])
    data = hashed.array((3, 4, 3), SALT + 20)
    data[1, 2:] = 0.5
    x = [np.array(IDS, "int32"), data]
    y = hashed.array(model(x).shape, SALT + 30)
    weight = np.array([[1.0], [2.0], [0.5]])  # a mask and weights of one axis do not meet in Keras
    case = {"name": name, "shape": list(y.shape), "output": model(x).numpy()}
    model.compile(loss="mse", optimizer=keras.optimizers.SGD(0.0))
    case["loss"] = np.asarray(model.test_on_batch(x, y), "float64")
    case["weighted"] = np.asarray(model.test_on_batch(x, y, sample_weight=weight), "float64")
    if name == "BatchNormalization":
        case["training"] = model(x, training=True).numpy()
    return case


def masking():
    """The set `masking`."""
    compute_in("float64")
    return {"ids": IDS, "salt": SALT, "cases": [_case(name) for name in (
        "Dense", "GlobalAveragePooling1D", "BatchNormalization", "Conv1D", "Add", "Multiply", "Concatenate",
        "Softmax", "SoftmaxFeatures", "SoftmaxBoth")]}


SETS = {"masking": (masking, """
cases[i]: a model of two inputs, ids {3, 4} and array({3, 4, 3}, salt + 20) whose row 2 is 0.5 from step 3 on
(counted from 1), with an Embedding(5, 3, mask_zero) and the layer `name`: see masking_cases.py.
Its weight k (from 0) is array(size, salt + k), 2 more for moving statistics. output: in inference, training: in training;
loss: mse for y = array(shape, salt + 30); weighted: with the weights 1, 2 and 0.5 of the rows.""")}
