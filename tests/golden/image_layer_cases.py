"""The set `image_layers`: what Keras's layers that change the colors and parts of images return in training.

A range of one point, [0.3, 0.3], leaves nothing to chance.
"""

import keras
import numpy as np
import scipy.ndimage
import tensorflow as tf
from keras.src.backend.tensorflow import image as tf_image

import hashed

SALT = 80
SIZE = [3, 5, 4, 3]
UNIT = {"value_range": [0, 1]}
FIRST = {"data_format": "channels_first"}


def pixels(shape, most):
    """Whole numbers from 0 to 255 as float32, or these divided by 255."""
    x = np.floor(hashed.unit(int(np.prod(shape)), SALT) * 256).astype("float32").reshape(shape)
    return x if most == 255 else x / np.float32(255)


OPTIONS = {
    "AutoContrast": [{}, UNIT, FIRST, {"value_range": [-255, 510]}],
    "Equalization": [{}, UNIT, FIRST, {"bins": 7}, {"bins": 300, "value_range": [-255, 255]}],
    "ContrastLimitedAdaptiveHistogramEqualization": [
        {}, {"tile_grid_size": [2, 2], "clip_limit": 40}, {"tile_grid_size": [1, 3], "clip_limit": 0, **UNIT},
        {"tile_grid_size": [3, 2], "value_range": [-255, 510]}, FIRST],
    "RandomInvert": [{"factor": [1, 1]}, {"factor": [1, 1], "value_range": [0, 1]}, {"factor": [0, 0]}],
    "RandomPosterization": [{"factor": [3, 3]}, {"factor": 1}, {"factor": [8, 8]},
                            {"factor": [5, 5], "value_range": [0, 1]}, {"factor": [2, 2], "value_range": [-255, 255]}],
    "RandomColorDegeneration": [{"factor": [0.3, 0.3]}, {"factor": [-0.6, -0.6], "value_range": [0, 1]},
                                {"factor": [1, 1], "data_format": "channels_first"}],
    "RandomSaturation": [{"factor": [0.3, 0.3]}, {"factor": [0.8, 0.8], "value_range": [0, 1]}, {"factor": [0.9, 0.9]},
                         {"factor": [-0.5, -0.5]}, {"factor": [0.4, 0.4], "data_format": "channels_first"}],
    "RandomColorJitter": [
        {}, {"brightness_factor": [0.1, 0.1], "saturation_factor": [0.3, 0.3]},
        {"value_range": [0, 1], "brightness_factor": [-0.2, -0.2], "saturation_factor": [0.7, 0.7],
         "hue_factor": [1, 1], "contrast_factor": [0, 0]}],
    "RandomErasing": [
        {"factor": [1, 1], "scale": [1, 1], "fill_value": 300}, {"factor": [0, 0]}, {"scale": 0},
        {"factor": [1, 1], "scale": [1, 1], "fill_value": [0.5, 0.25, 2], "value_range": [0, 1]}],
    "RandomShear": [{}, FIRST],
    "RandomGaussianBlur": [
        {"factor": [1, 1], "sigma": [0.7, 0.7]}, {"factor": [1, 1], "kernel_size": 5, "sigma": [1, 1], **FIRST},
        {"factor": [1, 1], "kernel_size": [3, 3], "sigma": [0.4, 0.4], "value_range": [0, 1]}, {"sigma": [0, 0]},
        {"factor": [1, 1], "kernel_size": 7, "sigma": [1, 1], "value_range": [-255, 100]}],
    "RandomPerspective": [{"factor": [0, 0]}, {"factor": [1, 1], "scale": 0}, {"factor": 0, **FIRST}],
    "RandomElasticTransform": [{"factor": [0, 0], "value_range": [0, 1]}, {"factor": [1, 1], "scale": 0}],
    "RandomHue": [{"factor": [1, 1]}, {"factor": 0, "value_range": [0, 1]},
                  {"factor": [1, 1], "value_range": [-255, 255], "data_format": "channels_first"}],
    "RandomSharpness": [{"factor": [0, 0]}, {"factor": [0.9, 0.9]}, {"factor": [0.3, 0.3], "value_range": [0, 1]},
                        {"factor": [0.2, 0.2], "data_format": "channels_first"}],
}
# Factors of three images for the layers that multiply what they draw.
GIVEN = {"RandomHue": [0.13, -0.3, 0.45], "RandomColorDegeneration": [0.1, -1, 0.7], "RandomSharpness": [0.25, 0, 1]}


def _case(layer, options, size):
    most = options.get("value_range", [0, 255])[1]
    shape = [size[0], size[3], size[1], size[2]] if "data_format" in options else size
    x = pixels(shape, most) if most in (1, 255) else pixels(shape, 255)
    made = getattr(keras.layers, layer)(**options)
    y = made(x, training=True)
    assert np.allclose(made(x[0], training=True), made(x[:1], training=True)[0])  # one image is a batch of it
    return {"layer": layer, "options": options, "size": shape, "unit": most == 1, "output": np.asarray(y, "float32")}


def _given(name, numbers):
    layer = getattr(keras.layers, name)(0.5)
    shape = (-1, 1, 1, 1) if name == "RandomColorDegeneration" else (-1,)
    drawn = {"factor": np.reshape(np.float32(numbers), shape)}
    return {"layer": name, "size": SIZE, "numbers": numbers,
            "output": np.asarray(layer.transform_images(pixels(SIZE, 255), drawn), "float32")}


# Of three images: first and last of the boxes across, then down.
BOXES = [[0, 1.5, 2], [2.5, 4, 2], [1, 0.25, 0], [2, 5, 3]]


def _erased(options):
    layer = keras.layers.RandomErasing(**options)
    shape = [SIZE[0], SIZE[3], SIZE[1], SIZE[2]] if "data_format" in options else SIZE
    mask = layer._generate_batch_mask(shape, [np.float32(b) for b in BOXES])
    drawn = {"batch_masks": mask, "apply_erasing": np.array([True, True, True]), "fill_value": np.float32(9)}
    return {"options": options, "size": shape,
            "output": np.asarray(layer.transform_images(pixels(shape, 255), drawn), "float32")}


SHEARS = [[0.3, -0.5, 1], [0, 0.25, -0.7]]  # of three images: across, then down


def _sheared(options):
    layer = keras.layers.RandomShear(**options)
    shape = [SIZE[0], SIZE[3], SIZE[1], SIZE[2]] if "data_format" in options else SIZE
    drawn = {"shear_factor": np.float32(SHEARS).T}
    return {"options": options, "size": shape,
            "output": np.asarray(layer.transform_images(pixels(shape, 255), drawn), "float32")}


# Factors of the corners of three images; each corner's x, then y.
TILTS = [[[1.2, 0.7], [0.8, 1], [1, 1.3], [1.1, 0.9]], [[1, 1], [1, 1], [1, 1], [0.6, 0.55]],
         [[0.5, 1.5], [1.25, 0.75], [0.9, 0.8], [1.3, 1.4]]]


def _tilted(options):
    layer = keras.layers.RandomPerspective(**options)
    shape = [SIZE[0], SIZE[3], SIZE[1], SIZE[2]] if "data_format" in options else SIZE
    width, height = SIZE[2] - 1, SIZE[1] - 1
    corners = np.float32([[0, 0], [width, 0], [0, height], [width, height]])[None].repeat(3, 0)
    drawn = {"apply_perspective": np.array([True, True, True]), "start_points": corners,
             "end_points": corners * np.float32(TILTS), "input_shape": shape}
    return {"options": options, "size": shape,
            "output": np.asarray(layer.transform_images(pixels(shape, 255), drawn), "float32")}


BENT = [2, 21, 22, 1]  # with this scale, the kernel is as long on TensorFlow as it is on JAX
NOISE, BEND = 81, 0.97


def _bent(options):
    layer = keras.layers.RandomElasticTransform(**options)
    shape = [BENT[0], BENT[3], BENT[1], BENT[2]] if "data_format" in options else BENT
    noise = (4 * hashed.array(BENT[:3], NOISE)).astype("float32")
    drawn = {"apply_transform": np.array([True, True]), "distortion_factor": np.float32(BEND), "seed": 1}
    kept = tf.random.stateless_normal, tf_image.map_coordinates
    tf.random.stateless_normal = lambda shape, **_: tf.constant(noise)
    mode = layer.fill_mode
    if mode in ("reflect", "mirror"):  # TensorFlow takes wrong pixels outside with the one, and refuses the other
        layer.fill_mode = "reflect"
        tf_image.map_coordinates = lambda x, places, order, **_: scipy.ndimage.map_coordinates(
            x, places, order=order, mode=mode).astype("float32")
    y = layer._transform_images(tf.constant(pixels(shape, 255)), drawn, layer.interpolation)
    tf.random.stateless_normal, tf_image.map_coordinates = kept
    return {"options": options, "size": shape, "output": np.asarray(y, "float32")}


PAIRS = [[1, 4], [2, 6], [3, 10], [7, 9], [9, 9]]  # of layers that draw nothing from a range of one point


def _augmented(pair):
    layer = keras.layers.RandAugment(factor=(0.3, 0.3))
    x = pixels(SIZE, 255)
    drawn = layer.get_random_transformation(x)
    drawn["layer_idxes"] = np.int32(pair)
    return {"size": SIZE, "layers": pair, "output": np.asarray(layer.transform_images(x, drawn), "float32")}


# AugMix's layers, those that draw nothing from a range of one point, by their places in AUGMENT_LAYERS_ALL; 11: none.
CHAINS = [[1, 11, 7], [3, 5, 2], [8, 6, 11]]
ALL = ["random_shear", "random_translation", "random_rotation", "random_posterization", "solarization",
       "auto_contrast", "equalization", "random_brightness", "random_color_degeneration", "random_contrast",
       "random_sharpness"]
CHAIN_WEIGHTS, OWN_WEIGHT = [0.2, 0.5, 0.3], 0.4


def _mixed_chains(options):
    layer = keras.layers.AugMix(factor=(0.3, 0.3), **options)
    x = pixels(SIZE, options.get("value_range", [0, 255])[1])
    chains = [[{"layer_name": ALL[i], "transformation": getattr(layer, ALL[i]).get_random_transformation(x)}
               for i in chain if i < len(layer._augment_layers)] for chain in CHAINS]
    drawn = {"chain_mixing_weights": np.float32(CHAIN_WEIGHTS), "weight_sample": np.float32(OWN_WEIGHT),
             "chain_transforms": chains}
    return {"options": options, "size": SIZE, "unit": "value_range" in options,
            "output": np.asarray(layer.transform_images(x, drawn), "float32")}


ORDER, WEIGHTS = [2, 0, 1], [0.25, 1, 0.6]


def _mixed(name, options):
    layer = getattr(keras.layers, name)(**options)
    shape = [SIZE[0], SIZE[3], SIZE[1], SIZE[2]] if "data_format" in options else SIZE
    drawn = {"permutation_order": np.int32(ORDER), "mix_weight": np.float32(WEIGHTS)}
    if name == "CutMix":
        drawn["batch_masks"], drawn["mix_weight"] = layer._generate_batch_mask(shape, [np.float32(b) for b in BOXES])
    return {"layer": name, "options": options, "size": shape,
            "output": np.asarray(layer.transform_images(pixels(shape, 255), drawn), "float32"),
            "labels": np.asarray(layer.transform_labels(np.eye(3, dtype="float32"), drawn), "float32")}


def image_layers():
    """The set `image_layers`."""
    return {"salt": SALT, "cases": [_case(layer, options, SIZE) for layer, list_ in OPTIONS.items()
                                    for options in list_],
            "given": [_given(name, numbers) for name, numbers in GIVEN.items()],
            "augmented": [_augmented(pair) for pair in PAIRS],
            "chains": CHAINS, "chain_weights": CHAIN_WEIGHTS, "own_weight": OWN_WEIGHT,
            "mixed_chains": [_mixed_chains(o) for o in ({}, UNIT, {"all_ops": False, "interpolation": "nearest"})],
            "order": ORDER, "weights": WEIGHTS,
            "mixed": [_mixed("MixUp", {}), _mixed("CutMix", {}), _mixed("CutMix", FIRST)],
            "tilts": TILTS, "tilted": [_tilted({"fill_value": 7}), _tilted({"interpolation": "nearest"}), _tilted(FIRST)],
            "bend": BEND, "noise": {"salt": NOISE, "scale": 4, "shape": BENT[:3]},
            "bent": [_bent({"fill_mode": mode, "fill_value": 9}) for mode in
                     ("reflect", "mirror", "wrap", "constant", "nearest")] + [
                         _bent({"interpolation": "nearest", "fill_mode": "constant"}),
                         _bent({"fill_mode": "wrap", "value_range": [50, 200], **FIRST})],
            "boxes": BOXES, "erased": [_erased({}), _erased(FIRST)], "shears": SHEARS,
            "sheared": [_sheared({"fill_mode": mode, "fill_value": 5}) for mode in
                        ("reflect", "wrap", "constant", "nearest")] + [_sheared({"interpolation": "nearest"}),
                                                                      _sheared(FIRST)]}


SETS = {"image_layers": (image_layers, """
Images are floor(unit * 256) of hash.lua with this salt, float32, divided by 255 where `unit` is true. cases: what the
layer with these options returns for images of this size in training; given: what it makes of them with these numbers in place of drawn ones.
erased: RandomErasing with the value 9 in the boxes, first and last across, then down; sheared: RandomShear by the
factors in shears, across, then down; tilted: RandomPerspective with the
factors in tilts; bent: RandomElasticTransform with the scale bend and this noise; augmented: RandAugment with the factor {0.3, 0.3} by the layers, from 0, of the
pair; mixed_chains: AugMix with this factor by the layers in chains, from 0, with the weights of the chains and of the
image itself; mixed: images and one-hot labels mixed with those in the order, MixUp by the weights, CutMix in the boxes.""")}
