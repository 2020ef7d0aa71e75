"""Writes ONNX's own tests of single ops (onnx.backend.test.case.node) for tests/onnx_nodes.lua: FOLDER/nodes.zip has the
models, as NAME.onnx, and FOLDER/nodes.npz their inputs and outputs, as NAME/in/X and NAME/out/Y.

    python -m venv ~/onnx && ~/onnx/bin/pip install onnx==1.23.2
    ~/onnx/bin/python tests/golden/make_onnx_nodes.py /tmp/nodes                # all of them
    build/mgpulua tests/onnx_nodes.lua /tmp/nodes                               # how many pass
    ~/onnx/bin/python tests/golden/make_onnx_nodes.py tests/golden/onnx_nodes tests/golden/onnx_nodes/names.txt

names.txt lists the tests that are committed here, a name a line: two small ones of each op. Tests with inputs or outputs
that are no tensors of a dtype that mgpulua has (strings, sequences, int8, bfloat16 ...) are in nodes.zip only.
"""
import io
import os
import sys
import warnings
import zipfile

import numpy as np
import onnx

DTYPES = {"float32", "float64", "float16", "int32", "int64", "uint8", "bool"}


def arrays_of(case):
    """The arrays of the first data set by name, or None."""
    arrays = {}
    for part, infos, values in zip(("in", "out"), (case.model.graph.input, case.model.graph.output), case.data_sets[0]):
        for info, value in zip(infos, values):
            if value is None:
                continue
            if isinstance(value, onnx.TensorProto):
                value = onnx.numpy_helper.to_array(value)
            if not isinstance(value, (np.ndarray, np.generic)) or value.dtype.name not in DTYPES:
                return None
            arrays[f"{case.name}/{part}/{info.name}"] = np.asarray(value)
    return arrays


def add(archive, name, data):
    archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


def main(folder, names=None):
    warnings.filterwarnings("ignore")
    from onnx.backend.test.case.node import collect_testcases

    wanted = names and set(open(names).read().split())
    os.makedirs(folder, exist_ok=True)
    with zipfile.ZipFile(os.path.join(folder, "nodes.zip"), "w") as models, \
            zipfile.ZipFile(os.path.join(folder, "nodes.npz"), "w") as data:
        for case in sorted(collect_testcases(None), key=lambda case: case.name):
            if wanted and case.name not in wanted:
                continue
            add(models, case.name + ".onnx", case.model.SerializeToString())
            for key, array in (arrays_of(case) or {}).items():
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, array)
                add(data, key + ".npy", buffer.getvalue())


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 1 else sys.exit(__doc__)
