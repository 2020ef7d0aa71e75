"""Writes the golden set `onnx`: what onnxruntime computes with the models that mgpulua saves.

    ~/golden/bin/python tests/golden/make_onnx.py

The models are those of onnx_cases.lua, written by build/mgpulua. Each passes onnx.checker. The set has the
SHA-256 of each file, so that tests/lua/files/onnx_spec.lua knows that it writes the files that were checked here.
"""

import hashlib
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

import lua_table
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def run(path):
    """The outputs of a model, in its order, by onnxruntime."""
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs = session.run(None, dict(np.load(path.with_suffix(".npz"))))
    return {"outputs": [np.asarray(y, "float32") for y in outputs],
            "shapes": [list(y.shape) for y in outputs],
            "names": [output.name for output in session.get_outputs()],
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def main():
    onnxruntime.set_default_logger_severity(3)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([ROOT / "build/mgpulua", "tests/golden/write_onnx.lua", folder], cwd=ROOT, check=True)
        count = len(list(pathlib.Path(folder).glob("*.onnx")))
        cases = [run(pathlib.Path(folder) / f"{i}.onnx") for i in range(1, count + 1)]
    values, numbers = {"cases": cases}, {}
    origin = f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}"
    comment = f"""What onnxruntime computes with the models of onnx_cases.lua ({origin}): cases[i] is that of case i.
outputs, with the numbers in onnx.safetensors, have these names and shapes; sha256 is that of the file. Written by make_onnx.py."""
    lua_table.write(HERE / "onnx.lua", comment, tensor_file.split(values, numbers))
    tensor_file.write(HERE / "onnx.safetensors", numbers, {"origin": origin, "set": "onnx", "writer": "tests/golden/make_onnx.py"})
    print(f"{count} models")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
