"""The set `preprocessing`: Keras's layers that prepare images, with fixed values for what is random."""

import keras
import numpy as np

from augmentation_cases import pixels

L = keras.layers


def _fixed(name, size, options):
    """A layer that draws nothing."""
    layer = getattr(L, name)(**options)
    return {"layer": name, "size": size, "options": options,
            "output": np.asarray(layer(pixels(size)), "float32")}


def _fixed_cases():
    cases = [_fixed("Rescaling", [2, 3, 4, 3], o) for o in (
        {"scale": 0.5}, {"scale": 2.0, "offset": -3.0}, {"scale": [1.0, 2.0, 0.5], "offset": [0.0, 1.0, 2.0]})]
    cases += [_fixed("CenterCrop", [2, 7, 6, 3], {"height": h, "width": w}) for h, w in (
        (7, 6), (4, 3), (3, 4), (1, 1), (9, 4), (4, 12), (14, 14))]
    for options in ({}, {"interpolation": "nearest"}, {"interpolation": "bicubic"}, {"antialias": True},
                    {"interpolation": "lanczos3"}, {"interpolation": "lanczos5"},
                    {"interpolation": "bicubic", "antialias": True}, {"interpolation": "lanczos3", "antialias": True},
                    {"interpolation": "lanczos5", "antialias": True, "pad_to_aspect_ratio": True},
                    {"crop_to_aspect_ratio": True}, {"pad_to_aspect_ratio": True},
                    {"pad_to_aspect_ratio": True, "fill_value": 7.5},
                    {"crop_to_aspect_ratio": True, "interpolation": "nearest"}):
        cases += [_fixed("Resizing", [2, 7, 6, 3], {"height": h, "width": w, **options})
                  for h, w in ((4, 3), (3, 9), (13, 8), (7, 6))]
    cases += [_fixed("UpSampling2D", [2, 3, 4, 2], {"size": [3, 2], "interpolation": way})
              for way in ("bicubic", "lanczos3", "lanczos5")]
    return cases


def _normalizations():
    x, cases = pixels([6, 3, 4]), []
    for options in ({}, {"axis": [1, 2]}, {"axis": None}, {"axis": 1, "invert": True},
                    {"mean": 3.0, "variance": 16.0}, {"mean": [1.0, 2.0, 3.0, 4.0], "variance": [1.0, 4.0, 0.0, 2.0]}):
        layer = L.Normalization(**options)
        if "mean" not in options:
            layer.adapt(x)
        ours = dict(options)
        if "axis" in ours:  # ours are counted from 1
            axis = ours["axis"]
            ours["axis"] = [] if axis is None else axis + 1 if isinstance(axis, int) else [a + 1 for a in axis]
        cases.append({"options": ours, "output": layer(x).numpy()})
    return cases


def _random(name, options, values, transformation, training=True):
    layer = getattr(L, name)(**options)
    x = pixels([3, 6, 5, 3])
    y = layer.transform_images(keras.ops.convert_to_tensor(x), transformation(layer), training=training)
    return {"layer": name, "options": options, "values": values, "output": np.asarray(y, "float32")}


def _column(values):
    return np.array(values, "float32").reshape(-1, 1)


def _random_cases():
    factors, deltas = [0.3, 1.0, 1.7], [-40.0, 0.0, 90.5]
    cases = [
        _random("RandomContrast", {"factor": 0.9, **o}, [factors],
                lambda _: {"contrast_factor": np.array(factors, "float32").reshape(3, 1, 1, 1)})
        for o in ({}, {"value_range": [20, 100]})]
    cases += [
        _random("RandomBrightness", {"factor": 0.9, **o}, [deltas],
                lambda _: {"rgb_delta": np.array(deltas, "float32").reshape(3, 1, 1, 1)})
        for o in ({}, {"value_range": [0, 128]})]
    for mode in ("horizontal", "vertical"):
        chosen = [True, False, True]
        cases.append(_random("RandomFlip", {"mode": mode}, [chosen, chosen],
                             lambda _: {"flips": np.array(chosen).reshape(3, 1, 1, 1)}))
    down, right, angles = [1.25, -3.0, 0.4], [-0.5, 2.0, 7.3], [30.0, -100.0, 180.5]
    rows, columns = [0.6, 1.0, 1.9], [1.3, 1.0, 0.7]
    for mode in ("reflect", "wrap", "constant", "nearest"):
        for way in ("bilinear", "nearest"):
            how = {"fill_mode": mode, "interpolation": way, "fill_value": 9.5}
            cases.append(_random("RandomTranslation", {"height_factor": 0.2, "width_factor": 0.2, **how}, [down, right],
                                 lambda _: {"translations": np.concatenate([_column(right), _column(down)], 1)}))
            cases.append(_random("RandomZoom", {"height_factor": 0.2, "width_factor": 0.2, **how}, [rows, columns],
                                 lambda _: {"height_zoom": _column(rows), "width_zoom": _column(columns)}))

            def rotation(layer):
                zeros, ones = np.zeros(3, "float32"), np.ones(3, "float32")
                return {"rotation_matrix": layer._compute_affine_matrix(
                    center_x=0.5, center_y=0.5, angle=keras.ops.convert_to_tensor(np.array(angles, "float32")),
                    translate_x=zeros, translate_y=zeros, scale=ones, shear_x=zeros, shear_y=zeros, height=6, width=5)}
            cases.append(_random("RandomRotation", {"factor": 0.2, **how}, [angles], rotation))
    return cases


def preprocessing():
    """The set `preprocessing`."""
    keras.config.set_floatx("float32")
    keras.mixed_precision.set_dtype_policy("float32")
    return {"fixed": _fixed_cases(), "normalizations": _normalizations(), "random": _random_cases()}


SETS = {"preprocessing": (preprocessing, """
Images are those of the set augmentation, of the given size. fixed: layers that draw nothing. normalizations: Normalization
of an image {6, 3, 4}, adapted to it unless mean is given; axes from 1. random: what a layer makes in training of images
{3, 6, 5, 3} if it draws the values: a list for each argument of our layer's transform.""")}
