"""Golden sets of mixed precision: layers under mixed_bfloat16 and mixed_float16, and the steps of a
LossScaleOptimizer.

A layer case is one call layer(x) with hashed float32 weights and input; the gradients are those of
sum(float32(output) * upstream), all of them float32.
"""

import keras
import numpy as np
import tensorflow as tf

import hashed
from layer_cases import weight_recipe
from nets import compute_in

L = keras.layers
INPUT_SALT, UPSTREAM_SALT, WEIGHT_SALT = 510, 520, 530
VALUE_SALT, GRADIENT_SALT = 540, 550

LAYER_NOTE = """cases[i] is one call of a layer under a policy, by Keras's names of the layer and its args.
`input` is the recipe of an array of input_shape (shapes include the batch), weights[k] the recipe of tensor
k of get_weights(), `upstream` the recipe of the gradient with respect to the output. The numbers are
output, input_gradient, weight_gradients (in the order of the trainable weights) and, for a training
step, the moving statistics after it (`after`)."""

STEP_NOTE = """cases[i]: an inner optimizer with args, and initial_scale and dynamic_growth_steps of the
LossScaleOptimizer around it. Variable k (from 0) has shapes[k + 1] and starts as array(value_salt + k). Step s
(from 0) applies the gradients dynamic_scale * array(gradient_salt + 10 s + k); where bad[s + 1] is "inf"
or "nan", the first element of the last gradient becomes that. steps[s + 1]: dynamic_scale, step_counter and
iterations after step s, and all variables' values in one list."""


def _float32(recipe, shape):
    return hashed.of_recipe(recipe, tuple(shape)).astype(np.float32)


def _case(policy, name, shape, args, scale=1.0, **call):
    layer = getattr(L, name)(**args, dtype=policy)
    layer.build(shape)
    source, upstream = hashed.recipe(INPUT_SALT, scale), hashed.recipe(UPSTREAM_SALT)
    recipes = [weight_recipe(w, WEIGHT_SALT + i) for i, w in enumerate(layer.weights)]
    for weight, recipe in zip(layer.weights, recipes):
        weight.assign(_float32(recipe, recipe["shape"]))
    x = tf.constant(_float32(source, shape))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, **call)
        scalar = tf.reduce_sum(tf.cast(y, "float32") * _float32(upstream, y.shape))
    assert y.dtype == layer.compute_dtype != "float32"
    dx, *dw = tape.gradient(scalar, [x] + [w.value for w in layer.trainable_weights])
    assert all(g.dtype == "float32" for g in (dx, *dw))
    case = {"policy": policy, "layer": name, "args": args, "input_shape": list(shape),
            "input": source, "weights": recipes, "upstream": upstream,
            "output": tf.cast(y, "float32").numpy(), "input_gradient": dx.numpy(),
            "weight_gradients": [g.numpy() for g in dw]}
    if call:
        case["training"] = call["training"]
        case["after"] = [w.numpy() for w in layer.weights if not w.trainable]
    return case


LAYERS = [
    ("Dense", (4, 6), {"units": 5}),
    ("Dense", (4, 6), {"units": 5, "activation": "softmax"}),
    ("Dense", (2, 3, 40), {"units": 4, "activation": "relu"}),
    ("Conv2D", (2, 6, 5, 3), {"filters": 4, "kernel_size": [3, 3], "activation": "relu"}),
    ("Conv2D", (1, 7, 6, 2), {"filters": 3, "kernel_size": [3, 2], "strides": [2, 2],
                              "padding": "same"}),
    ("LayerNormalization", (4, 12), {}),
    ("LayerNormalization", (2, 4, 5), {"axis": [1]}),
    ("Softmax", (4, 10), {}),
]


def layers():
    """The set `mixed_layers`: each layer under both policies, batch normalization also in training."""
    cases = []
    compute_in("float32")
    for policy in ("mixed_bfloat16", "mixed_float16"):
        cases += [_case(policy, name, shape, args, 2.0) for name, shape, args in LAYERS]
        cases += [_case(policy, "BatchNormalization", shape, {}, 2.0, training=training)
                  for shape in ((6, 4), (2, 3, 4, 3)) for training in (True, False)]
    return {"cases": cases}


SHAPES = [(2, 3), (4,)]
BAD = ["", "", "", "inf", "", "nan", "nan", "", "", "", "", ""]


def _step_case(name, args, initial_scale, growth):
    inner = getattr(keras.optimizers, name)(**args)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=initial_scale,
                                                    dynamic_growth_steps=growth)
    variables = [keras.Variable(hashed.array(shape, VALUE_SALT + k), dtype="float32")
                 for k, shape in enumerate(SHAPES)]
    steps = []
    optimizer.build(variables)
    for s, bad in enumerate(BAD):
        scale = float(optimizer.dynamic_scale.numpy())
        grads = [(scale * hashed.array(shape, GRADIENT_SALT + 10 * s + k)).astype(np.float32)
                 for k, shape in enumerate(SHAPES)]
        if bad:
            grads[-1][0] = float(bad)
        optimizer.apply([tf.constant(g) for g in grads], variables)
        steps.append({"dynamic_scale": optimizer.dynamic_scale.numpy(),
                      "step_counter": optimizer.step_counter.numpy(),
                      "iterations": optimizer.iterations.numpy(),
                      "values": np.concatenate([v.numpy().ravel() for v in variables])})
    return {"optimizer": name, "args": args, "initial_scale": initial_scale,
            "dynamic_growth_steps": growth, "steps": steps}


def loss_scale():
    """The set `loss_scale`: finite and non-finite gradients, so that the scale falls, rises and rises again."""
    compute_in("float32")
    return {"shapes": [list(s) for s in SHAPES], "bad": BAD, "value_salt": VALUE_SALT,
            "gradient_salt": GRADIENT_SALT,
            "cases": [_step_case("SGD", {"learning_rate": 0.1, "momentum": 0.9}, 64.0, 2),
                      _step_case("Adam", {"learning_rate": 0.01}, 2.0**15, 3),
                      _step_case("SGD", {"learning_rate": 0.1}, 1.0, 1)]}


SETS = {"mixed_layers": (layers, LAYER_NOTE), "loss_scale": (loss_scale, STEP_NOTE)}
