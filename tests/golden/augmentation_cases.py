"""The set `augmentation`: images after the transforms of Keras's ImageDataGenerator and of tf.image.

Needs scipy and Pillow, with which Keras transforms images.
"""

import numpy as np
import tensorflow as tf
from keras.src.legacy.preprocessing import image as legacy

import hashed

SALT = 70


def pixels(shape):
    """Whole numbers from 0 to 255 as float32."""
    return np.floor(hashed.unit(int(np.prod(shape)), SALT) * 256).astype("float32").reshape(shape)


AFFINE = [
    {"theta": 30}, {"theta": -77}, {"tx": 1.25, "ty": -0.6}, {"tx": -2, "ty": 3}, {"shear": 20},
    {"zx": 0.7, "zy": 1.6}, {"ty": 7.5}, {"flip_horizontal": True},
    {"theta": 12, "tx": 0.4, "ty": 1.1, "shear": -15, "zx": 1.2, "zy": 0.9,
     "flip_horizontal": True, "flip_vertical": True},
    {"theta": 200, "zx": 2.5, "zy": 2.5, "flip_vertical": True},
]
# Square, because Keras takes the number of rows for the columns' center and the other way round.
SIZES = [[6, 6, 3], [5, 5, 1], [4, 4, 4], [1, 1, 3], [7, 7, 3]]
SHIFTED = [[6, 5, 3], [1, 7, 3]]  # shifts and flips need no center


def _transform(case):
    x = pixels(case["size"])
    generator = legacy.ImageDataGenerator(fill_mode=case.get("fill_mode", "nearest"), cval=case.get("cval", 0),
                                          interpolation_order=case.get("order", 1))
    case["output"] = np.asarray(generator.apply_transform(x, case["parameters"]), "float32")
    return case


def _transforms():
    cases = []
    for k, parameters in enumerate(AFFINE):
        for m, mode in enumerate(("nearest", "reflect", "wrap", "constant")):
            size = SIZES[0] if m != k % 4 else SIZES[k % 5]
            cases.append({"size": size, "parameters": parameters, "fill_mode": mode, "cval": 9.5})
    cases += [{"size": s, "parameters": p, "fill_mode": m} for s in SHIFTED for p in (AFFINE[2], AFFINE[7])
              for m in ("nearest", "reflect")]
    cases += [{"size": SIZES[0], "parameters": p, "order": 0} for p in AFFINE[:2] + AFFINE[5:6]]
    cases += [{"size": s, "parameters": p} for s in SIZES for p in (
        {"channel_shift_intensity": 40.5}, {"channel_shift_intensity": -100, "flip_horizontal": True})]
    cases += [{"size": s, "parameters": {"brightness": b}} for s in SIZES[:4] for b in (0.0, 0.37, 1.0, 1.9)]
    return [_transform(c) for c in cases]


def _resizes():
    cases = []
    for size, to in (([6, 5, 3], [9, 4]), ([7, 8, 1], [3, 3]), ([4, 4, 4], [8, 12]), ([1, 1, 3], [3, 2]),
                     ([9, 2, 3], [1, 1]), ([5, 11, 3], [5, 4])):
        for method in ("bilinear", "nearest", "area", "bicubic", "lanczos3", "lanczos5"):
            for antialias in (False, True):
                if antialias and method in ("nearest", "area"):
                    continue  # makes no difference
                y = tf.image.resize(pixels(size), to, method=method, antialias=antialias)
                cases.append({"size": size, "to": to, "method": method, "antialias": antialias,
                              "output": y.numpy()})
    return cases


COLORS = {
    "brightness": (tf.image.adjust_brightness, (0.0, 63.0, -20.5)),
    "contrast": (tf.image.adjust_contrast, (0.2, 1.0, 1.8)),
    "saturation": (tf.image.adjust_saturation, (0.0, 0.5, 1.0, 3.0)),
    "hue": (tf.image.adjust_hue, (0.0, 0.1, -0.3, 0.5)),
}


def _colors():
    cases = []
    for name, (function, amounts) in COLORS.items():
        for amount in amounts:
            # tf.image clips nothing for floating images; its hue wants values from 0 to 1
            x = pixels([6, 5, 3]) / np.float32(255)
            scaled = amount / 255 if name == "brightness" else amount
            cases.append({"op": name, "amount": amount, "output": function(x, scaled).numpy() * 255})
    return cases


def _standardized():
    images = {"usual": pixels([6, 5, 3]), "one": pixels([1, 1, 1]), "flat": np.full((4, 4, 3), 7, "float32"),
              "dim": np.where(pixels([5, 5, 1]) > 200, 100.001, 100).astype("float32")}
    return {name: tf.image.per_image_standardization(x).numpy() for name, x in images.items()}


def _generator_norms():
    """ImageDataGenerator.standardize after fit, for its switches."""
    x = pixels([40, 2, 3, 3])
    cases = []
    for options in ({"featurewise_center": True}, {"featurewise_center": True, "featurewise_std_normalization": True},
                    {"samplewise_center": True}, {"samplewise_center": True, "samplewise_std_normalization": True},
                    {"rescale": 1 / 255, "featurewise_center": True, "samplewise_center": True},
                    {"featurewise_center": True, "zca_whitening": True, "zca_epsilon": 0.1}):
        generator = legacy.ImageDataGenerator(**options)
        generator.fit(x)
        cases.append({"options": options, "output": generator.standardize(x[3].copy()).astype("float32")})
    return cases


def augmentation():
    """The set `augmentation`."""
    return {"salt": SALT, "transforms": _transforms(), "resizes": _resizes(), "colors": _colors(),
            "standardized": _standardized(), "norms": _generator_norms()}


SETS = {"augmentation": (augmentation, """
Images are floor(unit * 256) of hash.lua with this salt, float32. transforms: ImageDataGenerator.apply_transform with
the parameters; resizes: tf.image.resize; colors: tf.image.adjust_OP of image / 255, times 255 again (brightness: amount /
255), of a {6, 5, 3} image; standardized: tf.image.per_image_standardization, see augmentation_cases.py for the images;
norms: row 4 of {40, 2, 3, 3} images after ImageDataGenerator.fit and standardize.""")}
