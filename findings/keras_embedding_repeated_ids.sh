#!/usr/bin/env bash
# Keras on the TensorFlow backend: an id that occurs n times in a batch takes steps of another length in an Embedding.
#
# Versions: keras 3.15.1 on tensorflow-cpu 2.21.0 and on jax 0.7.2, numpy 2.5.5; Python 3.12.
# Behaviour: with TensorFlow the gradient of an Embedding has a row for each occurrence of an id. Optimizers that square
# gradients square these rows before rows of the same id are added up: Adam's second moment gets g^2 + g^2 in place of
# (g + g)^2. So Adam's first step, which is the learning rate whatever the gradient, is sqrt(n) times that for an id
# that occurs n times. SGD, which squares nothing, is right. The same model with one-hot vectors and a Dense layer, and
# the JAX backend, take the step of the formula. Optimizers of Keras 2 added the rows up first.
# One would guess: the same weights on all backends, and those of the sum of the gradients.
# Whom it hurts: everyone who trains embeddings of words: the steps of a frequent one, which occurs many times in each
# batch, are longer by up to the square root of that, and a model that was tuned on one backend trains otherwise on
# another.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q keras==3.15.1 tensorflow-cpu==2.21.0 jax==0.7.2 jaxlib==0.7.2 numpy==2.5.5

for backend in tensorflow jax; do
  KERAS_BACKEND=$backend TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" - 2>/dev/null <<'PYTHON'
import keras
import numpy as np


def step(optimizer, times, dense):
    """How far one step of rate 0.1 moves the vector of id 0, which occurs so many times."""
    ids = np.zeros((1, times), "int32")
    if dense:
        layer, x = keras.layers.Dense(1, use_bias=False), np.eye(2, dtype="float32")[ids]
    else:
        layer, x = keras.layers.Embedding(2, 1), ids
    model = keras.Sequential([keras.Input(x.shape[1:], dtype=str(x.dtype)), layer])
    layer.set_weights([np.ones((2, 1), "float32")])
    model.compile(getattr(keras.optimizers, optimizer)(learning_rate=0.1), "mse")
    model.train_on_batch(x, np.zeros((1, times, 1), "float32"))
    return "%.3f" % (1 - layer.get_weights()[0][0, 0])


for optimizer in "SGD", "Adam", "RMSprop":
    for dense in False, True:
        steps = [step(optimizer, times, dense) for times in (1, 4, 16)]
        print(keras.backend.backend(), optimizer, "Dense" if dense else "Embedding", "1, 4, 16 times:", *steps)
PYTHON
done | tee "$folder/seen"

sed -n '/^# Output seen/,$ s/^#   //p' "$0" | diff - "$folder/seen"

# Output seen
#   tensorflow SGD Embedding 1, 4, 16 times: 0.200 0.200 0.200
#   tensorflow SGD Dense 1, 4, 16 times: 0.200 0.200 0.200
#   tensorflow Adam Embedding 1, 4, 16 times: 0.100 0.200 0.400
#   tensorflow Adam Dense 1, 4, 16 times: 0.100 0.100 0.100
#   tensorflow RMSprop Embedding 1, 4, 16 times: 0.316 0.632 1.265
#   tensorflow RMSprop Dense 1, 4, 16 times: 0.316 0.316 0.316
#   jax SGD Embedding 1, 4, 16 times: 0.200 0.200 0.200
#   jax SGD Dense 1, 4, 16 times: 0.200 0.200 0.200
#   jax Adam Embedding 1, 4, 16 times: 0.100 0.100 0.100
#   jax Adam Dense 1, 4, 16 times: 0.100 0.100 0.100
#   jax RMSprop Embedding 1, 4, 16 times: 0.316 0.316 0.316
#   jax RMSprop Dense 1, 4, 16 times: 0.316 0.316 0.316
