"""Computes the golden sets with Keras: python make_golden.py [set ...] (default: all of them).

A set is two files beside this one: SET.lua describes the cases, SET.safetensors holds the numbers.
Both say which versions of Keras and TensorFlow they came from. The packages of requirements.txt
must be installed, best in a virtual environment outside the tree.
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
import tensor_file  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = [
    "nets",
    "layer_cases",
    "optimizer_cases",
    "schedule_cases",
    "loss_cases",
    "loss_form_cases",
    "initializer_cases",
    "functional_cases",
    "more_layer_cases",
    "metric_cases",
    "conv_layer_cases",
    "merge_cases",
    "mixed_cases",
    "callback_cases",
    "constraint_cases",
    "tensorboard_cases",
    "masking_cases",
    "masked_metric_cases",
    "zoo_cases",
    "image_op_cases",
    "image_layer_cases",
    "flow_cases",
    "augmentation_cases",
    "tensor_op_cases",
    "preprocessing_cases",
    "recurrent_cases",
]


def write(name, origin, note, value):
    """Writes the two files of a set."""
    numbers = {}
    cases = tensor_file.split(value, numbers)
    comment = f"""{origin}: the cases of this set. Their numbers are in {name}.safetensors, by their
path in this table. Written by make_golden.py. A recipe {{ salt, scale = 1, offset = 0 }} stands for
numbers of hash.lua.\n\n{note.strip()}"""
    path = os.path.join(HERE, name)
    lua_table.write(path + ".lua", comment, cases)
    tensor_file.write(path + ".safetensors", numbers,
                      {"origin": origin, "set": name, "writer": "tests/golden/make_golden.py"})


def main(wanted):
    """Writes the wanted sets, or all of them."""
    origin = f"Golden values of Keras {keras.__version__} on TensorFlow {tensorflow.__version__}"
    known = {}
    for module in MODULES:
        known.update(importlib.import_module(module).SETS)
    unknown = set(wanted) - set(known)
    if unknown:
        sys.exit(f"unknown set {', '.join(unknown)}; there are {', '.join(known)}")
    for name in wanted or known:
        make, note = known[name]
        write(name, origin, note, make())
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
