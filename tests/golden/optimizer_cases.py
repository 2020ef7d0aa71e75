"""Golden set of optimizers: final values of two small tensors after ten steps, in float64.

Keras rounds Python floats to float32 in ops.cast and convert_to_tensor, whatever floatx is. Three
things prevent that: floats in the fields of optimizers and schedules become numpy's float64
(exact_fields), ops.cast is replaced by one that keeps float64 (for the 0.96 in Nadam's code), and
floatx is float64.
"""

from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras.src import ops

import hashed
from nets import compute_in

SHAPES = [(3, 4), (5,)]
VALUE_SALT, GRADIENT_SALT, STEPS = 40, 400, 10


def _schedule(name, **config):
    """A schedule as Keras and mgpu save it."""
    return {"class_name": name, "config": config}


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
    ("AdamW", {}),
    ("AdamW", {"learning_rate": 0.01, "weight_decay": 0.1, "amsgrad": True}),
    ("Adagrad", {}),
    ("Adagrad", {"learning_rate": 0.1, "initial_accumulator_value": 0.5, "epsilon": 1e-3}),
    ("Adagrad", {"learning_rate": 0.1, "initial_accumulator_value": 0.0}),
    ("Adadelta", {}),
    ("Adadelta", {"learning_rate": 1.0, "rho": 0.8, "epsilon": 1e-4}),
    ("Adamax", {}),
    ("Adamax", {"learning_rate": 0.01, "beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-4}),
    ("Nadam", {}),
    ("Nadam", {"learning_rate": 0.01, "beta_1": 0.8, "beta_2": 0.99, "epsilon": 1e-4}),
    ("RMSprop", {"learning_rate": 0.01, "weight_decay": 0.1, "clipnorm": 0.5}),
    ("Nadam", {"learning_rate": 0.01, "weight_decay": 0.1, "global_clipnorm": 0.5}),
    ("SGD", {"learning_rate": 0.1, "loss_scale_factor": 8.0}),
    ("SGD", {"learning_rate": 0.1, "loss_scale_factor": 8.0, "clipvalue": 0.05}),
    ("SGD", {"learning_rate": 0.1, "use_ema": True}),
    ("Adam", {"learning_rate": 0.01, "use_ema": True, "ema_momentum": 0.7}),
    ("Adam", {"learning_rate": 0.01, "use_ema": True, "ema_momentum": 0.7,
              "ema_overwrite_frequency": 3}),
    ("Nadam", {"learning_rate": 0.01, "use_ema": True, "ema_momentum": 0.5,
               "ema_overwrite_frequency": 1}),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.1, "learning_rate": _schedule(
        "ExponentialDecay", initial_learning_rate=0.1, decay_steps=3, decay_rate=0.5)}),
    ("AdamW", {"learning_rate": _schedule(
        "CosineDecay", initial_learning_rate=0.0, decay_steps=6, alpha=0.1, warmup_target=0.05,
        warmup_steps=3)}),
    ("Adamax", {"learning_rate": _schedule(
        "PiecewiseConstantDecay", boundaries=[2, 6], values=[0.05, 0.02, 0.01])}),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.1, "gradient_accumulation_steps": 2, "learning_rate": _schedule(
        "PiecewiseConstantDecay", boundaries=[2, 6], values=[0.05, 0.02, 0.01])}),
    ("Adam", {"learning_rate": 0.01, "gradient_accumulation_steps": 3, "clipnorm": 0.2, "use_ema": True,
              "ema_momentum": 0.7, "ema_overwrite_frequency": 2}),
    ("Adagrad", {"learning_rate": 0.1, "gradient_accumulation_steps": 4}),
    ("Nadam", {"learning_rate": 0.01, "gradient_accumulation_steps": 3, "loss_scale_factor": 8.0}),
    ("Lion", {}), ("Lion", {"learning_rate": 0.01, "beta_1": 0.7, "beta_2": 0.9, "weight_decay": 0.1}),
    ("Lamb", {}), ("Lamb", {"learning_rate": 0.1, "beta_1": 0.8, "epsilon": 1e-4, "weight_decay": 0.1}),
    ("Ftrl", {}), ("Ftrl", {"learning_rate": 0.1, "l1_regularization_strength": 0.05, "beta": 0.2,
                            "l2_regularization_strength": 0.1}),
    ("Ftrl", {"learning_rate": 0.05, "learning_rate_power": -0.7, "initial_accumulator_value": 0.3,
              "l2_shrinkage_regularization_strength": 0.1}),
    ("Muon", {}), ("Muon", {"learning_rate": 0.1, "nesterov": False, "rms_rate": None, "ns_steps": 2,
                            "adam_lr_ratio": 0.5, "weight_decay": 0.1, "adam_weight_decay": 0.05}),
    ("Muon", {"learning_rate": 0.02, "momentum": 0.8, "adam_beta_1": 0.8, "adam_beta_2": 0.9, "muon_a": 3.0}),
    ("Adafactor", {}), ("Adafactor", {"learning_rate": 0.3, "beta_2_decay": -0.6, "clip_threshold": 0.5,
                                      "relative_step": False, "weight_decay": 0.1}),
    ("Adafactor", {"learning_rate": _schedule(
        "PiecewiseConstantDecay", boundaries=[2, 6], values=[0.9, 0.5, 0.2])}),
    ("ScheduleFreeAdamW", {}),
    ("ScheduleFreeAdamW", {"learning_rate": 0.1, "beta_1": 0.8, "warmup_steps": 4, "weight_decay": 0.1}),
]


def _gradient(step, k):
    """The gradients shrink, so that amsgrad's largest second moment differs from the current one."""
    return hashed.array(SHAPES[k], GRADIENT_SALT + 2 * step + k, 1.0 / (1 + step))


def exact(value):
    """The value with Python's floats as numpy's float64, which Keras does not round to float32."""
    if isinstance(value, list):
        return [exact(item) for item in value]
    return np.float64(value) if isinstance(value, float) else value


def exact_fields(thing):
    """Applies `exact` to all fields of an optimizer or a schedule; returns it."""
    for field, value in vars(thing).items():
        if type(value) in (float, list) and not field.endswith("variables"):
            setattr(thing, field, exact(value))
    return thing


def make_schedule(name, args):
    """A schedule all of whose numbers are float64."""
    return exact_fields(getattr(keras.optimizers.schedules, name)(**args))


def _optimizer(name, args):
    """An optimizer all of whose numbers are float64."""
    args = dict(args)
    rate = args.get("learning_rate")
    if isinstance(rate, dict):
        args["learning_rate"] = make_schedule(rate["class_name"], rate["config"])
    return exact_fields(getattr(keras.optimizers, name)(**args))


def _subtract_from_copy(variable, amount):
    """Gives the variable a new tensor, so that who holds its old one keeps the old numbers."""
    variable._value = tf.Variable(variable._value - amount)


def _case(name, args):
    """The variables after the steps; with use_ema also after finalize_variable_values."""
    optimizer = _optimizer(name, args)
    if name == "ScheduleFreeAdamW":
        # Its step reads momentum.value after the assignment. With TensorFlow that is the variable itself,
        # which has changed by then; with JAX it is the old value, as in the paper.
        optimizer.assign_sub = _subtract_from_copy
    variables = [keras.Variable(hashed.array(shape, VALUE_SALT + k), dtype="float64")
                 for k, shape in enumerate(SHAPES)]
    for step in range(STEPS):
        optimizer.apply([_gradient(step, k) for k in range(len(SHAPES))], variables)
    assert variables[0].dtype == "float64"
    assert keras.ops.convert_to_tensor(optimizer.learning_rate).dtype == "float64"
    args = {key: False if value is None else value for key, value in args.items()}
    case = {"optimizer": name, "args": args, "final": [v.numpy() for v in variables]}
    if optimizer.use_ema:
        optimizer.finalize_variable_values(variables)
        case["finalized"] = [v.numpy() for v in variables]
    return case


def optimizers():
    """The set `optimizers`."""
    compute_in("float64")
    cast = ops.cast
    with mock.patch.object(ops, "cast", lambda x, dtype: cast(exact(x), dtype)):
        cases = [_case(*case) for case in CASES]
    return {"shapes": [list(s) for s in SHAPES], "steps": STEPS, "value_salt": VALUE_SALT,
            "gradient_salt": GRADIENT_SALT, "cases": cases}


SETS = {"optimizers": (optimizers, """
Variable k (from 0) starts as array(size, value_salt + k); its gradient in step s (from 0) is
array(size, gradient_salt + 2 s + k, 1 / (1 + s)). cases[i]: an optimizer with args, by Keras's names;
arguments that are not given have Keras's defaults. final[k]: the values of variable k after `steps` steps
in float64; finalized[k]: its values after finalize_variable_values, for optimizers with use_ema.""")}
