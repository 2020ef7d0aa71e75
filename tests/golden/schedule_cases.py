"""Golden set of schedules: the learning rate at steps 0 to 25, in float64."""

import keras
import numpy as np

from nets import compute_in
from optimizer_cases import make_schedule

STEPS = 26

CASES = [
    ("ExponentialDecay", {"initial_learning_rate": 0.1, "decay_steps": 4, "decay_rate": 0.5}),
    ("ExponentialDecay", {"initial_learning_rate": 0.1, "decay_steps": 4, "decay_rate": 0.96,
                          "staircase": True}),
    ("PiecewiseConstantDecay", {"boundaries": [3, 10, 20], "values": [0.3, 0.2, 0.1, 0.05]}),
    ("PiecewiseConstantDecay", {"boundaries": [7], "values": [0.1, 0.7]}),
    ("PolynomialDecay", {"initial_learning_rate": 0.1, "decay_steps": 10}),
    ("PolynomialDecay", {"initial_learning_rate": 0.1, "decay_steps": 20,
                         "end_learning_rate": 0.01, "power": 0.5}),
    ("PolynomialDecay", {"initial_learning_rate": 0.1, "decay_steps": 6, "power": 2.0,
                         "cycle": True}),
    ("InverseTimeDecay", {"initial_learning_rate": 0.1, "decay_steps": 4, "decay_rate": 0.5}),
    ("InverseTimeDecay", {"initial_learning_rate": 0.1, "decay_steps": 1.5, "decay_rate": 0.5,
                          "staircase": True}),
    ("CosineDecay", {"initial_learning_rate": 0.1, "decay_steps": 20}),
    ("CosineDecay", {"initial_learning_rate": 0.1, "decay_steps": 12, "alpha": 0.2}),
    ("CosineDecay", {"initial_learning_rate": 0.01, "decay_steps": 12, "alpha": 0.1,
                     "warmup_target": 0.1, "warmup_steps": 6}),
    ("CosineDecay", {"initial_learning_rate": 0.01, "decay_steps": 12, "warmup_target": 0.1}),
    ("CosineDecayRestarts", {"initial_learning_rate": 0.1, "first_decay_steps": 4}),
    ("CosineDecayRestarts", {"initial_learning_rate": 0.1, "first_decay_steps": 5, "t_mul": 1.0,
                             "m_mul": 0.8, "alpha": 0.1}),
    ("CosineDecayRestarts", {"initial_learning_rate": 0.1, "first_decay_steps": 3, "t_mul": 1.3,
                             "m_mul": 0.9, "alpha": 0.05}),
]


def _case(name, args):
    # An optimizer passes its step as an int64 tensor.
    schedule = make_schedule(name, args)
    rates = [schedule(keras.ops.convert_to_tensor(step, "int64")) for step in range(STEPS)]
    assert all(rate.dtype == "float64" for rate in rates)
    return {"schedule": name, "args": args, "rates": np.array([float(rate) for rate in rates])}


def schedules():
    """The set `schedules`."""
    compute_in("float64")
    return {"cases": [_case(*case) for case in CASES]}


SETS = {"schedules": (schedules, """
cases[i]: a schedule with args, by Keras's names; arguments that are not given have Keras's defaults.
rates[s + 1]: the rate at step s (from 0), in float64.""")}
