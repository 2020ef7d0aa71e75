"""Models of Keras 3.15.1 with weights of 8 and 4 bits, for tests/lua/nn/quantized_files_spec.lua.

    python make_quantized.py            writes quantized/NAME.keras and expected.safetensors beside this file
    python make_quantized.py FILE...    loads files NAME.keras that build/mgpulua has written, which the spec keeps with
                                        MGPU_KEEP=FOLDER, and compares their predictions with those of Keras's files

To be run with keras 3.15.1 on jax 0.10.2 (KERAS_BACKEND=jax is set here). expected.safetensors has the inputs ids and x,
and for each model its prediction NAME, and NAME/dense and NAME/table, the weights of these layers before quantize.
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "jax"

import keras as k
import numpy as np

import tensor_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quantized")
L, Q = k.layers, k.quantizers


def layers(ids, inputs):
    """Each class that Keras quantizes, with odd sizes."""
    x = L.Embedding(6, 5, name="table")(ids)
    x = L.Concatenate(name="join")([x, inputs])
    x = L.EinsumDense("abc,cde->abde", (None, 3, 3), bias_axes="e", activation="tanh", name="heads")(x)
    x = L.EinsumDense("abde,def->abf", (None, 7), name="back")(x)
    x = L.EinsumDense("abc,cd->abd", (None, 6), bias_axes="d", name="plain")(x)
    return L.Dense(5, activation="relu", name="dense")(x)


def made(tie):
    """tie: None for a model without a ReversibleEmbedding, else its option tie_weights."""
    ids, inputs = k.Input((4,), dtype="int32", name="ids"), k.Input((4, 6), name="x")
    y = layers(ids, inputs)
    if tie is not None:
        words = L.ReversibleEmbedding(6, 5, tie_weights=tie, logit_soft_cap=None if tie else 3.0, name="words")
        y = words(L.Add(name="sum")([y, words(ids)]), reverse=True)
    else:
        y = L.Dense(3, use_bias=False, name="last")(y)
    return k.Model([ids, inputs], y)


MODELS = {
    "int8": (None, "int8", None),
    "int8_tied": (True, "int8", None),
    "int8_untied": (False, "int8", None),
    "int8_weights": (True, "int8", Q.Int8QuantizationConfig(activation_quantizer=None)),
    "int4": (None, "int4", None),
    "int4_tied": (True, "int4", Q.Int4QuantizationConfig(block_size=4)),
    "int4_untied": (False, "int4", Q.Int4QuantizationConfig(block_size=2)),
    "int4_channels": (True, "int4", Q.Int4QuantizationConfig(block_size=-1)),
    "int4_rounded": (False, "int4", Q.Int4QuantizationConfig(block_size=None, activation_quantizer=Q.AbsMaxQuantizer())),
}


def data():
    rng = np.random.default_rng(3)
    return rng.integers(0, 6, (3, 4)).astype("int32"), rng.uniform(-2, 2, (3, 4, 6)).astype("float32")


def main():
    """Writes the files."""
    os.makedirs(HERE, exist_ok=True)
    ids, x = data()
    numbers = {"ids": ids, "x": x}
    for seed, (name, (tie, mode, config)) in enumerate(MODELS.items()):
        model, rng = made(tie), np.random.default_rng(seed)
        for w in model.weights:
            w.assign(rng.uniform(-0.9, 0.9, w.shape).astype("float32"))
        numbers[name + "/dense"] = model.get_layer("dense").kernel.numpy()
        numbers[name + "/table"] = model.get_layer("table").embeddings.numpy()
        model.quantize(mode, config=config)
        model.save(os.path.join(HERE, name + ".keras"))
        numbers[name] = model.predict([ids, x], verbose=0)
    tensor_file.write(os.path.join(HERE, "expected.safetensors"), numbers,
                      {"origin": f"Keras {k.__version__}", "writer": "tests/golden/make_quantized.py"})


def compare(paths):
    """Compares the predictions of our files with those of Keras's."""
    for path in paths:
        ours = k.models.load_model(path, compile=False)
        theirs = k.models.load_model(os.path.join(HERE, os.path.basename(path)), compile=False)
        worst = np.abs(ours.predict(list(data()), verbose=0) - theirs.predict(list(data()), verbose=0)).max()
        print(path, worst)
        assert worst < 2e-5, path


if __name__ == "__main__":
    compare(sys.argv[1:]) if len(sys.argv) > 1 else main()
