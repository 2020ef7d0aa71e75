"""Golden sets of single layers in float64: output, input gradient, weight gradients, statistics.

A case is one call layer(x) with hashed weights and input; the gradients are those of
sum(output * upstream) for a hashed upstream gradient.
"""

import math

import keras
import numpy as np
import tensorflow as tf

import hashed
from nets import compute_in

L = keras.layers
INPUT_SALT, UPSTREAM_SALT, WEIGHT_SALT = 10, 20, 30

# TensorFlow rounds the constants of these two functions to float32 even for float64 input: an error
# of 1e-8. Keras looks them up in tf.nn, so exact versions are put there.
def _leaky_relu(x, alpha=0.2):
    return tf.where(x > 0, x, alpha * x)


def _gelu(x, approximate=False):
    if approximate:
        return 0.5 * x * (1 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * tf.math.erfc(-x / math.sqrt(2))


tf.nn.leaky_relu, tf.nn.gelu = _leaky_relu, _gelu

NOTE = """cases[i] is one call of a layer, by Keras's names of the layer and its args. `input` is the recipe
of an array of input_shape (shapes include the batch), weights[k] the recipe of tensor k of
get_weights(), `upstream` the recipe of the gradient with respect to the output. The numbers are
output, input_gradient and weight_gradients (in the order of the trainable weights) in float64. For
a layer with regularizers `penalty` is the sum of its losses; the gradients are then those of
sum(output * upstream) + penalty."""


def weight_recipe(weight, salt):
    """Name, shape and recipe of a weight: values around 1 for gamma and the moving variance, around
    0 for all others."""
    positive = weight.name in ("gamma", "moving_variance")
    recipe = hashed.recipe(salt, 0.5, 1.0 if positive else 0.0)
    return {"name": weight.name, "shape": list(weight.shape)} | recipe


def _weight_recipe(index, weight):
    return weight_recipe(weight, WEIGHT_SALT + index)


def _gradients(layer, x, upstream, **call):
    """Output, gradient of the input, gradients of the trainable weights."""
    x = tf.constant(x)
    weights = [w.value for w in layer.trainable_weights]
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, **call)
        scalar = tf.reduce_sum(y * hashed.of_recipe(upstream, tuple(y.shape)))
        scalar += sum(layer.losses)
    assert y.dtype == "float64"
    gradients = tape.gradient(scalar, [x] + weights)
    return y, gradients[0], gradients[1:]


def _case(name, shape, args, scale=1.0, offset=0.0, **call):
    """One call of the layer `name`; `args` are keyword arguments by Keras's names."""
    layer = getattr(L, name)(**args)
    layer.build(shape)
    source, upstream = hashed.recipe(INPUT_SALT, scale, offset), hashed.recipe(UPSTREAM_SALT)
    recipes = [_weight_recipe(i, w) for i, w in enumerate(layer.weights)]
    for weight, recipe in zip(layer.weights, recipes):
        weight.assign(hashed.of_recipe(recipe, recipe["shape"]))
    y, dx, dw = _gradients(layer, hashed.of_recipe(source, shape), upstream, **call)
    case = {"layer": name, "args": args, "input_shape": list(shape), "input": source,
            "weights": recipes, "upstream": upstream, "output_shape": list(y.shape), "output": y,
            "input_gradient": dx, "weight_gradients": [g.numpy() for g in dw]}
    sizes = [np.size(v) for v in (y, dx, *dw)]
    assert max(sizes) <= 200, (name, args, sizes)
    if layer.losses:
        case["penalty"] = sum(layer.losses)
    if call:
        case["training"] = call["training"]
        case["after"] = [w.numpy() for w in layer.weights if not w.trainable]
    return case


def dense():
    """Dense on 2-D and 3-D input."""
    return [_case("Dense", (4, 5), {"units": 3}),
            _case("Dense", (2, 3, 5), {"units": 4, "use_bias": False}),
            _case("Dense", (4, 5), {"units": 3, "activation": "softmax"})]


CONVOLUTIONS = [
    ((1, 5, 6, 2), {"filters": 3, "kernel_size": [3, 3]}),
    ((1, 5, 6, 2), {"filters": 3, "kernel_size": [3, 3], "padding": "same"}),
    ((2, 5, 4, 2), {"filters": 2, "kernel_size": [2, 3], "padding": "same", "activation": "relu"}),
    ((1, 7, 6, 2), {"filters": 3, "kernel_size": [3, 3], "strides": [2, 2]}),
    ((1, 7, 6, 2), {"filters": 3, "kernel_size": [3, 3], "strides": [2, 2], "padding": "same"}),
    ((1, 8, 7, 2), {"filters": 2, "kernel_size": [3, 2], "strides": [3, 2], "padding": "same"}),
    ((1, 6, 6, 2), {"filters": 3, "kernel_size": [4, 4], "strides": [2, 2], "padding": "same"}),
    ((1, 7, 8, 2), {"filters": 2, "kernel_size": [3, 3], "dilation_rate": [2, 2]}),
    ((1, 6, 7, 2), {"filters": 2, "kernel_size": [3, 2], "dilation_rate": [2, 3],
                    "padding": "same"}),
    ((1, 5, 5, 4), {"filters": 6, "kernel_size": [3, 3], "groups": 2}),
    ((1, 5, 5, 4), {"filters": 4, "kernel_size": [3, 3], "groups": 4, "strides": [2, 2],
                    "padding": "same", "use_bias": False}),
    ((2, 4, 5, 3), {"filters": 4, "kernel_size": [1, 1]}),
    ((2, 5, 5, 3), {"filters": 2, "kernel_size": [1, 1], "strides": [2, 2], "padding": "same"}),
    ((2, 5, 5, 3), {"filters": 2, "kernel_size": [1, 1], "strides": [2, 2]}),
]

POOLS = [
    ((1, 6, 6, 3), {"pool_size": [2, 2]}),
    ((2, 5, 7, 2), {"pool_size": [2, 2]}),
    ((2, 5, 7, 2), {"pool_size": [2, 2], "padding": "same"}),
    ((1, 7, 6, 3), {"pool_size": [3, 3], "strides": [2, 2]}),
    ((1, 7, 6, 3), {"pool_size": [3, 3], "strides": [2, 2], "padding": "same"}),
    ((1, 6, 7, 3), {"pool_size": [3, 2], "strides": [1, 2], "padding": "same"}),
    ((1, 8, 8, 2), {"pool_size": [2, 2], "strides": [3, 3], "padding": "same"}),
]


def pools():
    """Max and average pooling, global average pooling."""
    cases = [_case(name, shape, args) for name in ("MaxPooling2D", "AveragePooling2D")
             for shape, args in POOLS]
    return cases + [_case("GlobalAveragePooling2D", (2, 3, 5, 4), {}),
                    _case("GlobalAveragePooling2D", (2, 3, 5, 4), {"keepdims": True})]


def batch_normalization():
    """A training step (its moving statistics become `after`) and inference."""
    variants = [((6, 4), {}), ((3, 3, 4, 3), {}),
                ((3, 3, 4, 3), {"momentum": 0.9, "epsilon": 1e-2}),
                ((6, 4), {"center": False}), ((6, 4), {"scale": False})]
    return [_case("BatchNormalization", shape, args, 2.0, 0.5, training=training)
            for shape, args in variants for training in (True, False)]


RELUS = [{}, {"max_value": 1.5}, {"negative_slope": 0.1}, {"threshold": 0.5},
         {"max_value": 2.0, "negative_slope": 0.25, "threshold": 0.5}]


def activation_layers():
    """ReLU with its options, LeakyReLU, ELU and Softmax; axes count from 0 or are negative."""
    relus = [_case("ReLU", (4, 9), args, 3.0) for args in RELUS]
    return relus + [
        _case("LeakyReLU", (4, 9), {}, 3.0),
        _case("LeakyReLU", (4, 9), {"negative_slope": 0.01}, 3.0),
        _case("ELU", (4, 9), {}, 3.0), _case("ELU", (4, 9), {"alpha": 0.5}, 3.0),
        _case("Softmax", (4, 5), {}, 4.0), _case("Softmax", (2, 3, 4), {"axis": 1}, 4.0),
        _case("Softmax", (2, 3, 4), {"axis": -2}, 4.0)]


# Keras rounds the factors of regularizers to float32; these two are exact in float32.
L1, L2 = ({"class_name": f"L{n}", "config": {f"l{n}": 0.125 * n}} for n in (1, 2))

REGULARIZED = [
    ("Dense", (4, 5), {"units": 3, "kernel_regularizer": L1, "bias_regularizer": L2}),
    ("Dense", (4, 5), {"units": 3, "activation": "tanh", "activity_regularizer": L2}),
    ("Dense", (2, 3, 5), {"units": 2, "kernel_regularizer": L2, "activity_regularizer": L1}),
    ("BatchNormalization", (6, 4), {"beta_regularizer": L2, "gamma_regularizer": L1}),
    ("LayerNormalization", (3, 5), {"beta_regularizer": L1, "gamma_regularizer": L2}),
    ("PReLU", (4, 6), {"alpha_regularizer": L2}),
]

RANKS = [
    ("Dense", (2, 2, 3, 4), {"units": 2, "activation": "elu"}),
    ("Dense", (3, 4), {"units": 6, "activation": "glu"}),
    ("Conv1D", (2, 5, 3), {"filters": 4, "kernel_size": 2, "activation": "glu"}),
    ("Conv2D", (2, 4, 5, 2), {"filters": 6, "kernel_size": 2, "activation": "glu"}),
    ("Conv2DTranspose", (2, 3, 3, 2), {"filters": 4, "kernel_size": 2, "activation": "glu"}),
    ("DepthwiseConv2D", (2, 4, 4, 3), {"kernel_size": 2, "depth_multiplier": 2, "activation": "glu"}),
    ("SeparableConv2D", (2, 4, 4, 2), {"filters": 4, "kernel_size": 2, "activation": "glu"}),
    ("Flatten", (2, 3, 4), {"data_format": "channels_first"}),
    ("Flatten", (2, 3, 2, 4), {"data_format": "channels_first"}),
    ("Flatten", (2, 3, 2, 2, 4), {"data_format": "channels_first"}),
    ("Flatten", (5,), {}),
    ("Reshape", (2, 3, 4), {"target_shape": [2, -1, 3]}),
    ("Reshape", (2, 6), {"target_shape": [3, 1, 2]}),
    ("Permute", (2, 3, 2, 2, 4), {"dims": [4, 2, 1, 3]}),
    ("LayerNormalization", (2, 3, 4, 2), {"axis": [-3, -1]}),
    ("LayerNormalization", (2, 3, 4), {"axis": [2, 1], "epsilon": 1e-5}),
    ("LayerNormalization", (2, 3, 4), {"axis": -2, "center": False, "scale": False}),
    ("LayerNormalization", (2, 3, 4), {"rms_scaling": True}),
    ("LayerNormalization", (2, 3, 4), {"rms_scaling": True, "scale": False, "axis": [1, 2]}),
    ("PReLU", (2, 3, 4), {"shared_axes": [1]}),
    ("Softmax", (2, 3, 4), {"axis": [1, 2]}),
    ("Softmax", (2, 3, 4, 2), {"axis": [-1, 1]}),
    ("Softmax", (2, 3, 4), {"axis": [2]}),
    ("Softmax", (2, 3, 2, 3), {"axis": 2}),
]

# BatchNormalization of inputs with 2 to 5 axes: shape, axis.
NORMALIZED = [((6, 4), 1), ((4, 3, 5), -1), ((4, 3, 5), 1), ((3, 3, 4, 3), 1), ((3, 3, 4, 3), 2),
              ((2, 3, 2, 3, 2), -1), ((2, 3, 2, 3, 2), 1), ((2, 3, 2, 3, 2), -2)]


def other_options():
    """Options, and inputs with other numbers of axes, that the cases above leave out."""
    plain = [_case(*row, scale=2.0) for row in REGULARIZED + RANKS]
    return plain + [_case("BatchNormalization", shape, {"axis": axis, "momentum": 0.8}, 2.0, 0.5,
                          training=training)
                    for shape, axis in NORMALIZED for training in (True, False)]


def layers():
    """The set `layers`."""
    compute_in("float64")
    convolutions = [_case("Conv2D", *row) for row in CONVOLUTIONS]
    return {"cases": dense() + convolutions + pools() + batch_normalization()
            + activation_layers() + other_options()}


ELEMENTWISE = ["relu", "sigmoid", "tanh", "elu", "selu", "softplus", "softsign", "gelu", "swish",
               "silu", "hard_sigmoid", "hard_sigmoid_keras2", "exponential", "linear", "relu6", "leaky_relu", "mish",
               "celu", "hard_shrink", "hard_silu", "hard_swish", "hard_tanh", "log_sigmoid",
               "soft_shrink", "sparse_plus", "sparse_sigmoid", "squareplus", "tanh_shrink"]
ALONG_AN_AXIS = ["softmax", "log_softmax", "glu", "sparsemax"]
# Arguments after x, axes counted from 0.
WITH_ARGUMENTS = [("gelu", [True]), ("relu", [0.1, 5.0, 0.5]), ("relu", [0.0, 2.0]),
                  ("relu", [0.0, 4.0, 1.5]), ("leaky_relu", [0.05]), ("elu", [0.7]),
                  ("celu", [2.5]), ("threshold", [0.5, -1.0]), ("squareplus", [0.3]),
                  ("hard_shrink", [2.0]), ("soft_shrink", [2.0]), ("softmax", [0]),
                  ("log_softmax", [0]), ("glu", [0]), ("sparsemax", [0])]

# Inputs far from 0 and very near it; exp overflows beyond 709. No input lies where two pieces of a
# function meet and its slope jumps, because any slope between the two would be right there.
EDGES = [-700.0, -100.0, -40.0, -20.0, -7.0, -1e-3, -1e-12,
         1e-12, 1e-3, 7.0, 20.0, 40.0, 100.0, 700.0]
# Inputs where two pieces of a function meet.
MEETINGS = [-6.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0]


def _sparsemax(x, axis=-1):
    """Algorithm 1 of Martins & Astudillo (2016). Keras 3.15 is wrong here: it adds the partial sums
    of every number of the support instead of the last one, so its rows do not sum to 1."""
    z = tf.sort(x, axis=axis, direction="DESCENDING")
    sums = tf.cumsum(z, axis=axis)
    k = tf.reshape(tf.range(1, x.shape[axis] + 1, dtype=x.dtype),
                   [-1 if i == axis % len(x.shape) else 1 for i in range(len(x.shape))])
    support = tf.cast(1 + k * z > sums, x.dtype)
    count = tf.reduce_sum(support, axis=axis, keepdims=True)
    return tf.nn.relu(x - (tf.reduce_sum(z * support, axis=axis, keepdims=True) - 1) / count)


def _hard_sigmoid_keras2(x):
    """hard_sigmoid of Keras 1 and 2, as tf.keras 2.15 computes it."""
    return tf.clip_by_value(0.2 * x + 0.5, 0.0, 1.0)


OURS = {"sparsemax": _sparsemax, "hard_sigmoid_keras2": _hard_sigmoid_keras2}


def _function(name):
    return OURS.get(name) or getattr(keras.activations, name)


def _activation(name, arguments=()):
    # Inputs of scale 8 would make almost every row of sparsemax a single 1.
    x, upstream = hashed.recipe(INPUT_SALT, 1.0 if name == "sparsemax" else 8.0), hashed.recipe(UPSTREAM_SALT)
    layer = L.Activation(lambda x: _function(name)(x, *arguments))
    y, dx, _ = _gradients(layer, hashed.of_recipe(x, (6, 8)), upstream)
    return {"name": name, "arguments": list(arguments), "input": x, "output_shape": list(y.shape),
            "output": y, "input_gradient": dx}


def _edge_case(name, function):
    x, meetings = tf.constant(EDGES, tf.float64), tf.constant(MEETINGS, tf.float64)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, meetings])
        y, z = function(x), function(meetings)
    return {"name": name, "output": y, "input_gradient": tape.gradient(y, x), "at_meetings": z,
            "gradient_at_meetings": tape.gradient(z, meetings)}


def activations():
    """The set `activations`: every function by name, some with arguments, and far from 0."""
    compute_in("float64")
    rows = [(name,) for name in ELEMENTWISE + ALONG_AN_AXIS] + WITH_ARGUMENTS
    edges = [_edge_case(name, _function(name)) for name in ELEMENTWISE]
    return {"shape": [6, 8], "upstream": hashed.recipe(UPSTREAM_SALT), "edges": EDGES,
            "meetings": MEETINGS, "cases": [_activation(*row) for row in rows],
            "edge_cases": edges}


SETS = {
    "layers": (layers, NOTE + """

Axes count as in Keras: from 0, with the batch. A case with `training` was called with that argument,
and `after` holds its moving mean and variance after the call; all other layers were called without."""),
    "activations": (activations, """cases[i]: the activation `name`, called with an array of `shape` (by
the recipe `input`) and `arguments`. The numbers are output, and input_gradient for an upstream gradient by the
recipe `upstream`, in float64. Axes count as in Keras, from 0. edge_cases[i]: output and
input_gradient for the inputs `edges` and an upstream gradient of 1; at_meetings and gradient_at_meetings:
the same for the inputs `meetings`. The numbers of sparsemax are not Keras's, see layer_cases.py."""),
}
