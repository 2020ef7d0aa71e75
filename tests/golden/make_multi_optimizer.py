"""Writes optimizer_files/multi.keras and multi.safetensors: a model of Keras 3.15.1 with a MultiOptimizer whose state
three steps have filled, the data, and its weights after three more steps. tensorflow-cpu 2.21.0.

    python make_multi_optimizer.py         # writes the files
    python make_multi_optimizer.py FILE    # loads the file that multi_optimizer_spec.lua keeps with MGPU_KEEP=FOLDER,
                                           # trains three steps, and compares with FILE.npz
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np

import tensor_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimizer_files")
O, L = keras.optimizers, keras.layers
X = (np.arange(24).reshape(8, 3) % 7 / 7).astype("float32")
Y = (np.arange(8).reshape(8, 1) % 3).astype("float32")


def step(model):
    for _ in range(3):
        model.train_on_batch(X, Y)


def main():
    keras.utils.set_random_seed(3)
    inner = keras.Sequential([keras.Input((3,)), L.Dense(4, activation="tanh", name="first")], name="body")
    x = keras.Input((3,))
    y = L.Dense(2, name="neck")(inner(x))
    model = keras.Model(x, L.Dense(1, name="head")(y))
    # not in the order of the alphabet; two of one class
    chosen = O.OptimizerMap(O.SGD(0.05, momentum=0.9), {"neck/.*": O.Adam(0.02), "body/.*/kernel": O.RMSprop(0.01),
                                                        "head/bias": O.Adam(0.1, amsgrad=True)})
    model.compile(O.MultiOptimizer(chosen), "mse")
    step(model)
    model.save(os.path.join(HERE, "multi.keras"))
    step(model)
    tensors = {"after/%d" % (i + 1): w.numpy() for i, w in enumerate(model.trainable_weights)}
    tensor_file.write(os.path.join(HERE, "multi.safetensors"), {"x": X, "y": Y, **tensors},
                      {"keras": keras.__version__})


def check(path):
    model = keras.models.load_model(path)
    assert int(model.optimizer.iterations) == 3 and len(model.optimizer.optimizers) == 4
    step(model)
    ours = np.load(path + ".npz")
    for i, w in enumerate(model.trainable_weights):
        difference = np.abs(w.numpy() - ours["w%d" % (i + 1)]).max()
        print(w.path, difference)
        assert difference < 1e-5


if len(sys.argv) > 1:
    check(sys.argv[1])
else:
    main()
