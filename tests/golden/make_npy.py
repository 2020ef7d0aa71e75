"""Writes tests/golden/npy/: small files of NumPy, which tests/lua/files/npy_spec.lua reads.

    ~/golden/bin/python tests/golden/make_npy.py
"""

import pathlib
import sys

import numpy as np

FOLDER = pathlib.Path(__file__).parent / "npy"


def numbers(dtype):
    """0 to 5, or alternating booleans, as 2 x 3."""
    return (np.arange(6) % 2 if dtype == "bool" else np.arange(6)).reshape(2, 3).astype(dtype)


def main():
    FOLDER.mkdir(exist_ok=True)
    for dtype in ["float64", "float32", "float16", "int64", "int32", "uint8", "bool"]:
        np.save(FOLDER / f"{dtype}.npy", numbers(dtype))
    np.save(FOLDER / "scalar.npy", np.float32(7))
    np.save(FOLDER / "vector.npy", np.arange(3, dtype="float32"))
    np.save(FOLDER / "empty.npy", np.zeros((0, 3), "float32"))
    np.save(FOLDER / "fortran.npy", np.asfortranarray(np.arange(24, dtype="int32").reshape(2, 3, 4)))
    np.save(FOLDER / "big_endian.npy", numbers("float64").astype(">f8"))
    np.save(FOLDER / "int16.npy", numbers("int16"))
    np.save(FOLDER / "structured.npy", np.zeros(2, [("a", "f4")]))
    for version in [(2, 0), (3, 0)]:
        with open(FOLDER / f"version{version[0]}.npy", "wb") as f:
            np.lib.format.write_array(f, numbers("float32"), version)
    np.savez(FOLDER / "stored.npz", **{"a": numbers("float32"), "dense/kernel": numbers("int64")})
    np.savez_compressed(FOLDER / "deflated.npz", a=numbers("float32"), b=np.zeros(1000))
    print(f"NumPy {np.__version__}, Python {sys.version.split()[0]}")


main()
