"""Writes tests/golden/texts/: small files in the form of Keras's imdb.npz and reuters.npz, and what Keras loads from
them (expected.lua), which tests/lua/data/texts_spec.lua reads.

    ~/golden/bin/python tests/golden/make_texts.py
"""

import os
import pathlib
import pickle
import sys
import zipfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.dont_write_bytecode = True

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras.src.datasets import imdb, reuters  # noqa: E402

import lua_table  # noqa: E402

FOLDER = pathlib.Path(__file__).parent / "texts"
OPTIONS = [{}, {"num_words": 40}, {"maxlen": 12, "seed": 7}, {"num_words": 300, "skip_top": 5, "oov_char": None},
           {"start_char": None, "index_from": 0}, {"start_char": None, "index_from": 2, "num_words": 100}]


def texts(n, rng):
    """n lists of up to 20 numbers, most of them small, some of four bytes."""
    rows = np.empty(n, dtype=object)
    for i in range(n):
        rows[i] = [int(w) for w in rng.geometric(0.02, 1 + rng.integers(20))] + ([70000 + i] if i % 5 == 0 else [])
    return rows


def npy(array, protocol):
    """The bytes of an .npy file, with a pickle of that protocol."""
    header = {"descr": "|O" if array.dtype == object else "<i8", "fortran_order": False, "shape": array.shape}
    text = repr(header)
    text += " " * (-(len(text) + 11) % 64) + "\n"
    body = pickle.dumps(array, protocol) if array.dtype == object else array.tobytes()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + body


def write(name, arrays, protocol):
    with zipfile.ZipFile(FOLDER / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in arrays.items():
            archive.writestr(zipfile.ZipInfo(key + ".npy", (1980, 1, 1, 0, 0, 0)), npy(array, protocol),
                             zipfile.ZIP_DEFLATED)


def loaded(module, name, options):
    """What Keras returns, as tables."""
    module.get_file = lambda **_: str(FOLDER / name)
    (x, y), (u, v) = module.load_data(**options)
    return {"options": {k: False if o is None else o for k, o in options.items()},
            "train": {"x": [list(map(int, r)) for r in x], "y": [int(k) for k in y]},
            "test": {"x": [list(map(int, r)) for r in u], "y": [int(k) for k in v]}}


def main():
    FOLDER.mkdir(exist_ok=True)
    rng = np.random.default_rng(3)
    parts = {"x_train": texts(23, rng), "y_train": rng.integers(0, 2, 23), "x_test": texts(9, rng),
             "y_test": rng.integers(0, 2, 9)}
    whole = {"x": texts(31, rng), "y": rng.integers(0, 46, 31)}
    for protocol in (3, 4):
        write(f"imdb_{protocol}.npz", parts, protocol)
    write("reuters.npz", whole, 3)
    expected = {"imdb": [loaded(imdb, "imdb_3.npz", o) for o in OPTIONS],
                "reuters": [loaded(reuters, "reuters.npz", o) for o in OPTIONS + [{"test_split": 0.5}]]}
    lua_table.write(FOLDER / "expected.lua", f"What Keras {keras.__version__} loads from the files beside this one. "
                    "Written by make_texts.py. An option that is None in Keras is false.", expected)


main()
