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

# TensorFlow rounds the constants of these two to float32 whatever the input is, which costs 1e-8.
# Keras finds the exact ones under the same names.
def _leaky_relu(x, alpha=0.2):
    return tf.where(x > 0, x, alpha * x)


def _gelu(x, approximate=False):
    if approximate:
        return 0.5 * x * (1 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * tf.math.erfc(-x / math.sqrt(2))


tf.nn.leaky_relu, tf.nn.gelu = _leaky_relu, _gelu

NOTE = """cases[i]: layer and args by Keras's names; input: recipe of an input_shape array (shapes
include the batch); weights[k]: recipe of tensor k of get_weights(); upstream: recipe of the
gradient with respect to the output; then output_shape, output, input_gradient and weight_gradients
(in the order of trainable weights), all flat and row-major, in float64."""


def _recipe(salt, scale=1.0, offset=0.0):
    return {"salt": salt, "scale": scale, "offset": offset}


def _weight_recipe(index, weight):
    """Kernels and biases around 0, gamma and the moving variance around 1."""
    positive = weight.name in ("gamma", "moving_variance")
    recipe = _recipe(WEIGHT_SALT + index, 0.5, 1.0 if positive else 0.0)
    return {"name": weight.name, "shape": list(weight.shape)} | recipe


def _gradients(layer, x, upstream, **call):
    """Output, gradient of the input, gradients of the trainable weights."""
    x = tf.constant(x)
    weights = [w.value for w in layer.trainable_weights]
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, **call)
        scalar = tf.reduce_sum(y * hashed.of_recipe(upstream, tuple(y.shape)))
    assert y.dtype == "float64"
    gradients = tape.gradient(scalar, [x] + weights)
    return y, gradients[0], gradients[1:]


def _case(name, shape, args, scale=1.0, offset=0.0, **call):
    """One call of layer `name`; positional-free args by Keras's names."""
    layer = getattr(L, name)(**args)
    layer.build(shape)
    source, upstream = _recipe(INPUT_SALT, scale, offset), _recipe(UPSTREAM_SALT)
    recipes = [_weight_recipe(i, w) for i, w in enumerate(layer.weights)]
    for weight, recipe in zip(layer.weights, recipes):
        weight.assign(hashed.of_recipe(recipe, recipe["shape"]))
    y, dx, dw = _gradients(layer, hashed.of_recipe(source, shape), upstream, **call)
    case = {"layer": name, "args": args, "input_shape": list(shape), "input": source,
            "weights": recipes, "upstream": upstream, "output_shape": list(y.shape), "output": y,
            "input_gradient": dx, "weight_gradients": [g.numpy() for g in dw]}
    sizes = [np.size(v) for v in (y, dx, *dw)]
    assert max(sizes) <= 200, (name, args, sizes)
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
    """Training (with the updated moving statistics in `after`) and inference."""
    variants = [((6, 4), {}), ((3, 3, 4, 3), {}),
                ((3, 3, 4, 3), {"momentum": 0.9, "epsilon": 1e-2}),
                ((6, 4), {"center": False}), ((6, 4), {"scale": False})]
    return [_case("BatchNormalization", shape, args, 2.0, 0.5, training=training)
            for shape, args in variants for training in (True, False)]


RELUS = [{}, {"max_value": 1.5}, {"negative_slope": 0.1}, {"threshold": 0.5},
         {"max_value": 2.0, "negative_slope": 0.25, "threshold": 0.5}]


def activation_layers():
    """ReLU with its options, LeakyReLU, ELU, Softmax over an axis (here -1 or counted from 0)."""
    relus = [_case("ReLU", (4, 9), args, 3.0) for args in RELUS]
    return relus + [
        _case("LeakyReLU", (4, 9), {}, 3.0),
        _case("LeakyReLU", (4, 9), {"negative_slope": 0.01}, 3.0),
        _case("ELU", (4, 9), {}, 3.0), _case("ELU", (4, 9), {"alpha": 0.5}, 3.0),
        _case("Softmax", (4, 5), {}, 4.0), _case("Softmax", (2, 3, 4), {"axis": 1}, 4.0),
        _case("Softmax", (2, 3, 4), {"axis": -2}, 4.0)]


def layers():
    """Set 4a."""
    compute_in("float64")
    convolutions = [_case("Conv2D", *row) for row in CONVOLUTIONS]
    return {"cases": dense() + convolutions + pools() + batch_normalization()
            + activation_layers()}


ACTIVATIONS = ["relu", "sigmoid", "tanh", "softmax", "elu", "selu", "softplus", "softsign", "gelu",
               "swish", "silu", "hard_sigmoid", "exponential", "linear", "relu6", "leaky_relu",
               "mish", "log_softmax"]


def _activation(name, function):
    x, upstream = _recipe(INPUT_SALT, 8.0), _recipe(UPSTREAM_SALT)
    layer = L.Activation(function)
    y, dx, _ = _gradients(layer, hashed.of_recipe(x, (6, 8)), upstream)
    return {"name": name, "output": y, "input_gradient": dx}


def activations():
    """Set 4b: every activation by name; gelu is the exact one, gelu_approximate the tanh form."""
    compute_in("float64")
    cases = [_activation(name, name) for name in ACTIVATIONS]
    cases.append(_activation("gelu_approximate", lambda x: keras.activations.gelu(x, True)))
    return {"shape": [6, 8], "input": _recipe(INPUT_SALT, 8.0), "upstream": _recipe(UPSTREAM_SALT),
            "cases": cases}


SETS = {
    "layers": (layers, NOTE + """

axis counts as in Keras (from 0, with the batch). Where `training` is given, the call was made with
it, and after = moving_mean and moving_variance then; other layers were called without."""),
    "activations": (activations, """cases[i]: activation `name` of the shape array that input stands
for: output, and input_gradient for the gradient that upstream stands for, flat and row-major, in
float64. gelu: the exact form (Keras's gelu(approximate=False)); gelu_approximate: the tanh form.
leaky_relu: negative slope 0.2."""),
}
