"""Writes categories/text_models/: models whose first layers read texts and whole numbers, what they predict, and their
weights after three steps of SGD. Runs with keras 3.15.1 (tensorflow-cpu 2.21.0) and with tensorflow-cpu 2.15.1, which
has Keras 2.15.

    python make_text_models.py           # writes the models of the version that is installed
    python make_text_models.py FOLDER    # with Keras 3.15.1: loads the files that text_models_spec.lua keeps in FOLDER
                                         # with MGPU_KEEP=FOLDER, and compares what they predict
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf

import tensor_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "categories", "text_models")
L = keras.layers
OLD = keras.__version__.startswith("2")
TEXTS = ["good film", "Bad, bad film!", "what a film", "a good good one", "one", "bad"]
CITIES = ["Rome", "Oslo", "Bonn", "Rome", "Lima", "Oslo"]
CODES = np.array([[3], [5], [-4], [1000], [5], [7]], "int64")
AGES = np.array([[3.5], [20.0], [64.0], [0.0], [18.0], [33.0]], "float32")
Y = np.array([[1], [0], [0], [1], [0], [1]], "float32")


def text_input(shape, name):
    return keras.Input(shape, dtype="string", name=name)


def words():
    vector = L.TextVectorization(name="words", output_sequence_length=4)
    vector.adapt(TEXTS)
    return keras.Sequential([text_input((1,), "text"), vector, L.Embedding(len(vector.get_vocabulary()), 3, mask_zero=True),
                             L.GlobalAveragePooling1D(), L.Dense(1, activation="sigmoid")]), [TEXTS]


def weighted_words():
    vector = L.TextVectorization(name="words", output_mode="tf_idf", ngrams=2)
    vector.adapt(TEXTS)
    return keras.Sequential([text_input((1,), "text"), vector, L.Dense(1)]), [TEXTS]


def columns():
    """One input of each kind, hashes and crosses among them."""
    city, code, age = text_input((1,), "city"), keras.Input((1,), dtype="int64", name="code"), keras.Input((1,), name="age")
    lookup, numbers = L.StringLookup(output_mode="one_hot", name="lookup"), L.IntegerLookup(name="numbers", num_oov_indices=2)
    lookup.adapt(np.array(CITIES))
    numbers.adapt(CODES)
    bins = L.Discretization(bin_boundaries=[18.0, 40.0], name="bins")(age)
    crossed = L.HashedCrossing(7, output_mode="one_hot", name="crossed")([city, bins])
    hashed = L.CategoryEncoding(num_tokens=5, output_mode="multi_hot", name="encoded")(L.Hashing(5, name="hashed")(code))
    known = L.Flatten()(L.Embedding(8, 2, name="known")(numbers(code)))
    y = L.Concatenate()([lookup(city), crossed, hashed, known, age])
    return keras.Model([city, code, age], L.Dense(1)(y)), [CITIES, CODES, AGES]


def scalars():
    """Rows without axes, and lookups that a file's configuration lists."""
    text = text_input((), "text")
    y = L.Embedding(6, 2)(L.StringLookup(vocabulary=["Rome", "Oslo"], num_oov_indices=3)(text))
    return keras.Model(text, L.Dense(1)(y)), [CITIES]


def numbers():
    """Vocabularies of numbers behind other layers."""
    x = keras.Input((2,), dtype="int64", name="x")
    y = L.IntegerLookup(vocabulary=[9, 3, 5], mask_token=0, output_mode="count", name="counted")(x)
    return keras.Model(x, L.Dense(1)(y)), [np.array([[3, 5], [0, 9], [7, 7], [9, 9], [5, 1], [0, 0]], "int64")]


def two():
    """A model inside of another one: both read the same texts."""
    inner, outer = text_input((1,), "inner_text"), text_input((1,), "text")
    vector = L.TextVectorization(output_mode="count", vocabulary=["good", "bad"], name="inner_words")
    model = keras.Model(inner, vector(inner), name="reader")
    return keras.Model(outer, L.Dense(1)(L.Rescaling(0.5)(model(outer)))), [TEXTS]


def shaped(model, inputs):
    """The data as one tensor for each input, of its rank."""
    symbols = model.inputs if isinstance(model.inputs, list) else [model.inputs]
    tensors = [tf.constant(x) for x in inputs]
    tensors = [tf.reshape(x, (-1, 1)) if len(s.shape) > len(x.shape) else x for x, s in zip(tensors, symbols)]
    return tensors[0] if len(tensors) == 1 else tensors


def main():
    os.makedirs(HERE, exist_ok=True)
    suffix = "_k2" if OLD else ""
    tensors = {}
    models = [words, weighted_words, columns, scalars, numbers, two]
    for make in models:
        keras.backend.clear_session()
        keras.utils.set_random_seed(7)
        model, inputs = make()
        x = shaped(model, inputs)
        name = make.__name__ + suffix
        model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
        model.save(os.path.join(HERE, name + ".keras"))
        if make in (scalars, numbers):  # .h5 files have no vocabulary that adapt has chosen
            model.save(os.path.join(HERE, name + ".h5"))
        tensors[make.__name__ + "/y"] = model(x).numpy()
        for _ in range(3):
            model.train_on_batch(x, Y)
        for i, w in enumerate(model.trainable_weights):
            tensors["%s/after/%d" % (make.__name__, i + 1)] = w.numpy()
    tensor_file.write(os.path.join(HERE, "values%s.safetensors" % suffix), tensors, {"keras": keras.__version__})


def check(folder):
    for name in sorted(os.listdir(folder)):
        if not name.endswith((".keras", ".h5")):
            continue
        make = globals()[name.split(".")[0]]
        _, inputs = make()
        model = keras.models.load_model(os.path.join(folder, name), compile=False)
        y = model(shaped(model, inputs)).numpy()
        ours = np.load(os.path.join(folder, name + ".npy"))
        print(name, np.abs(y - ours).max())
        assert np.abs(y - ours).max() < 1e-5


if len(sys.argv) > 1:
    check(sys.argv[1])
else:
    main()
