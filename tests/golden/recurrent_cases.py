"""The set `recurrent`: recurrent layers over a sequence, some steps of which are masked, in float64."""

import keras
import numpy as np
import tensorflow as tf

import hashed
from layer_cases import compute_in

L = keras.layers
STEPS, RATE = 3, 0.2
SEQUENCE = {"return_sequences": True}

# (class, options); an option that is such a pair is a layer
CASES = [
    ("SimpleRNN", {"units": 3}),
    ("SimpleRNN", {"units": 3, "use_bias": False, "activation": "relu"} | SEQUENCE),
    ("LSTM", {"units": 3}),
    ("LSTM", {"units": 3, "return_state": True, "recurrent_activation": "hard_sigmoid"} | SEQUENCE),
    ("LSTM", {"units": 2, "go_backwards": True, "unit_forget_bias": False} | SEQUENCE),
    ("LSTM", {"units": 2, "zero_output_for_mask": True} | SEQUENCE),
    ("LSTM", {"units": 2, "zero_output_for_mask": True}),
    ("LSTM", {"units": 2, "kernel_regularizer": "l2", "recurrent_regularizer": "l1", "bias_regularizer": "l2",
              "kernel_constraint": "non_neg", "activity_regularizer": "l2"}),
    ("GRU", {"units": 3}),
    ("GRU", {"units": 3, "return_state": True} | SEQUENCE),
    ("GRU", {"units": 3, "reset_after": False}),
    ("GRU", {"units": 2, "use_bias": False, "unroll": True, "recurrent_activation": "tanh"}),
    ("GRU", {"units": 2, "reset_after": False, "use_bias": False, "go_backwards": True} | SEQUENCE),
    ("RNN", {"cell": ("LSTMCell", {"units": 2})} | SEQUENCE),
    ("RNN", {"cell": [("GRUCell", {"units": 2}), ("LSTMCell", {"units": 3}), ("SimpleRNNCell", {"units": 2})],
             "return_state": True}),
    ("Bidirectional", {"layer": ("LSTM", {"units": 2} | SEQUENCE)}),
    ("Bidirectional", {"layer": ("GRU", {"units": 2, "return_state": True} | SEQUENCE), "merge_mode": "sum"}),
    ("Bidirectional", {"layer": ("SimpleRNN", {"units": 2}), "merge_mode": "mul"}),
    ("Bidirectional", {"layer": ("GRU", {"units": 2}), "merge_mode": "ave",
                       "backward_layer": ("GRU", {"units": 2, "go_backwards": True, "activation": "relu"})}),
    ("Bidirectional", {"layer": ("LSTM", {"units": 2, "return_state": True}), "merge_mode": None}),
]

# (class, options, input shape), without masks
IMAGES = [
    ("ConvLSTM1D", {"filters": 2, "kernel_size": 3}, (2, 3, 5, 2)),
    ("ConvLSTM1D", {"filters": 1, "kernel_size": 2, "strides": 2, "padding": "same", "return_state": True} | SEQUENCE,
     (2, 3, 5, 1)),
    ("ConvLSTM2D", {"filters": 1, "kernel_size": 2, "padding": "same"} | SEQUENCE, (2, 3, 3, 3, 2)),
    ("ConvLSTM2D", {"filters": 1, "kernel_size": [2, 1], "strides": [1, 2], "use_bias": False, "activation": "relu"},
     (2, 3, 3, 4, 1)),
    ("ConvLSTM2D", {"filters": 1, "kernel_size": 2, "dilation_rate": 2, "go_backwards": True,
                    "unit_forget_bias": False} | SEQUENCE, (2, 2, 4, 4, 1)),
    ("ConvLSTM3D", {"filters": 1, "kernel_size": 2, "padding": "same", "return_state": True} | SEQUENCE,
     (2, 2, 2, 3, 2, 2)),
    ("ConvLSTM3D", {"filters": 1, "kernel_size": [1, 2, 2], "strides": [2, 1, 2], "recurrent_activation": "tanh"},
     (2, 3, 3, 3, 4, 1)),
    ("Bidirectional", {"layer": ("ConvLSTM2D", {"filters": 1, "kernel_size": 2})}, (2, 2, 3, 3, 1)),
]


def _made(value):
    """The options with layers made."""
    if isinstance(value, tuple):
        return getattr(L, value[0])(**{k: _made(v) for k, v in value[1].items()})
    return [_made(v) for v in value] if isinstance(value, list) else value


def _described(value):
    if isinstance(value, tuple):
        return {"class": value[0], "args": {k: _described(v) for k, v in value[1].items()}}
    if value is None:
        return "none"
    return [_described(v) for v in value] if isinstance(value, list) else value


def _flat(y):
    return tf.concat([tf.reshape(t, [-1]) for t in keras.tree.flatten(y)], 0)


def _x(shape, masked):
    x = hashed.array(shape, 10)
    if masked:
        x[0, :1], x[1, 2:] = 0, 0
        x[2] = 0
    return x


def _case(name, args, masked, shape=(4, 4, 2)):
    layer, x = _made((name, args)), _x(shape, masked)
    inputs = keras.Input(shape[1:], dtype="float64")
    model = keras.Model(inputs, layer(L.Masking()(inputs) if masked else inputs))
    weights = [hashed.array(w.shape, 30 + k, 0.7) for k, w in enumerate(model.weights)]
    model.set_weights(weights)
    case = {"class": name, "args": _described((name, args))["args"], "masked": masked, "shape": list(shape)}
    flat = _flat(model(x))
    case["shapes"] = [list(t.shape) for t in keras.tree.flatten(model(x))]
    target = hashed.array(flat.shape, 20)
    for step in range(STEPS):
        variable = tf.Variable(x)
        with tf.GradientTape() as tape:
            y = _flat(model(variable))
            loss = tf.reduce_sum((y - target) ** 2) + sum(layer.losses)
        gradients = tape.gradient(loss, [variable] + [w.value for w in model.weights])
        if step == 0:
            case["output"], case["loss"] = y.numpy(), loss.numpy()
            # a mask hides the gradient of a step that is all zero
            case["gradients"] = [g.numpy() for g in gradients]
        for w, g in zip(model.weights, gradients[1:]):
            w.assign(w - RATE * g / flat.shape[0])
            if w.constraint:
                w.assign(w.constraint(w))
    case["trained"] = [w.numpy() for w in model.weights]
    return case


def recurrent():
    """The set `recurrent`."""
    compute_in("float64")
    cases = [_case(name, args, masked) for name, args in CASES for masked in (False, True)]
    cases += [_case(name, args, False, shape) for name, args, shape in IMAGES]
    return {"steps": STEPS, "rate": RATE, "cases": cases}


SETS = {"recurrent": (recurrent, """
cases[i]: a model of an input of `shape`, Masking if `masked`, and the layer `class` with the options args, where an
option {class =, args =} is a layer. x is array(shape, 10), where of the batch row 1 is 0 in the first step, row 2 from
the third step on, and row 3 everywhere, if masked. Weight k (from 0) is array(size, 30 + k, 0.7). shapes: of the
outputs; output: all of them, flat. loss: sum((output - array(size, 20)) ^ 2) plus the penalties; gradients: of the
input, then of the weights; trained: the weights after `steps` times w - rate * gradient / size(output).""")}
