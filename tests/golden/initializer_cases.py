"""Golden set of initializers: mean, deviation and support of their values for given kernel shapes.

Our random numbers cannot equal those of Keras, but their distribution must. The numbers of this set
come from Keras's formulas; _check compares each of them with a sample that Keras draws.
"""

import math

import keras
import numpy as np

from nets import compute_in

SHAPES = [(3, 3, 16, 32), (100, 50)]
# Standard deviation of a standard normal distribution that is cut off at -2 and 2.
TRUNCATED = 0.87962566103423978

FIXED = [
    ("zeros", {}), ("ones", {}), ("constant", {"value": 0.25}),
    ("random_normal", {}), ("random_normal", {"mean": 1.0, "stddev": 0.5}),
    ("random_uniform", {}), ("random_uniform", {"minval": 0.0, "maxval": 2.0}),
    ("truncated_normal", {}), ("truncated_normal", {"mean": 1.0, "stddev": 0.5}),
    ("glorot_uniform", {}), ("glorot_normal", {}), ("he_uniform", {}), ("he_normal", {}),
    ("lecun_uniform", {}), ("lecun_normal", {}), ("variance_scaling", {}),
    ("variance_scaling", {"scale": 2.0, "mode": "fan_avg", "distribution": "uniform"}),
    ("variance_scaling", {"scale": 0.5, "mode": "fan_out",
                          "distribution": "untruncated_normal"}),
    ("orthogonal", {}), ("orthogonal", {"gain": 2.0}),
    ("identity", {}), ("identity", {"gain": 2.0}),
]

# name: scale, mode, distribution of variance_scaling
SCALING = {
    "glorot_uniform": (1.0, "fan_avg", "uniform"), "glorot_normal": (1.0, "fan_avg", "normal"),
    "he_uniform": (2.0, "fan_in", "uniform"), "he_normal": (2.0, "fan_in", "normal"),
    "lecun_uniform": (1.0, "fan_in", "uniform"), "lecun_normal": (1.0, "fan_in", "normal"),
}


def fans(shape):
    """Fan-in and fan-out of a kernel: the window times channels in, channels out."""
    window = math.prod(shape[:-2])
    return window * shape[-2], window * shape[-1]


def _uniform(low, high):
    return {"mean": (low + high) / 2, "std": (high - low) / math.sqrt(12), "min": low, "max": high}


def _truncated(mean, stddev):
    """stddev is the standard deviation before the cut at mean +- 2 stddev."""
    return {"mean": mean, "std": stddev * TRUNCATED, "min": mean - 2 * stddev,
            "max": mean + 2 * stddev}


def _scaled(shape, scale, mode, distribution):
    fan_in, fan_out = fans(shape)
    fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[mode]
    std = math.sqrt(scale / fan)
    if distribution == "uniform":
        return _uniform(-math.sqrt(3) * std, math.sqrt(3) * std)
    if distribution == "untruncated_normal":
        return {"mean": 0.0, "std": std}
    return _truncated(0.0, std / TRUNCATED)


def _orthogonal(shape, gain):
    """The rows or the columns, whichever are fewer, are orthogonal vectors of length gain."""
    rows, columns = math.prod(shape[:-1]), shape[-1]
    return {"std": gain / math.sqrt(max(rows, columns)), "orthogonal": True, "gain": gain}


def expected(name, args, shape):
    """Mean, standard deviation and support of an initializer's values, as far as they are determined."""
    if name in ("zeros", "ones", "constant"):
        value = {"zeros": 0.0, "ones": 1.0}.get(name, args.get("value", 0.0))
        return {"mean": value, "std": 0.0, "min": value, "max": value}
    if name == "random_normal":
        return {"mean": args.get("mean", 0.0), "std": args.get("stddev", 0.05)}
    if name == "random_uniform":
        return _uniform(args.get("minval", -0.05), args.get("maxval", 0.05))
    if name == "truncated_normal":
        return _truncated(args.get("mean", 0.0), args.get("stddev", 0.05))
    if name == "orthogonal":
        return _orthogonal(shape, args.get("gain", 1.0))
    if name == "identity":
        return {"identity": True, "gain": args.get("gain", 1.0)}
    default = (args.get("scale", 1.0), args.get("mode", "fan_in"),
               args.get("distribution", "truncated_normal"))
    return _scaled(shape, *SCALING.get(name, default))


def _check(values, want):
    """Asserts that a sample of Keras has these moments, to six standard errors, and this support."""
    error = 6 / math.sqrt(values.size)
    if "identity" in want:
        assert np.array_equal(values, want["gain"] * np.eye(*values.shape))
        return
    if "orthogonal" in want:
        flat = values.reshape(-1, values.shape[-1])
        assert np.allclose(flat.T @ flat, want["gain"]**2 * np.eye(flat.shape[1]), atol=1e-10)
    assert abs(values.std() - want["std"]) <= error * want["std"]
    if "mean" in want:
        assert abs(values.mean() - want["mean"]) <= error * want["std"] + 1e-15
    if "min" in want:
        assert want["min"] <= values.min() and values.max() <= want["max"]
        reach = max(abs(values.max() - want["max"]), abs(values.min() - want["min"]))
        assert reach <= 0.05 * (want["max"] - want["min"])


def _case(name, args, shape):
    class_name = "".join(part.capitalize() for part in name.split("_"))
    want = expected(name, args, shape)
    _check(np.asarray(getattr(keras.initializers, class_name)(**args)(shape)), want)
    numbers = {k: np.float64(v) if isinstance(v, float) else v for k, v in want.items()}
    return {"initializer": name, "args": args, "shape": list(shape)} | numbers


def initializers():
    """The set `initializers`."""
    compute_in("float64")
    keras.utils.set_random_seed(1)
    return {"cases": [_case(name, args, shape) for name, args in FIXED for shape in SHAPES
                      if name != "identity" or len(shape) == 2]}


SETS = {"initializers": (initializers, """
cases[i]: an initializer with args, by Keras's names, for a kernel of `shape`. mean and std (standard
deviation) describe the values, min and max the interval that contains all of them (normal
distributions have none). orthogonal: the kernel, as a matrix {product of the first axes, last axis},
has orthogonal columns of length gain, and std is the root mean square. identity: gain times the unit
matrix.""")}
