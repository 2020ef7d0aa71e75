"""Golden set of further layers in float64: convolutions of all kinds, merges, normalisation."""

import torch

import hashed
from layer_cases import INPUT_SALT, UPSTREAM_SALT, _case
from merge_cases import embedding_case, merge_case
from nets import compute_in

CONVOLUTIONS = [
    ("Conv1D", (2, 8, 3), {"filters": 4, "kernel_size": 3}),
    ("Conv1D", (2, 9, 3), {"filters": 4, "kernel_size": 3, "strides": 2, "padding": "same"}),
    ("Conv1D", (2, 9, 3), {"filters": 4, "kernel_size": 3, "dilation_rate": 2, "padding": "causal",
                           "activation": "tanh"}),
    ("Conv1D", (2, 8, 3), {"filters": 4, "kernel_size": 2, "strides": 2, "padding": "causal"}),
    ("Conv1D", (2, 8, 4), {"filters": 6, "kernel_size": 3, "groups": 2, "padding": "same"}),
    ("Conv1D", (2, 7, 2), {"filters": 3, "kernel_size": 2, "dilation_rate": 3, "use_bias": False}),
    ("Conv2DTranspose", (1, 3, 4, 2), {"filters": 3, "kernel_size": [3, 3]}),
    ("Conv2DTranspose", (1, 3, 4, 2), {"filters": 3, "kernel_size": [3, 3], "strides": [2, 2],
                                       "padding": "same"}),
    ("Conv2DTranspose", (1, 3, 4, 2), {"filters": 2, "kernel_size": [2, 3], "strides": [3, 2]}),
    ("Conv2DTranspose", (1, 3, 3, 2), {"filters": 2, "kernel_size": [3, 3], "strides": [2, 2],
                                       "padding": "same", "output_padding": [1, 1]}),
    ("Conv2DTranspose", (1, 3, 3, 2), {"filters": 2, "kernel_size": [2, 2], "strides": [2, 2],
                                       "output_padding": [1, 0], "activation": "relu"}),
    ("DepthwiseConv2D", (1, 5, 6, 3), {"kernel_size": [3, 3]}),
    ("DepthwiseConv2D", (1, 5, 6, 3), {"kernel_size": [3, 3], "depth_multiplier": 2,
                                       "padding": "same"}),
    ("DepthwiseConv2D", (1, 7, 7, 2), {"kernel_size": [3, 2], "strides": [2, 2], "padding": "same",
                                       "use_bias": False}),
    ("DepthwiseConv2D", (1, 7, 7, 2), {"kernel_size": [2, 2], "dilation_rate": [2, 2]}),
    ("SeparableConv2D", (1, 5, 6, 3), {"filters": 4, "kernel_size": [3, 3]}),
    ("SeparableConv2D", (1, 6, 6, 3), {"filters": 2, "kernel_size": [3, 3], "strides": [2, 2],
                                       "depth_multiplier": 2, "padding": "same",
                                       "activation": "tanh"}),
    ("SeparableConv2D", (1, 6, 6, 2), {"filters": 3, "kernel_size": [2, 2],
                                       "dilation_rate": [2, 2], "use_bias": False}),
]

POOLS = [(name, shape, args) for name in ("MaxPooling1D", "AveragePooling1D") for shape, args in [
    ((2, 8, 3), {"pool_size": 2}), ((2, 7, 3), {"pool_size": 3, "strides": 2}),
    ((2, 7, 3), {"pool_size": 2, "padding": "same"}),
    ((2, 8, 2), {"pool_size": 3, "strides": 2, "padding": "same"})]]
POOLS += [(name, (2, 5, 3) if name.endswith("1D") else (2, 3, 4, 3), args)
          for name in ("GlobalMaxPooling1D", "GlobalAveragePooling1D", "GlobalMaxPooling2D")
          for args in ({}, {"keepdims": True})]

MOVEMENT = [
    ("ZeroPadding2D", (2, 3, 4, 2), {}),
    ("ZeroPadding2D", (2, 3, 4, 2), {"padding": [1, 2]}),
    ("ZeroPadding2D", (2, 3, 4, 2), {"padding": [[1, 0], [2, 3]]}),
    ("Cropping2D", (2, 5, 6, 2), {"cropping": 1}),
    ("Cropping2D", (2, 5, 6, 2), {"cropping": [[1, 0], [2, 1]]}),
    ("UpSampling2D", (2, 3, 4, 2), {}),
    ("UpSampling2D", (1, 3, 4, 2), {"size": [3, 2]}),
    ("Permute", (2, 3, 4), {"dims": [2, 1]}),
    ("Permute", (2, 3, 2, 4), {"dims": [3, 1, 2]}),
    ("Flatten", (2, 3, 4), {}),
    ("Reshape", (2, 3, 4), {"target_shape": [6, 2]}),
]

NORMALISATION = [
    ("LayerNormalization", (3, 5), {}),
    ("LayerNormalization", (2, 4, 5), {"epsilon": 1e-2}),
    ("LayerNormalization", (2, 4, 5), {"axis": 1}),
    ("LayerNormalization", (2, 3, 4, 2), {"axis": [1, 3]}),
    ("LayerNormalization", (3, 5), {"center": False}),
    ("LayerNormalization", (3, 5), {"scale": False}),
    ("PReLU", (4, 6), {}),
    ("PReLU", (2, 3, 4, 2), {"shared_axes": [1, 2]}),
]

MERGES = [(name, shapes, {}) for name in ("Add", "Multiply", "Average", "Maximum")
          for shapes in ([(3, 4), (3, 4), (3, 4)], [(2, 3, 4), (2, 1, 4)], [(2, 4), (2, 3, 4)])]
MERGES += [("Subtract", [(3, 4), (3, 4)], {}), ("Subtract", [(2, 3, 4), (2, 3, 1)], {}),
           ("Concatenate", [(3, 4), (3, 2), (3, 1)], {}),
           ("Concatenate", [(2, 3, 4), (2, 2, 4)], {"axis": 1}),
           ("Dot", [(3, 4), (3, 4)], {"axes": 1}),
           ("Dot", [(3, 4), (3, 4)], {"axes": 1, "normalize": True}),
           ("Dot", [(2, 3, 4), (2, 4, 5)], {"axes": [2, 1]}),
           ("Dot", [(2, 3, 4), (2, 5, 4)], {"axes": -1, "normalize": True})]


def _bilinear_case(shape, size):
    """Computed by PyTorch, because TensorFlow interpolates in float32."""
    source, upstream = hashed.recipe(INPUT_SALT), hashed.recipe(UPSTREAM_SALT)
    x = torch.tensor(hashed.of_recipe(source, shape), requires_grad=True)
    y = torch.nn.functional.interpolate(x.permute(0, 3, 1, 2), scale_factor=tuple(size),
                                        mode="bilinear").permute(0, 2, 3, 1)
    (y * torch.tensor(hashed.of_recipe(upstream, tuple(y.shape)))).sum().backward()
    return {"layer": "UpSampling2D", "args": {"size": size, "interpolation": "bilinear"},
            "input_shape": list(shape), "input": source, "weights": [], "upstream": upstream,
            "output_shape": list(y.shape), "output": y.detach().numpy(),
            "input_gradient": x.grad.numpy(), "weight_gradients": []}


def more_layers():
    """The set `more_layers`."""
    compute_in("float64")
    cases = [_case(*row) for row in CONVOLUTIONS + POOLS + MOVEMENT + NORMALISATION]
    cases += [_bilinear_case((1, 3, 4, 2), [2, 3]), _bilinear_case((2, 1, 5, 2), [3, 2])]
    return {"cases": cases, "merges": [merge_case(*row) for row in MERGES],
            "embeddings": [embedding_case((4,), 6, 3), embedding_case((2, 3), 6, 3)]}


SETS = {"more_layers": (more_layers, """
cases[i]: as in layers.lua. merges[i]: a layer with several inputs; inputs[k] is the recipe of input k
of input_shapes[k], input_gradients[k] its gradient. embeddings[i]: as in
merge_layers.lua. Axes count as in Keras: from 0, with the batch.""")}
