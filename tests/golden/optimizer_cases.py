"""Golden set of optimizers: final values of two small tensors after ten steps, in float64."""

import keras
import numpy as np

import hashed
from nets import compute_in

SHAPES = [(3, 4), (5,)]
VALUE_SALT, GRADIENT_SALT, STEPS = 40, 400, 10

CASES = [
    ("SGD", {"learning_rate": 0.1}),
    ("SGD", {}),
    ("SGD", {"learning_rate": 0.1, "momentum": 0.9}),
    ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    ("RMSprop", {}),
    ("RMSprop", {"learning_rate": 0.01}),
    ("RMSprop", {"learning_rate": 0.01, "rho": 0.7, "epsilon": 1e-3}),
    ("RMSprop", {"learning_rate": 0.01, "momentum": 0.9}),
    ("RMSprop", {"learning_rate": 0.01, "centered": True}),
    ("RMSprop", {"learning_rate": 0.01, "centered": True, "momentum": 0.5}),
    ("Adam", {}),
    ("Adam", {"learning_rate": 0.01}),
    ("Adam", {"learning_rate": 0.01, "beta_1": 0.8, "beta_2": 0.99, "epsilon": 1e-4}),
    ("Adam", {"learning_rate": 0.01, "amsgrad": True}),
    ("SGD", {"learning_rate": 0.1, "weight_decay": 0.1}),
    ("SGD", {"learning_rate": 0.1, "clipvalue": 0.3}),
    ("SGD", {"learning_rate": 0.1, "clipnorm": 0.5}),
    ("SGD", {"learning_rate": 0.1, "global_clipnorm": 0.5}),
]


def _gradient(step, k):
    """Shrinks over the steps, so that Adam's largest second moment (amsgrad) matters."""
    return hashed.array(SHAPES[k], GRADIENT_SALT + 2 * step + k, 1.0 / (1 + step))


def _optimizer(name, args):
    """An optimizer whose numbers are float64; Keras would round Python's to float32."""
    optimizer = getattr(keras.optimizers, name)(**args)
    for field, value in vars(optimizer).items():
        if type(value) is float:
            setattr(optimizer, field, np.float64(value))
    return optimizer


def _final(name, args):
    optimizer = _optimizer(name, args)
    variables = [keras.Variable(hashed.array(shape, VALUE_SALT + k))
                 for k, shape in enumerate(SHAPES)]
    for step in range(STEPS):
        optimizer.apply([_gradient(step, k) for k in range(len(SHAPES))], variables)
    assert optimizer.learning_rate.dtype == variables[0].dtype == "float64"
    return [v.numpy() for v in variables]


def optimizers():
    """Set 5."""
    compute_in("float64")
    return {"shapes": [list(s) for s in SHAPES], "steps": STEPS, "value_salt": VALUE_SALT,
            "gradient_salt": GRADIENT_SALT,
            "cases": [{"optimizer": name, "args": args, "final": _final(name, args)}
                      for name, args in CASES]}


SETS = {"optimizers": (optimizers, """
Tensor k (from 0) starts as array(size, value_salt + k); its gradient in step s (from 0) is
array(size, gradient_salt + 2 s + k, 1 / (1 + s)). cases[i]: optimizer, args by Keras's names;
final[k]: its values after `steps` steps, in float64. What args leaves out has Keras's default.""")}
