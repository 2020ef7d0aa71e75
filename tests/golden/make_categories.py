"""Writes categories/values.json: what Keras's layers for categories return. keras 3.15.1, tensorflow-cpu 2.21.0.

    python make_categories.py   # in an environment with these versions
"""
import json
import os

import keras
import numpy as np

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "categories")
L = keras.layers
TEXTS = ["", "a", "abcd", "caf\u00e9", "exactly sixteen!", "a text of more than 16 bytes", "x" * 33, "y" * 64, "z" * 65,
         "0123456789" * 20]


def listed(y):
    return np.array(y).tolist()


def main():
    out = {"texts": TEXTS, "hashing": [], "crossing": [], "discretization": [], "encoding": []}
    for options in [{}, {"salt": 133}, {"salt": [7, -5]}, {"mask_value": "a"}]:
        y = L.Hashing(1000003, **options)(np.array(TEXTS))
        out["hashing"].append({"options": options, "bins": listed(y)})
    out["numbers"] = [-5, 0, 7, 123456789]
    out["hashed_numbers"] = listed(L.Hashing(1000003)(np.array(out["numbers"])))
    out["crossing"] = listed(L.HashedCrossing(1000003)([np.array(TEXTS[:4]), np.array(out["numbers"])]))
    for n, bins, epsilon in [(10, 3, 0.01), (1000, 7, 0.01), (257, 4, 0.1)]:
        layer = L.Discretization(num_bins=bins, epsilon=epsilon)
        layer.adapt((np.arange(n) * 37 % 101).astype("float32"))
        out["discretization"].append({"n": n, "bins": bins, "epsilon": epsilon, "boundaries": layer.bin_boundaries})
    for mode in ["one_hot", "multi_hot", "count"]:
        out["encoding"].append({"mode": mode, "y": listed(L.CategoryEncoding(4, output_mode=mode)([[3, 1, 3], [0, 0, 2]]))})
    data = [["a", "b", "a"], ["c", "b", "d"], ["", "a", "e"]]
    out["documents"], out["asked"], out["lookup"] = data, [["a", "zz", ""], ["e", "b", "b"]], []
    for options in [{}, {"mask_token": ""}, {"num_oov_indices": 3, "max_tokens": 6}, {"output_mode": "multi_hot"},
                    {"output_mode": "count", "mask_token": ""}, {"output_mode": "tf_idf"}, {"output_mode": "one_hot"},
                    {"output_mode": "tf_idf", "max_tokens": 9, "pad_to_max_tokens": True},
                    {"num_oov_indices": 4, "salt": [3, 4], "max_tokens": 6}]:
        layer = L.StringLookup(**options)
        layer.adapt(np.array(data))
        out["lookup"].append({"options": options, "vocabulary": layer.get_vocabulary(),
                              "y": listed(layer(np.array(out["asked"])))})
    out["integers"] = []
    for options in [{"num_oov_indices": 3}, {"num_oov_indices": 3, "oov_method": "farmhash"}, {"mask_token": 0}]:
        layer = L.IntegerLookup(**options)
        layer.adapt(np.array([[5, 7], [7, -9]]))
        out["integers"].append({"options": options, "vocabulary": listed(layer.get_vocabulary()),
                                "y": listed(layer(np.array([[7, 0, -4], [100, -9, 5]])))})
    texts = ["The cat, sat.", "  a cat\tSAT on THE mat!", "\u00c9t\u00e9 d'Or", ""]
    out["sentences"], out["vectorized"] = texts, []
    for options in [{}, {"output_sequence_length": 3}, {"ngrams": 2}, {"output_mode": "count"}, {"max_tokens": 5},
                    {"output_mode": "tf_idf"}, {"split": "character", "standardize": "lower"},
                    {"output_mode": "multi_hot", "max_tokens": 12, "pad_to_max_tokens": True}]:
        layer = L.TextVectorization(**options)
        layer.adapt(texts)
        out["vectorized"].append({"options": options, "vocabulary": layer.get_vocabulary(),
                                  "y": listed(layer(texts + ["new cat"]))})
    os.makedirs(HERE, exist_ok=True)
    with open(os.path.join(HERE, "values.json"), "w") as f:
        json.dump(out, f)


main()
