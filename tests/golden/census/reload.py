"""Lets Keras load the models that load.lua has written to FOLDER/ours, and compares their predictions.

    python reload.py FOLDER        appends lines to FOLDER/results.tsv: reload.keras and reload.h5
"""

import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
from keras import tree

import layers

TOLERANCE = 2e-5


def verdict(path, arrays):
    try:
        model = keras.models.load_model(path, compile=False)
    except Exception as error:
        return "fail", f"{type(error).__name__}: {str(error).strip()[:300]}"
    x = [arrays[f"x{i}"] for i in range(1, 1 + sum(k[0] == "x" for k in arrays))]
    data = [a.astype(str(s.dtype)) if s.dtype != "string" else a for a, s in zip(x, tree.flatten(model.inputs))]
    try:
        found = layers.outputs_of(model, tree.pack_sequence_as(model.input, data), False)
    except Exception as error:
        return "fail", f"{type(error).__name__}: {str(error).strip()[:300]}"
    wanted = [arrays[f"y{i}"] for i in range(1, 1 + sum(k[0] == "y" for k in arrays))]
    if [a.shape for a in found] != [a.shape for a in wanted]:
        return "differ", f"shapes {[a.shape for a in found]} {[a.shape for a in wanted]}"
    for a, b in zip(found, wanted):
        a, b = a.astype("float64"), b.astype("float64")
        off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b) / np.maximum(1, np.abs(b)))
        if not np.max(off, initial=0) <= TOLERANCE:
            return "differ", f"off by {np.max(off):.2g}"
    return "agree", ""


def main(folder):
    with open(os.path.join(folder, "results.tsv"), "a") as out:
        for case in json.load(open(os.path.join(folder, "cases.json"))):
            base = f"{case['number']:04}"
            for ending in ("keras", "h5"):
                path = os.path.join(folder, "ours", f"{base}.{ending}")
                if os.path.exists(path):
                    arrays = dict(np.load(os.path.join(folder, base + ".npz"), allow_pickle=True))
                    arrays.update({k: np.asarray(v) for k, v in case.get("strings", {}).items()})
                    found, message = verdict(path, arrays)
                    out.write(f"{case['number']}\treload.{ending}\t{found}\t{' '.join(message.split())}\n")


if __name__ == "__main__":
    main(sys.argv[1])
