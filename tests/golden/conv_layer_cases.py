"""Golden set of the convolution family in float64: options that layers and more_layers leave out.

TensorFlow on a CPU lacks several forms of convolution. channels_first is computed as channels_last
between two transpositions; the activation follows the second one, as in Keras. What Keras cannot
compute on a CPU at all (dilated or short-padded Conv2DTranspose, depthwise convolutions with unequal
strides, bilinear interpolation in float64) is computed by PyTorch, with the paddings that Keras's
formulas give. _check_torch compares PyTorch with Keras where both can compute a case.
"""

import keras
import numpy as np
import tensorflow as tf
import torch
from keras.src.backend.common import backend_utils

import hashed
from layer_cases import INPUT_SALT, NOTE, UPSTREAM_SALT, _weight_recipe
from nets import compute_in

L = keras.layers
F = torch.nn.functional
FIRST = {"data_format": "channels_first"}
BARE = FIRST | {"use_bias": False}  # softmax along an image axis cancels a bias

SEQUENCES = [
    ("Conv1D", (2, 3, 9), {"filters": 4, "kernel_size": 3, "strides": 2} | FIRST),
    ("Conv1D", (2, 3, 8), {"filters": 4, "kernel_size": 2, "padding": "causal", "dilation_rate": 2,
                           "activation": "softmax"} | BARE),
    ("Conv1D", (2, 4, 7), {"filters": 6, "kernel_size": 2, "groups": 2, "padding": "same"} | FIRST),
    ("Conv1D", (2, 9, 2), {"filters": 3, "kernel_size": 4, "dilation_rate": 2, "padding": "same"}),
    ("Conv1D", (2, 9, 4), {"filters": 8, "kernel_size": 3, "groups": 4, "strides": 2,
                           "padding": "causal", "use_bias": False}),
    ("Conv1D", (2, 3, 2), {"filters": 3, "kernel_size": 5, "padding": "same"}),
    ("Conv1D", (2, 3, 2), {"filters": 3, "kernel_size": 5, "padding": "causal"}),
    ("Conv1D", (2, 8, 3), {"filters": 2, "kernel_size": 1, "strides": 3, "activation": "relu"}),
    ("Conv1D", (1, 24, 3), {"filters": 4, "kernel_size": 3, "padding": "same"}),
]

IMAGES = [
    ("Conv2D", (1, 4, 6, 5), {"filters": 4, "kernel_size": [3, 2], "groups": 2, "strides": [2, 1],
                              "padding": "same"} | FIRST),
    ("Conv2D", (2, 2, 4, 5), {"filters": 3, "kernel_size": [2, 2], "activation": "softmax"} | BARE),
    ("Conv2D", (1, 5, 9, 2), {"filters": 2, "kernel_size": [3, 3], "dilation_rate": [1, 3]}),
    ("Conv2D", (2, 2, 3, 2), {"filters": 3, "kernel_size": [5, 4], "padding": "same"}),
    ("Conv2D", (1, 1, 9, 2), {"filters": 3, "kernel_size": [1, 3], "strides": [1, 2]}),
    ("Conv2DTranspose", (1, 2, 3, 3), {"filters": 2, "kernel_size": [3, 3], "strides": [2, 2],
                                       "padding": "same", "output_padding": 1} | FIRST),
    ("Conv2DTranspose", (1, 2, 3, 4), {"filters": 3, "kernel_size": [2, 3],
                                       "activation": "softmax"} | BARE),
    ("Conv2DTranspose", (1, 3, 3, 2), {"filters": 2, "kernel_size": [2, 2], "strides": [3, 3]}),
    ("Conv2DTranspose", (2, 3, 4, 2), {"filters": 2, "kernel_size": [3, 4], "strides": [1, 2],
                                       "padding": "same", "use_bias": False}),
    ("Conv2DTranspose", (1, 3, 3, 2), {"filters": 2, "kernel_size": [2, 4], "strides": [2, 3],
                                       "output_padding": [0, 2]}),
    ("Conv2DTranspose", (2, 3, 4, 3), {"filters": 2, "kernel_size": [1, 1], "strides": [2, 2],
                                       "padding": "same"}),
    ("Conv2DTranspose", (1, 4, 4, 2), {"filters": 3, "kernel_size": [5, 5], "padding": "same"}),
    ("DepthwiseConv2D", (1, 9, 8, 2), {"kernel_size": [3, 3], "strides": [2, 2],
                                       "dilation_rate": [2, 2]}),
    ("DepthwiseConv2D", (1, 9, 8, 2), {"kernel_size": [3, 2], "strides": [3, 1], "padding": "same",
                                       "dilation_rate": [1, 2], "activation": "tanh"}),
    ("DepthwiseConv2D", (1, 3, 6, 5), {"kernel_size": [3, 3], "depth_multiplier": 2,
                                       "activation": "softmax"} | BARE),
    ("DepthwiseConv2D", (2, 4, 4, 2), {"kernel_size": [2, 3], "depth_multiplier": 3,
                                       "dilation_rate": [1, 2], "padding": "same"}),
    ("SeparableConv2D", (1, 9, 8, 2), {"filters": 3, "kernel_size": [3, 3], "strides": [2, 2],
                                       "dilation_rate": [2, 2], "padding": "same"}),
    ("SeparableConv2D", (1, 3, 6, 5), {"filters": 4, "kernel_size": [2, 3], "depth_multiplier": 2,
                                       "activation": "softmax"} | BARE),
    ("SeparableConv2D", (2, 5, 5, 2), {"filters": 2, "kernel_size": [3, 3], "depth_multiplier": 3,
                                       "dilation_rate": [2, 1], "padding": "same"}),
]

POOLS = [(name, shape, args) for name in ("MaxPooling1D", "AveragePooling1D") for shape, args in [
    ((2, 3, 7), {"pool_size": 3, "strides": 1, "padding": "same"} | FIRST),
    ((2, 3, 8), {"pool_size": 2} | FIRST),
    ((2, 9, 2), {"pool_size": 2, "strides": 3, "padding": "same"}),
    ((2, 3, 2), {"pool_size": 5, "strides": 2, "padding": "same"})]]
POOLS += [(name, (2, 2, 5, 6), {"pool_size": [2, 3], "strides": [2, 1], "padding": padding} | FIRST)
          for name in ("MaxPooling2D", "AveragePooling2D") for padding in ("valid", "same")]
POOLS += [(f"Global{kind}Pooling{rank}D", (2, 3, 5) if rank == 1 else (2, 3, 4, 5), args | FIRST)
          for kind in ("Max", "Average") for rank in (1, 2) for args in ({}, {"keepdims": True})]
POOLS.append(("GlobalMaxPooling2D", (1, 1, 1, 4), {}))

MOVEMENT = [
    ("ZeroPadding2D", (2, 2, 3, 4), {"padding": [[1, 0], [2, 3]]} | FIRST),
    ("ZeroPadding2D", (2, 3, 4, 2), {"padding": [[0, 0], [0, 2]]}),
    ("ZeroPadding2D", (2, 2, 4, 2), {"padding": 2}),
    ("ZeroPadding2D", (2, 3, 4, 2), {"padding": 0}),
    ("Cropping2D", (2, 2, 5, 6), {"cropping": [[1, 0], [2, 1]]} | FIRST),
    ("Cropping2D", (2, 5, 6, 2), {"cropping": [1, 2]}),
    ("Cropping2D", (2, 5, 6, 2), {"cropping": [[0, 4], [5, 0]]}),
    ("Cropping2D", (2, 3, 4, 2), {}),
    ("UpSampling2D", (2, 2, 2, 4), {"size": [2, 3]} | FIRST),
    ("UpSampling2D", (2, 3, 4, 2), {"size": [1, 3]}),
]

# Computed by PyTorch.
TRANSPOSED = [
    ((1, 3, 4, 2), {"filters": 2, "kernel_size": [2, 3], "dilation_rate": [2, 2]}),
    ((1, 4, 5, 2), {"filters": 2, "kernel_size": [3, 2], "dilation_rate": [2, 3],
                    "padding": "same"}),
    ((1, 2, 4, 5), {"filters": 2, "kernel_size": [2, 2], "dilation_rate": [1, 3], "padding": "same",
                    "output_padding": 0} | FIRST),
    ((1, 3, 3, 2), {"filters": 2, "kernel_size": [2, 4], "strides": [3, 2], "padding": "same",
                    "output_padding": [0, 1]}),
]
UNEQUAL_STRIDES = [
    ((2, 5, 6, 2), {"kernel_size": [3, 3], "strides": [1, 2], "padding": "same"}),
    ((1, 6, 7, 3), {"kernel_size": [2, 3], "strides": [3, 2], "depth_multiplier": 2}),
    ((1, 2, 8, 9), {"kernel_size": [2, 3], "strides": [1, 2], "dilation_rate": [2, 2],
                    "padding": "same"} | FIRST),
]
BILINEAR = [
    ((1, 3, 4, 2), {"size": [2, 2]}), ((1, 2, 2, 3), {"size": [4, 3]} | FIRST),
    ((1, 5, 1, 2), {"size": [1, 4]}), ((1, 3, 3, 1), {"size": [5, 1]}),
]


def _turns(rank, args):
    """The axis orders from and to channels_last, or None."""
    if args.get("data_format") != "channels_first":
        return None, None
    return ((0, 2, 1),) * 2 if rank == 3 else ((0, 2, 3, 1), (0, 3, 1, 2))


def _layer(name, shape, args):
    """The channels_last layer without activation, with hashed weights, and their recipes."""
    layer = getattr(L, name)(**{k: v for k, v in args.items()
                                if k not in ("data_format", "activation")})
    there, _ = _turns(len(shape), args)
    layer.build(tuple(shape[i] for i in there) if there else shape)
    recipes = [_weight_recipe(i, w) for i, w in enumerate(layer.weights)]
    for weight, recipe in zip(layer.weights, recipes):
        weight.assign(hashed.of_recipe(recipe, recipe["shape"]))
    return layer, recipes


def _as_case(name, shape, args, recipes, y, dx, dw):
    """The fields of a case, as NOTE explains them."""
    sizes = [np.size(v) for v in (y, dx, *dw)]
    assert max(sizes) <= 200, (name, args, sizes)
    return {"layer": name, "args": args, "input_shape": list(shape), "input": hashed.recipe(INPUT_SALT),
            "weights": recipes, "upstream": hashed.recipe(UPSTREAM_SALT), "output_shape": list(y.shape),
            "output": y, "input_gradient": dx, "weight_gradients": dw}


def _gradients(call, x, weights):
    """Output, gradient of the input and of the weights, by TensorFlow."""
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = call(x)
        scalar = tf.reduce_sum(y * hashed.of_recipe(hashed.recipe(UPSTREAM_SALT), tuple(y.shape)))
    assert y.dtype == "float64"
    dx, *dw = tape.gradient(scalar, [x] + [w.value for w in weights])
    return y.numpy(), dx.numpy(), [g.numpy() for g in dw]


def _turned(layer, rank, args):
    """The call of a channels_last layer between two transpositions, then the activation."""
    there, back = _turns(rank, args)
    activation = keras.activations.get(args.get("activation"))

    def call(x):
        y = layer(tf.transpose(x, there) if there else x)
        if back and len(y.shape) == len(back):
            y = tf.transpose(y, back)
        return activation(y)

    return call


def _case(name, shape, args):
    """Computed by Keras on TensorFlow."""
    layer, recipes = _layer(name, shape, args)
    x = hashed.of_recipe(hashed.recipe(INPUT_SALT), shape)
    results = _gradients(_turned(layer, len(shape), args), x, layer.trainable_weights)
    return _as_case(name, shape, args, recipes, *results)


def _torch_case(name, shape, args, compute):
    """Computed by PyTorch: compute(x, weights, args) with x in {n, c, h, w}, then the bias."""
    layer, recipes = _layer(name, shape, args)
    weights = [torch.tensor(w.numpy(), requires_grad=True) for w in layer.weights]
    x = torch.tensor(hashed.of_recipe(hashed.recipe(INPUT_SALT), shape), requires_grad=True)
    last = args.get("data_format") != "channels_first"
    y = compute(x.permute(0, 3, 1, 2) if last else x, weights, args)
    if len(weights) > 1:
        y = y + weights[1].reshape(1, -1, 1, 1)
    y = y.permute(0, 2, 3, 1) if last else y
    (y * torch.tensor(hashed.of_recipe(hashed.recipe(UPSTREAM_SALT), tuple(y.shape)))).sum().backward()
    return _as_case(name, shape, args, recipes, y.detach().numpy(), x.grad.numpy(),
                    [w.grad.numpy() for w in weights])


def _transposed(x, weights, args):
    """The full transposed convolution, cut down (or padded with zeros) to Keras's output window."""
    kernel, steps = weights[0], args.get("strides", [1, 1])
    dilations, cuts = args.get("dilation_rate", [1, 1]), []
    pads = backend_utils.compute_conv_transpose_padding_args_for_jax(
        (1, 1, 1, 1), tuple(kernel.shape), steps, args.get("padding", "valid"),
        args.get("output_padding"), dilations)
    for axis in (1, 0):
        span = (kernel.shape[axis] - 1) * dilations[axis] + 1
        cuts += [pads[axis][0] - (span - 1), pads[axis][1] - (span - 1)]
    y = F.conv_transpose2d(x, kernel.permute(3, 2, 0, 1), stride=steps, dilation=dilations)
    return F.pad(y, cuts)


def _depthwise(x, weights, args):
    """A grouped convolution; "same" pads the end with the odd cell."""
    rows, columns, channels, multiplier = weights[0].shape
    steps, dilations, pads = args["strides"], args.get("dilation_rate", [1, 1]), [0] * 4
    if args.get("padding") == "same":
        for axis, size in enumerate((rows, columns)):
            n, span = x.shape[2 + axis], (size - 1) * dilations[axis] + 1
            total = max((-(-n // steps[axis]) - 1) * steps[axis] + span - n, 0)
            pads[2 - 2 * axis:4 - 2 * axis] = [total // 2, total - total // 2]
    kernel = weights[0].permute(2, 3, 0, 1).reshape(channels * multiplier, 1, rows, columns)
    return F.conv2d(F.pad(x, pads), kernel, stride=steps, dilation=dilations, groups=channels)


def _bilinear(x, _, args):
    return F.interpolate(x, scale_factor=tuple(args["size"]), mode="bilinear")


def _check_torch():
    """Where Keras can compute a case too, PyTorch must agree with it to 1e-13."""
    for name, shape, args in IMAGES:
        compute = {"Conv2DTranspose": _transposed, "DepthwiseConv2D": _depthwise}.get(name)
        if compute and "activation" not in args and ("strides" in args or compute is _transposed):
            ours, keras_s = _torch_case(name, shape, args, compute), _case(name, shape, args)
            for key in ("output", "input_gradient"):
                np.testing.assert_allclose(ours[key], keras_s[key], rtol=0, atol=1e-13)


def _tie_case(name, shape, args):
    """A pool of equal numbers: shows which of the equal cells receives the gradient."""
    x = np.floor(hashed.of_recipe(hashed.recipe(INPUT_SALT, 1.5), shape))
    y, dx, _ = _gradients(getattr(L, name)(**args), x, [])
    return {"layer": name, "args": args, "input_shape": list(shape), "input": x,
            "upstream": hashed.recipe(UPSTREAM_SALT), "output": y, "input_gradient": dx}


TIES = [
    ("MaxPooling1D", (2, 9, 2), {"pool_size": 3, "strides": 2}),
    ("MaxPooling1D", (2, 8, 2), {"pool_size": 3, "padding": "same"}),
    ("MaxPooling2D", (1, 6, 6, 2), {"pool_size": 2}),
    ("MaxPooling2D", (1, 5, 6, 2), {"pool_size": 3, "strides": 1, "padding": "same"}),
    ("GlobalMaxPooling1D", (2, 9, 2), {}),
    ("GlobalMaxPooling2D", (2, 3, 4, 2), {"keepdims": True}),
]


def conv_layers():
    """The set `conv_layers`."""
    compute_in("float64")
    _check_torch()
    cases = [_case(*row) for row in SEQUENCES + IMAGES + POOLS + MOVEMENT]
    cases += [_torch_case("Conv2DTranspose", *row, _transposed) for row in TRANSPOSED]
    cases += [_torch_case("DepthwiseConv2D", *row, _depthwise) for row in UNEQUAL_STRIDES]
    cases += [_torch_case("UpSampling2D", shape, args | {"interpolation": "bilinear"}, _bilinear)
              for shape, args in BILINEAR]
    return {"cases": cases, "ties": [_tie_case(*row) for row in TIES]}


SETS = {"conv_layers": (conv_layers, NOTE + """

Some cases are computed by PyTorch, because TensorFlow cannot compute them on a CPU; see
conv_layer_cases.py. ties[i]: the same of a pooling layer; `input` holds the numbers themselves, many of
which are equal.""")}
