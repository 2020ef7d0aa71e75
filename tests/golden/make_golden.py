"""Writes the golden files beside it from Keras: python make_golden.py [name ...] (default: all).

Needs the packages of requirements.txt, in a virtual environment outside the tree. Files change only
when Keras's answers do; each says which versions it came from.
"""

import importlib
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

sys.dont_write_bytecode = True

import keras  # noqa: E402  (after the environment it reads)
import tensorflow  # noqa: E402

import lua_table  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = ["nets", "layer_cases", "optimizer_cases", "schedule_cases", "loss_cases",
           "initializer_cases", "functional_cases", "more_layer_cases", "metric_cases",
           "conv_layer_cases", "merge_cases", "mixed_cases"]


def main(wanted):
    """Writes the wanted sets, or all."""
    origin = f"Golden values of Keras {keras.__version__} on TensorFlow {tensorflow.__version__}"
    known = {}
    for module in MODULES:
        known.update(importlib.import_module(module).SETS)
    unknown = set(wanted) - set(known)
    if unknown:
        sys.exit(f"unknown set {', '.join(unknown)}; there are {', '.join(known)}")
    for name in wanted or known:
        make, note = known[name]
        comment = f"{origin}, written by make_golden.py. Hashed values: hash.lua.\n\n{note.strip()}"
        lua_table.write(os.path.join(HERE, name + ".lua"), comment, make())
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
