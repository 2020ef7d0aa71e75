"""Golden set of the layers with several inputs, and of Embedding, in float64."""

import keras
import numpy as np
import tensorflow as tf

import hashed
from layer_cases import INPUT_SALT, L1, UPSTREAM_SALT, _weight_recipe
from nets import compute_in

L = keras.layers

# The input shapes of a case, with the batch. Inputs with fewer axes than others are broadcast.
TOGETHER = [[(3, 4)] * 2, [(2, 3, 4)] * 4, [(2, 3, 4), (2, 1, 4), (2, 3, 1)], [(2, 1, 4), (2, 3, 1)],
            [(2, 4), (2, 3, 4)], [(2, 3, 4), (2, 4), (2, 1)], [(2, 2, 3, 2, 2), (2, 3, 1, 2)], [(3, 2)],
            [(3,), (3, 2)]]

CASES = [(name, shapes, {}) for name in ("Add", "Multiply", "Average", "Maximum")
         for shapes in TOGETHER]
CASES += [("Subtract", shapes, {}) for shapes in TOGETHER if len(shapes) == 2]
CASES += [("Concatenate", shapes, args) for shapes, args in [
    ([(3, 4), (3, 2), (3, 1), (3, 2)], {}),
    ([(2, 3, 4), (2, 3, 1)], {"axis": 2}),
    ([(2, 3, 4), (2, 1, 4), (2, 2, 4)], {"axis": -2}),
    ([(2, 2, 3, 2), (2, 2, 1, 2)], {"axis": 2}),
    ([(2, 3), (3, 3), (1, 3)], {"axis": 0}),
    ([(3, 4)], {})]]
CASES += [("Dot", shapes, {"axes": axes, "normalize": normalize}) for normalize in (False, True)
          for shapes, axes in [
              ([(3, 4), (3, 4)], -1),
              ([(2, 3, 4), (2, 3, 5)], 1),
              ([(2, 3, 4), (2, 5, 3)], [1, 2]),
              ([(2, 3, 4), (2, 5, 4)], [-1, -1]),
              ([(2, 3, 4), (2, 4)], [2, 1]),
              ([(2, 4), (2, 3, 4)], [1, -1]),
              ([(2, 3, 2, 4), (2, 4, 5)], [3, 1])]]


def merge_case(name, shapes, args):
    """One call of a layer with several inputs; input k has the salt INPUT_SALT + k."""
    layer = getattr(L, name)(**args)
    sources = [hashed.recipe(INPUT_SALT + k, 2.0) for k in range(len(shapes))]
    inputs = [tf.constant(hashed.of_recipe(s, shape)) for s, shape in zip(sources, shapes)]
    if name == "Concatenate" and args.get("axis") == 0:  # Keras would refuse to join batches of different sizes
        layer.build = lambda shapes: None
    upstream = hashed.recipe(UPSTREAM_SALT)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = layer(inputs)
        scalar = tf.reduce_sum(y * hashed.of_recipe(upstream, tuple(y.shape)))
    gradients = tape.gradient(scalar, inputs)
    assert y.dtype == "float64"
    return {"layer": name, "args": args, "input_shapes": [list(s) for s in shapes],
            "inputs": sources, "upstream": upstream, "output_shape": list(y.shape), "output": y,
            "input_gradients": [g.numpy() for g in gradients]}


def embedding_case(shape, rows, columns, regularizer=None):
    """One look-up of ids of a shape in a table, with its gradient."""
    layer = L.Embedding(rows, columns, embeddings_regularizer=regularizer)
    layer.build(shape)
    recipe = _weight_recipe(0, layer.weights[0])
    layer.weights[0].assign(hashed.of_recipe(recipe, recipe["shape"]))
    ids = hashed.labels(int(np.prod(shape)), INPUT_SALT, rows).reshape(shape)
    upstream = hashed.recipe(UPSTREAM_SALT)
    with tf.GradientTape() as tape:
        y = layer(tf.constant(ids))
        scalar = tf.reduce_sum(y * hashed.of_recipe(upstream, tuple(y.shape))) + sum(layer.losses)
    gradient = tape.gradient(scalar, layer.trainable_weights[0].value)
    args = {"input_dim": rows, "output_dim": columns}
    if regularizer:
        args["embeddings_regularizer"] = regularizer
    return {"args": args, "shape": list(shape), "ids_salt": INPUT_SALT, "weight": recipe,
            "upstream": upstream, "output_shape": list(y.shape), "output": y,
            "weight_gradient": tf.convert_to_tensor(gradient)}


def merge_layers():
    """The set `merge_layers`."""
    compute_in("float64")
    embeddings = [((5,), 4, 3), ((2, 3), 6, 4), ((2, 3, 2), 3, 2), ((3, 4), 5, 1), ((2, 4), 5, 3, L1)]
    return {"cases": [merge_case(*row) for row in CASES],
            "embeddings": [embedding_case(*row) for row in embeddings]}


SETS = {"merge_layers": (merge_layers, """
cases[i]: a layer with args, by Keras's names. inputs[k] is the recipe of input k of input_shapes[k],
`upstream` the recipe of the gradient with respect to the output. The numbers are output and
input_gradients[k] in float64. embeddings[i]: the ids labels(size, ids_salt, input_dim) of `shape`, looked
up in a table by the recipe `weight`; weight_gradient includes the gradient of the regularizer's loss.
Axes count as in Keras: from 0, with the batch.""")}
