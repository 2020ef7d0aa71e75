"""Golden curve of a functional model in float64: shared and nested layers, two inputs, two outputs."""

import keras
import numpy as np
import tensorflow as tf

import hashed
from nets import compute_in

L = keras.layers
ROWS, STEPS, CLASSES = 6, 5, 3
NOTE = """inputs a {rows, 6} and b {rows, 4}: array(size, 70 + step), array(size, 80 + step) for step
0..steps-1; targets price array(rows, 90 + step), kind labels(rows, 100 + step, 3); sample weights of
price array(rows, 110, 0.5, 1). weights[k]: recipe of get_weights()[k] at the start. curve[step]: total
loss (with loss_weights and the regularizers), losses of price and kind; final[k]: the weights after
all steps of SGD(0.1, momentum 0.9), flat."""


def _exact(regularizer, field, factor):
    """A regularizer whose factor Keras does not round to float32."""
    setattr(regularizer, field, tf.constant(factor, "float64"))
    return regularizer


def _network():
    """Two branches through one shared layer, a nested model, an output that skips it."""
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
    """Set 7."""
    compute_in("float64")
    keras.backend.set_epsilon(1e-7)
    model = _network()
    recipes = []
    for k, w in enumerate(model.weights):
        recipe = {"salt": 60 + k, "scale": 0.5, "offset": 0.0}
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
        curve.append([logs["loss"], logs["price_loss"], logs["kind_loss"]])
    return {"rows": ROWS, "steps": STEPS, "weights": recipes, "curve": curve,
            "final": [w.numpy() for w in model.weights]}


SETS = {"functional": (functional, NOTE)}
