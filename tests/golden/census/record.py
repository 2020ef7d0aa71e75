"""Runs Keras's own tests and writes what they do as files: see tests/README.md, "Census of Keras".

    python record.py layers FOLDER [WORD]       the tests of layers, or those whose file has WORD in its name
    python record.py calls FOLDER [WORD]        calls of layers in test files without run_layer_test, or with WORD
    python record.py objects FOLDER [WORD]      those of losses, metrics, optimizers and the like
    python record.py few FOLDER N               at most N small records of each class go to records.json
"""

import glob
import inspect
import json
import os
import re
import sys
import types

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import pytest

import layers
import objects

# What the tests import and the wheel does not have.
conftest = types.ModuleType("conftest")
conftest.skip_if_backend = lambda *_: lambda test: test
sys.modules["conftest"] = conftest
sys.modules.setdefault("grain", types.ModuleType("grain"))

SOURCE = os.path.dirname(os.path.abspath(keras.src.__file__))


class LayerTests:
    """Tells the recorder which test runs, and leaves out tests that do not call run_layer_test, if it is about them."""

    def __init__(self, recorder, only):
        self.recorder, self.only = recorder, only

    def pytest_collection_modifyitems(self, items):
        if self.only:
            items[:] = [item for item in items
                        if "run_layer_test" in inspect.getsource(inspect.unwrap(item.function))]

    def pytest_runtest_setup(self, item):
        self.recorder.current = f"{os.path.relpath(str(item.fspath), SOURCE)}::{item.name}"


class ObjectTests:
    """Tells the recorder when a test begins and ends."""

    def __init__(self, recorder):
        self.recorder = recorder

    def pytest_runtest_call(self, item):
        self.recorder.begin(f"{os.path.relpath(str(item.fspath), SOURCE)}::{item.name}")

    def pytest_runtest_teardown(self):
        self.recorder.end()


def tests_of(folders, word):
    files = [f for each in folders for f in glob.glob(os.path.join(SOURCE, each, "**", "*_test.py"), recursive=True)]
    return sorted(f for f in files if word in f)


def run(files, plugin):
    pytest.main(["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", "--no-header", "--tb=line", "-W",
                 "ignore", *files], plugins=[plugin])


def record_layers(folder, word):
    """The calls of run_layer_test."""
    from keras.src import testing
    recorder = layers.Recorder(folder)
    testing.TestCase.run_layer_test = lambda *args, **kwargs: recorder.record(*args, **kwargs)
    files = [f for f in tests_of(["layers"], word) if "run_layer_test" in open(f).read()]
    run(files, LayerTests(recorder, True))
    write(folder, recorder.cases)
    return recorder.cases


def record_calls(folder, word):
    """Calls of layers in test files without run_layer_test, or in those with WORD in their names."""
    from keras.src import testing
    recorder = layers.Recorder(folder)
    testing.TestCase.run_layer_test = lambda *args, **kwargs: None
    keras.layers.Layer.__call__ = recorder.watched(keras.layers.Layer.__call__)
    files = [f for f in tests_of(["layers"], word) if word or "run_layer_test" not in open(f).read()]
    run(files, LayerTests(recorder, False))
    write(folder, recorder.cases)
    return recorder.cases


def write(folder, cases):
    with open(os.path.join(folder, "cases.json"), "w") as file:
        json.dump(cases, file, indent=1)


def record_objects(folder, word):
    recorder = objects.Recorder()
    recorder.install()
    run(tests_of(["losses", "metrics", "optimizers", "regularizers", "constraints", "initializers",
                  "activations"], word),
        ObjectTests(recorder))
    with open(os.path.join(folder, "objects.json"), "w") as file:
        json.dump(recorder.records, file)
    return recorder.records


def few(folder, each):
    """Some small records of each class, for records.json beside this file: first those with other options."""
    records, chosen, options = json.load(open(os.path.join(folder, "objects.json"))), {}, set()
    for again in (False, True):
        for record in records:
            text = json.dumps([record["kind"], record.get("object", record.get("options"))], sort_keys=True)
            key = (record["kind"], record["class"])
            small = "left_out" not in record and len(json.dumps(record)) < 2500
            if small and (again or text not in options) and len(chosen.setdefault(key, [])) < each:
                if record not in chosen[key]:
                    options.add(text)
                    chosen[key].append(record)
    found = sorted((r for list_ in chosen.values() for r in list_), key=lambda r: r["number"])
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "records.json"), "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in found) + "\n]\n")
    return found


def nodes_of(function):
    """The classes of the nodes that the function makes in functional models."""
    try:
        return re.findall(r"(\w+)\([^()]*(?:\([^()]*\)[^()]*)*\)\s*\.symbolic_call", inspect.getsource(function))
    except (OSError, TypeError):
        return []


def record_names(folder):
    """The public names of each module."""
    modules = {"layers": keras.layers, "losses": keras.losses, "metrics": keras.metrics,
               "optimizers": keras.optimizers, "schedules": keras.optimizers.schedules,
               "regularizers": keras.regularizers, "constraints": keras.constraints,
               "initializers": keras.initializers, "activations": keras.activations, "callbacks": keras.callbacks,
               "ops": keras.ops}
    names = {key: sorted(n for n in dir(module) if not n.startswith("_") and not inspect.ismodule(getattr(module, n)))
             for key, module in modules.items()}
    names["ops"] = {n: nodes for n in names["ops"] if (nodes := nodes_of(getattr(keras.ops, n)))}
    with open(os.path.join(folder, "names.json"), "w") as file:
        json.dump(names, file, indent=1)


if __name__ == "__main__":
    os.makedirs(sys.argv[2], exist_ok=True)
    if sys.argv[1] == "few":
        print(len(few(sys.argv[2], int(sys.argv[3]))), "records")
        sys.exit()
    what = {"layers": record_layers, "calls": record_calls, "objects": record_objects}[sys.argv[1]]
    record_names(sys.argv[2])
    found = what(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "")
    print(len(found), "cases,", sum("left_out" not in c for c in found), "recorded")
