"""Models of Keras 3.15.1 with low-rank adaptation, for tests/lua/nn/lora_spec.lua.

    python make_lora.py                 writes lora/adapted.keras, adapted.h5 and expected.safetensors beside this file
    python make_lora.py FILE...         loads files that build/mgpulua has written and compares their predictions

To be run with keras 3.15.1 on tensorflow-cpu 2.21.0. expected.safetensors has the input x, the prediction y, the
weights before (a and b are not in the .keras file, which holds the sum in the kernel's place), and those after three
steps of SGD with learning rate 0.05 on the mean square of the output.
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras as k
import numpy as np

import tensor_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lora")
L = k.layers


def made():
    """Each kind of layer that has the options, in two ways."""
    ids = k.Input((7, 9), dtype="int32", name="ids")
    table = L.Embedding(6, 4, lora_rank=2, lora_alpha=2, name="table")
    x = L.Conv2D(4, 2, lora_rank=1, lora_alpha=3, activation="tanh", name="images")(table(ids))
    x = L.Reshape((6, 4, 8), name="grid")(x)
    x = L.EinsumDense("abcd,de->abce", (None, None, 4), bias_axes="e", lora_rank=2, name="einsum")(x)
    x = L.Reshape((2, 3, 4, 4), name="volume")(x)
    volumes = L.Conv3D(2, (1, 2, 2), kernel_regularizer="l2", name="volumes")
    x = L.Reshape((12, 2), name="steps")(volumes(x))
    sequences = L.Conv1D(3, 3, name="sequences")
    dense = L.Dense(2, name="dense")
    model = k.Model(ids, dense(sequences(x)), name="adapted")
    volumes.enable_lora(2, lora_alpha=1)
    sequences.enable_lora(1)
    dense.enable_lora(2)
    return model


def numbers_of(values):
    return {str(i): np.asarray(v) for i, v in enumerate(values, 1)}


def main():
    """Writes the files."""
    os.makedirs(HERE, exist_ok=True)
    model, rng = made(), np.random.default_rng(2)
    for w in model.weights:
        w.assign(rng.uniform(-0.6, 0.6, w.shape).astype("float32"))
    x = rng.integers(0, 6, (2, 7, 9)).astype("int32")
    y = model.predict(x, verbose=0)
    for ending in (".keras", ".h5"):
        model.save(os.path.join(HERE, "adapted" + ending))
    before = numbers_of([w.numpy() for w in model.trainable_weights + model.non_trainable_weights])
    model.compile(optimizer=k.optimizers.SGD(0.05), loss="mse", run_eagerly=True)
    for _ in range(3):
        model.train_on_batch(x, np.zeros_like(y))
    after = numbers_of([w.numpy() for w in model.trainable_weights + model.non_trainable_weights])
    numbers = {}
    tensor_file.split({"x": x, "y": y, "before": before, "after": after}, numbers)
    tensor_file.write(os.path.join(HERE, "expected.safetensors"), numbers,
                      {"origin": f"Keras {k.__version__}", "writer": "tests/golden/make_lora.py"})


def compare(paths):
    """Compares the predictions of our files with those of Keras's."""
    theirs = k.models.load_model(os.path.join(HERE, "adapted.keras"), compile=False)
    x = np.random.default_rng(3).integers(0, 6, (2, 7, 9))
    for path in paths:
        ours = k.models.load_model(path, compile=False)
        worst = np.abs(ours.predict(x, verbose=0) - theirs.predict(x, verbose=0)).max()
        print(path, worst, [layer.lora_rank for layer in ours.layers if hasattr(layer, "lora_rank")])
        assert worst < 2e-5, path


if __name__ == "__main__":
    compare(sys.argv[1:]) if len(sys.argv) > 1 else main()
