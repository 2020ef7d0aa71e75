"""Golden loss curve of a functional model in float64: shared and nested layers, two inputs, two outputs."""

import keras
import numpy as np
import tensorflow as tf

import hashed
from nets import compute_in

L = keras.layers
ROWS, STEPS, CLASSES = 6, 5, 3
NOTE = """Step s (from 0 to steps - 1) trains on the inputs a = array(70 + s) of {rows, 6} and
b = array(80 + s) of {rows, 4}, the targets price = array(90 + s) and kind = labels(rows, 100 + s, 3), and the
sample weights array(rows, 110, 0.5, 1) of price. weights[k]: recipe of tensor k of get_weights() at
the start. curve[s + 1]: total loss (with loss_weights and regularizers), loss of price, loss of kind;
final[k]: the weights after all steps of SGD(0.1, momentum 0.9)."""


def _exact(regularizer, field, factor):
    """Sets a regularizer's factor in float64; Keras would round it to float32."""
    setattr(regularizer, field, tf.constant(factor, "float64"))
    return regularizer


def _network():
    """Two branches through one shared layer; one output takes a nested model, the other skips it."""
    a, b = keras.Input((6,), name="a"), keras.Input((4,), name="b")
    shared = L.Dense(5, activation="tanh", name="shared",
                     kernel_regularizer=_exact(keras.regularizers.L2(), "l2", 0.01))
    narrow = L.Dense(4, name="narrow",
                     bias_regularizer=_exact(keras.regularizers.L1(), "l1", 0.02))
    u, v = shared(narrow(a)), shared(b)
    inner_input = keras.Input((10,), name="inner_input")
    deep = L.Dense(3, activation="tanh", name="deep",
                   activity_regularizer=_exact(keras.regularizers.L2(), "l2", 0.1))
    inner = keras.Model(inner_input, deep(inner_input), name="inner")
    price = L.Dense(1, name="price")(inner(L.Concatenate(name="both")([u, v])))
    kind = L.Dense(CLASSES, activation="softmax", name="kind")(L.Add(name="sum")([u, v]))
    return keras.Model([a, b], [price, kind], name="two")


def functional():
    """The set `functional`."""
    compute_in("float64")
    keras.backend.set_epsilon(1e-7)
    model = _network()
    recipes = []
    for k, w in enumerate(model.weights):
        recipe = hashed.recipe(60 + k, 0.5)
        recipes.append({"name": w.path, "shape": list(w.shape)} | recipe)
        w.assign(hashed.of_recipe(recipe, tuple(w.shape)))
    optimizer = keras.optimizers.SGD(np.float64(0.1), momentum=0.9)
    optimizer.momentum = np.float64(0.9)
    model.compile(optimizer, loss=["mse", "sparse_categorical_crossentropy"],
                  loss_weights=[1.0, 0.5], run_eagerly=True)
    curve = []
    weight = hashed.array((ROWS,), 110, 0.5, 1.0)
    for step in range(STEPS):
        x = [hashed.array((ROWS, 6), 70 + step), hashed.array((ROWS, 4), 80 + step)]
        y = [hashed.array((ROWS, 1), 90 + step), hashed.labels(ROWS, 100 + step, CLASSES)]
        model.reset_metrics()
        logs = model.train_on_batch(x, y, sample_weight=[weight, np.ones(ROWS)], return_dict=True)
        curve.append(np.array([logs["loss"], logs["price_loss"], logs["kind_loss"]]))
    return {"rows": ROWS, "steps": STEPS, "weights": recipes, "curve": curve,
            "final": [w.numpy() for w in model.weights]}


SETS = {"functional": (functional, NOTE)}
