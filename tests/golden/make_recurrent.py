"""Writes recurrent/: small models with recurrent layers in the files of several versions of Keras, and what they predict.

    python make_recurrent.py NAME ENDING...     in an environment of each version; NAME begins the files' names
as NAME = keras3 with keras 3.15.1, keras2 with tensorflow 2.15.1; each with ENDING = .keras and .h5.
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np

import keras

L = keras.layers
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recurrent")


def _chain(*layers, shape=(5, 3)):
    inputs = h = L.Input(shape)
    for layer in layers:
        h = layer(h)
    return keras.models.Model(inputs, h)


def _states():
    first, second = L.Input((5, 3)), L.Input((4, 2))
    y, h, c = L.LSTM(3, return_state=True)(first)
    z = L.LSTM(3, return_sequences=True)(second, initial_state=[h, c])
    return keras.models.Model([first, second], [z, y])


def _masked():
    ids = L.Input((6,), dtype="int32")
    h = L.Embedding(5, 3, mask_zero=True)(ids)
    h = L.Bidirectional(L.LSTM(2, return_sequences=True))(h)
    return keras.models.Model(ids, L.Dense(2)(L.GRU(3)(h)))


MODELS = {
    "chain": lambda: _chain(
        L.LSTM(3, return_sequences=True, go_backwards=True, unit_forget_bias=False, recurrent_activation="hard_sigmoid"),
        L.GRU(3, return_sequences=True), L.SimpleRNN(3, return_sequences=True, dropout=0.1),
        L.RNN([L.GRUCell(2), L.LSTMCell(2)], return_sequences=True), L.GRU(2, reset_after=True, use_bias=False)),
    "both": lambda: _chain(L.Bidirectional(L.LSTM(2, return_sequences=True)), L.Bidirectional(L.GRU(2), merge_mode=None)),
    "states": _states,
    "masked": _masked,
}


def main(name, endings):
    rng = np.random.RandomState(0)
    for kind, make in MODELS.items():
        keras.backend.clear_session()
        model = make()
        model.set_weights([rng.uniform(-0.7, 0.7, w.shape).astype("float32") for w in model.get_weights()])
        xs = [rng.uniform(-1, 1, (3,) + tuple(int(n) for n in i.shape[1:])).astype("float32") for i in model.inputs]
        if kind == "masked":
            xs = [np.array([[1, 2, 0, 0, 0, 0], [0, 1, 2, 3, 4, 1], [0, 0, 0, 0, 0, 0]], "int32")]
        ys = model.predict(xs if len(xs) > 1 else xs[0])
        ys = list(ys) if isinstance(ys, (list, tuple)) else [ys]
        path = os.path.join(HERE, f"{name}_{kind}")
        np.savez(path + ".npz", **{f"x{i}": x for i, x in enumerate(xs)}, **{f"y{i}": y for i, y in enumerate(ys)})
        for ending in endings:
            model.save(path + ending)
    print(keras.__version__)


if __name__ == "__main__":
    os.makedirs(HERE, exist_ok=True)
    main(sys.argv[1], sys.argv[2:])
