"""Golden summaries and predictions of the models that keras.applications has, or that are built here with Keras."""

import math

import keras
import numpy as np
from keras import applications
from keras.src.applications.convnext import ConvNeXt
from keras.src.utils.naming import to_snake_case

import hashed
from nets import compute_in

L = keras.layers
WEIGHT_SALT, IMAGE_SALT, ROWS = 100, 50, 2
LAYER_SCALE = "layer_scale/variable"  # a weight without a name of its own, also variable_1, ...; ours is called gamma
NOTE = """summaries[k]: the model `model` of mgpu.models with `options`: its name, params, trainable ones, number
of layers, and `hash`, h = (33 h + byte) mod 2^47 over the lines of all layers in Keras's order:
"name class shape" of its output and " weight shape" for each weight, "\\n" at the end; an automatic name is empty.

predictions[k]: `output` for array(50, 0.5, 0.5) of the shape {2, input}, computed in float64. Weight w (from 0, in the
order of the layers, the trainable ones of each first) is array(100 + w, scale, offset), rounded to float32: kernels
have the scale sqrt(6 / fan_in), where fan_in leaves out the last axis (of a depthwise kernel both last axes), times 0.5
for the last kernel; gamma 0.1, `gamma` (1); moving_variance 0.2, 1; all others 0.1, 0. part: which model of
vae_deconv.

preprocessing[k]: preprocess_input in `mode` of array(50, 127.5, 127.5), of the shape {2, 2, 3, 3} or, channels_first,
{2, 3, 2, 3}."""

SUMMARIES = [
    ("resnet50", applications.ResNet50, {}),
    ("resnet50", applications.ResNet50, {"include_top": False, "pooling": "max", "input_shape": [64, 96, 3]}),
    ("resnet101", applications.ResNet101, {"classes": 7}),
    ("resnet152", applications.ResNet152, {}),
    ("vgg16", applications.VGG16, {"input_shape": [64, 32, 1], "classes": 3}),
    ("vgg19", applications.VGG19, {"include_top": False}),
    ("mobilenet_v2", applications.MobileNetV2, {}),
    ("mobilenet_v2", applications.MobileNetV2, {"alpha": 0.35, "input_shape": [97, 64, 3]}),
    ("mobilenet_v2", applications.MobileNetV2, {"alpha": 1.4, "include_top": False, "pooling": "avg"}),
    ("densenet121", applications.DenseNet121, {}),
    ("densenet121", applications.DenseNet121, {"include_top": False, "pooling": "avg"}),
    ("efficientnet_b0", applications.EfficientNetB0, {}),
    ("efficientnet_b0", applications.EfficientNetB0, {"include_top": False, "input_shape": [97, 64, 3]}),
    ("convnext", applications.ConvNeXtTiny, {}),
    ("convnext", lambda variant, **options: applications.ConvNeXtBase(**options),
     {"variant": "base", "include_top": False, "pooling": "avg", "input_shape": [64, 32, 3]}),
]


# ---- models that keras.applications lacks -----------------------------------------------------------


def _basic_block(x, filters, stride):
    """Of torchvision's ResNet-18."""
    def conv3x3(x, stride):
        x = L.Conv2D(filters, 3, strides=stride, use_bias=False)(L.ZeroPadding2D(1)(x))
        return L.BatchNormalization(epsilon=1e-5)(x)

    shortcut = x
    if stride != 1 or x.shape[-1] != filters:
        shortcut = L.BatchNormalization(epsilon=1e-5)(L.Conv2D(filters, 1, strides=stride, use_bias=False)(x))
    x = conv3x3(L.ReLU()(conv3x3(x, stride)), 1)
    return L.ReLU()(L.Add()([shortcut, x]))


def resnet18(input_shape, classes):
    """ResNet-18 with the strides and paddings of torchvision.models.resnet18."""
    image = keras.Input(input_shape)
    x = L.Conv2D(64, 7, strides=2, use_bias=False)(L.ZeroPadding2D(3)(image))
    x = L.ReLU()(L.BatchNormalization(epsilon=1e-5)(x))
    x = L.MaxPooling2D(3, strides=2)(L.ZeroPadding2D(1)(x))
    for filters, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        x = _basic_block(x, filters, stride)
    x = L.GlobalAveragePooling2D()(x)
    return keras.Model(image, L.Dense(classes, activation="softmax")(x))


def unet(input_shape, classes, filters, depth, batch_normalization):
    """U-Net with "same" padding and transposed convolutions."""
    def convolutions(x, n):
        for _ in range(2):
            x = L.Conv2D(n, 3, padding="same", use_bias=not batch_normalization)(x)
            x = L.ReLU()(L.BatchNormalization()(x) if batch_normalization else x)
        return x

    image = keras.Input(input_shape)
    x, skips = image, []
    for level in range(depth):
        skips.append(convolutions(x, filters * 2**level))
        x = L.MaxPooling2D(2)(skips[-1])
    x = convolutions(x, filters * 2**depth)
    for level in reversed(range(depth)):
        x = L.Conv2DTranspose(filters * 2**level, 2, strides=2)(x)
        x = convolutions(L.Concatenate()([skips[level], x]), filters * 2**level)
    x = L.Conv2D(classes, 1)(x)
    return keras.Model(image, L.Softmax()(x) if classes > 1 else L.Activation("sigmoid")(x))


def encoder(input_shape, latent_dim, filters, units):
    """The mean of variational_autoencoder_deconv.py."""
    image = keras.Input(input_shape)
    x = L.Conv2D(input_shape[2], 2, padding="same", activation="relu")(image)
    x = L.Conv2D(filters, 2, strides=2, padding="same", activation="relu")(x)
    x = L.Conv2D(filters, 3, padding="same", activation="relu")(x)
    x = L.Conv2D(filters, 3, padding="same", activation="relu")(x)
    x = L.Dense(units, activation="relu")(L.Flatten()(x))
    return keras.Model(image, L.Dense(latent_dim)(x))


def decoder(input_shape, latent_dim, filters, units):
    """The generator of variational_autoencoder_deconv.py."""
    rows, columns, channels = input_shape
    latent = keras.Input((latent_dim,))
    x = L.Dense(units, activation="relu")(latent)
    x = L.Dense(filters * rows * columns // 4, activation="relu")(x)
    x = L.Reshape((rows // 2, columns // 2, filters))(x)
    x = L.Conv2DTranspose(filters, 3, padding="same", activation="relu")(x)
    x = L.Conv2DTranspose(filters, 3, padding="same", activation="relu")(x)
    x = L.Conv2DTranspose(filters, 3, strides=2, padding="valid", activation="relu")(x)
    return keras.Model(latent, L.Conv2D(channels, 2, activation="sigmoid")(x))


def cifar10_cnn(input_shape, classes):
    """The network of cifar10_cnn.py."""
    return keras.Sequential([
        keras.Input(input_shape),
        L.Conv2D(32, 3, padding="same", activation="relu"), L.Conv2D(32, 3, activation="relu"), L.MaxPooling2D(2),
        L.Conv2D(64, 3, padding="same", activation="relu"), L.Conv2D(64, 3, activation="relu"), L.MaxPooling2D(2),
        L.Flatten(), L.Dense(512, activation="relu"), L.Dense(classes, activation="softmax")])


VAE = {"input_shape": [12, 8, 2], "latent_dim": 3, "filters": 4, "units": 8}
PREDICTIONS = [
    ("resnet50", applications.ResNet50, {"input_shape": [32, 32, 3], "classes": 10}, {"gamma": 0.6}),
    ("resnet18", resnet18, {"input_shape": [32, 48, 3], "classes": 10}, {"gamma": 0.7}),
    ("vgg16", applications.VGG16, {"include_top": False, "pooling": "avg", "input_shape": [32, 32, 3]}, {}),
    ("mobilenet_v2", applications.MobileNetV2, {"alpha": 0.35, "input_shape": [37, 64, 3], "classes": 10},
     {"gamma": 0.9}),
    ("densenet121", applications.DenseNet121, {"input_shape": [32, 32, 3], "classes": 10}, {"gamma": 0.9}),
    ("convnext", ConvNeXt,
     {"depths": [1, 2, 1, 1], "projection_dims": [8, 12, 16, 24], "input_shape": [64, 32, 3], "classes": 10}, {}),
    ("convnext", ConvNeXt,
     {"depths": [1, 1, 1, 1], "projection_dims": [4, 8, 8, 12], "input_shape": [32, 64, 3], "include_top": False,
      "include_preprocessing": False}, {}),
    ("unet", unet, {"input_shape": [8, 16, 2], "classes": 3, "filters": 4, "depth": 2, "batch_normalization": True},
     {"gamma": 1.0}),
    ("unet", unet, {"input_shape": [16, 16, 1], "classes": 1, "filters": 2, "depth": 3, "batch_normalization": False},
     {}),
    ("cifar10_cnn", cifar10_cnn, {"input_shape": [32, 32, 3], "classes": 10}, {}),
    ("vae_deconv", encoder, VAE, {"part": "encoder"}),
    ("vae_deconv", decoder, VAE, {"part": "decoder"}),
]


# ---- summaries ----------------------------------------------------------------------------------


def _sizes(shape):
    return "{" + ", ".join(str(-1 if n is None else n) for n in shape) + "}"


def _name(weight):
    return "gamma" if LAYER_SCALE in weight.path else weight.name


def _line(layer):
    name, kind = layer.name, type(layer).__name__
    if name.startswith(to_snake_case(kind)):
        name = ""
    weights = "".join(f" {_name(w)} {_sizes(w.shape)}" for w in layer.trainable_weights + layer.non_trainable_weights)
    return f"{name} {kind.replace('InputLayer', 'Input')} {_sizes(layer.output.shape)}{weights}\n"


def _summary(name, build, options):
    model = build(weights=None, **options)
    h = 0
    for byte in "".join(_line(layer) for layer in model.layers).encode():
        h = (h * 33 + byte) % 2**47
    trained = sum(math.prod(w.shape) for w in model.trainable_weights)
    return {"model": name, "options": options, "name": model.name, "params": model.count_params(),
            "trainable": trained, "layers": len(model.layers), "hash": h}


# ---- predictions ----------------------------------------------------------------------------------


def _values(index, weight, last, gamma):
    name, shape = _name(weight), tuple(weight.shape)
    scale, offset = 0.1, 0.0
    if name == "kernel":
        depthwise = len(shape) == 4 and "depthwise" in weight.path
        scale = math.sqrt(6.0 / math.prod(shape[:2] if depthwise else shape[:-1])) * (0.5 if last else 1)
    elif name == "gamma":
        offset = gamma
    elif name == "moving_variance":
        scale, offset = 0.2, 1.0
    return hashed.array(shape, WEIGHT_SALT + index, scale, offset).astype("float32")


def hash_weights(model, gamma):
    """Gives the model its hashed weights."""
    weights = [w for layer in model.layers for w in layer.trainable_weights + layer.non_trainable_weights]
    last = [w for w in weights if w.name == "kernel"][-1]
    for index, weight in enumerate(weights):
        weight.assign(_values(index, weight, weight is last, gamma))


def _prediction(name, build, options, more):
    compute_in("float64")
    own = {"weights": None} if build.__module__.startswith("keras") else {}
    model = build(**own, **options)
    hash_weights(model, more.get("gamma", 1.0))
    shape = (ROWS,) + tuple(model.inputs[0].shape[1:])
    output = model(hashed.array(shape, IMAGE_SALT, 0.5, 0.5).astype("float32")).numpy()
    # rows that do not differ would hide layers that are not connected
    assert np.abs(output[0] - output[1]).max() > 1e-3 * np.abs(output).max(), (name, output)
    print(name, output.shape, output.ravel()[:5])
    return {"model": name, "options": options, "output": output} | more


def _preprocessed(mode, layout):
    x = hashed.array((2, 2, 3, 3) if layout == "channels_last" else (2, 3, 2, 3), IMAGE_SALT, 127.5, 127.5)
    return {"mode": mode, "data_format": layout, "output": applications.imagenet_utils.preprocess_input(x, layout, mode)}


def zoo():
    """The set `zoo`."""
    compute_in("float32")
    keras.backend.clear_session()
    summaries = [_summary(*case) for case in SUMMARIES]
    return {"summaries": summaries, "predictions": [_prediction(*case) for case in PREDICTIONS],
            "preprocessing": [_preprocessed(mode, layout) for mode in ("caffe", "tf", "torch")
                              for layout in ("channels_last", "channels_first")]}


SETS = {"zoo": (zoo, NOTE)}
