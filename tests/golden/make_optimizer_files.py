"""Models of Keras 3.15.1 with the state of their optimizers, for tests/lua/train/optimizer_files_spec.lua.

    python make_optimizer_files.py            writes optimizer_files/NAME.keras and expected.safetensors beside this file
    python make_optimizer_files.py FOLDER     loads the files NAME.keras there, which build/mgpulua has written, and
                                              compares the weights after three steps

To be run with keras 3.15.1 on tensorflow-cpu 2.21.0. Each model is saved after two steps; expected.safetensors has the
data x and y, and for each NAME the weights NAME/after/1, ... after three steps more.
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras as k
import numpy as np

import tensor_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimizer_files")
L = k.layers
X = (np.arange(15).reshape(3, 5) % 7).astype("float32")
Y = np.sin(np.arange(6).reshape(3, 2)).astype("float32")


def optimizers():
    """By name. Muon trains vectors, embeddings and the layer second with Adam."""
    decay = k.optimizers.schedules.ExponentialDecay(0.02, 3, 0.5)
    return {
        "muon": k.optimizers.Muon(0.02, exclude_layers=["second"], rms_rate=None, use_ema=True),
        "muon_decay": k.optimizers.Muon(decay),
        "adafactor": k.optimizers.Adafactor(0.1, gradient_accumulation_steps=2),
    }


def steps(model, count):
    """Trains, and returns the weights."""
    for _ in range(count):
        model.train_on_batch(X, Y)
    return {str(i): np.asarray(w) for i, w in enumerate(model.get_weights(), 1)}


def main():
    """Writes the files."""
    os.makedirs(HERE, exist_ok=True)
    expected = {"x": X, "y": Y}
    for name, optimizer in optimizers().items():
        k.utils.set_random_seed(1)
        model = k.Sequential([k.Input((5,)), L.Dense(6, activation="tanh", name="embedding"), L.Reshape((3, 2)),
                              L.Conv1D(2, 2, name="conv"), L.Flatten(), L.Dense(3, name="first"),
                              L.Dense(2, name="second")])
        model.compile(optimizer=optimizer, loss="mse")
        steps(model, 2)
        model.save(os.path.join(HERE, name + ".keras"))
        expected[name] = {"after": steps(model, 3)}
    numbers = {}
    tensor_file.split(expected, numbers)
    tensor_file.write(os.path.join(HERE, "expected.safetensors"), numbers,
                      {"origin": f"Keras {k.__version__}", "writer": "tests/golden/make_optimizer_files.py"})


def compare(folder):
    """Trains our files and Keras's."""
    for name in optimizers():
        weights = [steps(k.models.load_model(os.path.join(at, name + ".keras")), 3) for at in (folder, HERE)]
        worst = max(np.abs(weights[0][i] - weights[1][i]).max() for i in weights[0])
        print(name, worst)
        assert worst < 1e-6, name


if __name__ == "__main__":
    compare(sys.argv[1]) if len(sys.argv) > 1 else main()
