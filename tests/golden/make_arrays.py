"""Writes tests/golden/arrays/: small files of arrays whose types tensors do not have, by NumPy, safetensors and h5py,
and expected.npz, what they hold. tests/lua/files/tensor_file_spec.lua compares. Then it reads the files that
build/mgpulua writes (arrays_ours.lua) with the same programs.

    ~/golden/bin/pip install safetensors==0.8.0 h5py==3.16.0 ml_dtypes==0.6.0
    ~/golden/bin/python tests/golden/make_arrays.py

Last run with NumPy 2.4.6, safetensors 0.8.0, h5py 3.16.0, ml_dtypes 0.6.0: all files of ours were read as expected.
"""

import pathlib
import subprocess
import tempfile

import h5py
import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

FOLDER = pathlib.Path(__file__).parent / "arrays"
WIDER = {"int8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
FLOAT8 = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
          "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
          "F8_E8M0": ml_dtypes.float8_e8m0fnu}


def numbers(dtype):
    """The ends of the range and some numbers between them, as 2 x 3."""
    info = np.iinfo(dtype)
    most = min(info.max, 2**63 - 1)
    return np.array([[info.min, 0, 1], [most // 2, most - 1, most]], dtype)


def write_numpy():
    arrays = {}
    for dtype in WIDER:
        x = numbers(dtype)
        arrays |= {dtype: x, f"{dtype}_big": x.astype(x.dtype.newbyteorder(">")),
                   f"{dtype}_fortran": np.asfortranarray(x), f"{dtype}_scalar": x[1, 2], f"{dtype}_empty": x[:0]}
    np.savez(FOLDER / "stored.npz", **arrays)
    np.savez_compressed(FOLDER / "deflated.npz", **{dtype: arrays[dtype] for dtype in WIDER})
    for dtype in WIDER:
        np.save(FOLDER / f"{dtype}.npy", arrays[dtype])
    np.save(FOLDER / "uint16_big.npy", arrays["uint16_big"])
    np.save(FOLDER / "too_large.npy", np.array([1, 2**63 - 1, 2**63, 2**64 - 1], "uint64"))
    refused = {"complex64": np.ones(2, "complex64"), "complex128": np.ones(2, "complex128"), "text": np.array(["ab"]),
               "bytes": np.array([b"ab"]), "longdouble": np.zeros(1, "longdouble"), "void": np.ones(1, ml_dtypes.bfloat16),
               "dates": np.array(["2000-01-01"], "datetime64[D]"), "times": np.array([1], "timedelta64[s]")}
    for name, x in refused.items():
        np.save(FOLDER / f"{name}.npy", x)
    return {name: x.astype(WIDER[name.split("_")[0]]) for name, x in arrays.items()}


def write_safetensors():
    expected = {}
    arrays = {np.dtype(dtype).name: numbers(dtype) for dtype in ["uint8", "int32", "int64", *WIDER]}
    arrays |= {dtype: np.array([[1.5, -2, 0]], dtype) for dtype in ["float16", "float32", "float64"]}
    arrays |= {"bool": np.array([True, False]), "bfloat16": np.array([1.5, -2], ml_dtypes.bfloat16),
               "scalar": np.array(-7, "int8"), "empty": np.zeros((0, 3), "uint32")}
    safetensors.numpy.save_file(arrays, FOLDER / "types.safetensors")
    for name, x in arrays.items():
        wide = WIDER.get(x.dtype.name, "float32" if name == "bfloat16" else x.dtype)
        expected[f"types/{name}"] = x.astype(wide)
    codes = np.arange(256, dtype="uint8")
    safetensors.numpy.save_file({name: codes.view(dtype).reshape(16, 16) for name, dtype in FLOAT8.items()},
                                FOLDER / "float8.safetensors")
    for name, dtype in FLOAT8.items():
        expected[f"float8/{name}"] = codes.view(dtype).astype("float32").reshape(16, 16)
    for name, dtype, shape, size in [("C64", "C64", [2], 16), ("F4", "F4", [4], 2), ("F6", "F6_E2M3", [4], 3)]:
        header = f'{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{size}]}}}}'.replace(" ", "").encode()
        (FOLDER / f"{name}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))
        with safetensors.safe_open(FOLDER / f"{name}.safetensors", "np") as f:  # the package knows them
            assert f.get_slice("x").get_dtype() == dtype
    too_large = np.array([2**63 - 1, 2**64 - 1], "uint64")
    safetensors.numpy.save_file({"x": too_large}, FOLDER / "too_large.safetensors")
    return expected


def write_h5():
    with h5py.File(FOLDER / "types.h5", "w") as f:
        for dtype in WIDER:
            f["ints/" + dtype] = numbers(dtype)
        f["ints/big"] = numbers("int16").astype(">i2")
        f["scalar"] = np.uint16(65535)
        f["empty"] = np.zeros((0, 3), "int8")
        f["yes"] = np.array([True, False])
    single = {"too_large": np.array([5, 2**63], "uint64"), "complex": np.ones(2, "complex64"),
              "colors": np.array([0, 2], h5py.enum_dtype({"red": 0, "green": 1, "blue": 2}, "int8"))}
    lists = np.empty(1, object)
    lists[0] = np.arange(3, dtype="int32")
    single |= {"text": np.array(["ab"], h5py.string_dtype()), "longdouble": np.zeros(1, "longdouble"),
               "lists": lists.astype(h5py.vlen_dtype("int32"))}
    for name, x in single.items():
        with h5py.File(FOLDER / f"{name}.h5", "w") as f:
            f.create_dataset("x", data=x, dtype=x.dtype)


def same(x, wanted):
    x = np.asarray(x)
    assert x.dtype == wanted.dtype and x.shape == wanted.shape and (x == wanted).all(), (x, wanted)


def check_ours():
    """What arrays_ours.lua writes: for each dtype 2 x 3 numbers, a scalar, and an empty array."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["build/mgpulua", "tests/golden/arrays_ours.lua", folder], check=True)
        folder = pathlib.Path(folder)
        for dtype in ["bool", "uint8", "int32", "int64", "float16", "float32", "float64", "bfloat16"]:
            known = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
            wanted = {"group/x": np.array([[0, 1, 1], [1, 0, 1]]).astype(known), "scalar": np.ones((), known),
                      "empty": np.zeros((0, 3), known)}
            found = safetensors.numpy.load_file(folder / f"{dtype}.safetensors")
            with h5py.File(folder / f"{dtype}.h5") as f:
                for name, x in wanted.items():
                    same(found[name], x)
                    same(f[name][()].view(known) if dtype == "bfloat16" else f[name][()], x)
            if dtype != "bfloat16":
                same(np.load(folder / f"{dtype}.npy"), wanted["group/x"])
                with np.load(folder / f"{dtype}.npz") as f:
                    assert set(f.files) == set(wanted)
                    for name, x in wanted.items():
                        same(f[name], x)
    print("the files of build/mgpulua are read by NumPy, safetensors and h5py")


def main():
    FOLDER.mkdir(exist_ok=True)
    expected = {f"npz/{name}": x for name, x in write_numpy().items()} | write_safetensors()
    np.savez_compressed(FOLDER / "expected.npz", **expected)
    write_h5()
    check_ours()
    print(f"NumPy {np.__version__}, safetensors {safetensors.__version__}, h5py {h5py.__version__}, "
          f"ml_dtypes {ml_dtypes.__version__}")


main()
