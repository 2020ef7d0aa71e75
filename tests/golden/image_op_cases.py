"""The set `image_ops`: tf.image.resize and Keras's affine_transform."""

import math

import keras
import numpy as np
import tensorflow as tf

import hashed

SALT = 11
# shape of the images, size of the result
SIZES = [((2, 3, 4, 2), (6, 8)), ((1, 5, 7, 3), (3, 2)), ((1, 4, 6, 1), (9, 5)), ((1, 1, 5, 2), (3, 5)),
         ((1, 12, 9, 1), (5, 4)), ((1, 7, 2, 1), (7, 11))]
METHODS = ["nearest", "bilinear", "area", "lanczos3", "lanczos5"]
MODES = ["constant", "nearest", "reflect", "wrap"]


def _resize(shape, size, interpolation, antialias):
    x = hashed.array(shape, SALT).astype("float32")
    y = tf.image.resize(x, size, method=interpolation, antialias=antialias)
    return {"shape": list(shape), "size": list(size), "interpolation": interpolation, "antialias": antialias,
            "value": np.asarray(y)}


def _turn(angle, h, w, zoom=1.0):
    """The six numbers of a turn about the middle, which no point leaves exactly between two pixels."""
    c, s, x, y = math.cos(angle) * zoom, math.sin(angle) * zoom, (w - 1) / 2, (h - 1) / 2
    return [c, -s, x - c * x + s * y, s, c, y - s * x - c * y]


def _transform(shape, transforms, interpolation, mode, fill):
    x = hashed.array(shape, SALT).astype("float32")
    y = keras.ops.image.affine_transform(x, np.array(transforms, "float32"), interpolation=interpolation,
                                         fill_mode=mode, fill_value=fill, data_format="channels_last")
    return {"shape": list(shape), "transforms": transforms, "interpolation": interpolation, "fill_mode": mode,
            "fill_value": fill, "value": np.asarray(y)}


def image_ops():
    """The set `image_ops`."""
    resized = [_resize(*s, m, False) for s in SIZES for m in METHODS]
    resized += [_resize(*s, m, True) for s in SIZES for m in ("bilinear", "bicubic", *METHODS[3:])]
    turns = [[*_turn(0.41, 5, 6), 0.0, 0.0], [*_turn(-2.2, 5, 6, 1.7), 0.0, 0.0]]
    tilted = [1.07, 0.13, -0.83, 0.21, 0.94, 0.37, 0.011, -0.023]
    transformed = []
    for mode in MODES:
        for interpolation in ("nearest", "bilinear"):
            transformed.append(_transform((2, 5, 6, 2), turns, interpolation, mode, 0.25))
            transformed.append(_transform((1, 4, 7, 1), [tilted], interpolation, mode, -0.5))
    return {"salt": SALT, "resized": resized, "transformed": transformed}


SETS = {"image_ops": (image_ops, """
resized[i].value: tf.image.resize of array(shape, salt). transformed[i].value: keras.ops.image.affine_transform of it.
All in float32; bicubic with antialias only, because TensorFlow's other bicubic rounds its weights to a table.""")}
