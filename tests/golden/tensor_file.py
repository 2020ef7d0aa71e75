"""Splits a golden set into its cases and its numbers, and writes the numbers as .safetensors.

Whatever numpy or TensorFlow computed is a number of the set; Python's own values (names, options,
shapes, recipes) describe the cases. A number's name is its path in the set, counted from 1 as Lua
does: cases/3/weight_gradients/1. tests/golden/load.lua puts the numbers back at these paths.

The writer is ours so that equal values give equal bytes: the tensors are sorted, the metadata too.
"""

import json

import numpy as np

NAMES = {"float64": "F64", "float32": "F32", "int32": "I32"}


def _array(value):
    """A number of the set as an array, or None for a value that describes the cases."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    if not isinstance(value, (np.ndarray, np.generic)):
        return None
    value = np.asarray(value)
    if value.dtype == np.int64:
        assert np.array_equal(value, value.astype(np.int32))
        value = value.astype(np.int32)
    if not np.all(np.isfinite(value)):
        raise ValueError("a golden number is not finite")
    return value


def split(value, numbers, path=""):
    """The value without its numbers, which go to the dict `numbers` by their paths.

    A list or dict that held only numbers vanishes (None): load.lua makes it again.
    """
    if isinstance(value, dict):
        items = {k: split(v, numbers, f"{path}/{k}" if path else k) for k, v in value.items()}
        items = {k: v for k, v in items.items() if v is not None}
        return items if items or not value else None
    if isinstance(value, (list, tuple)) and value:
        items = [split(v, numbers, f"{path}/{i}") for i, v in enumerate(value, 1)]
        if all(item is None for item in items):
            return None
        assert None not in items, f"{path} mixes numbers and descriptions"
        return items
    array = _array(value)
    if array is None:
        return value
    numbers[path] = array
    return None


def write(path, numbers, metadata):
    """Writes a safetensors file: 8 bytes of header length, JSON header, little-endian tensors."""
    # Wide types first, so that every tensor is aligned to its own width.
    names = sorted(numbers, key=lambda name: (-numbers[name].itemsize, name))
    header, offset = {"__metadata__": dict(sorted(metadata.items()))}, 0
    for name in names:
        array = numbers[name]
        header[name] = {"dtype": NAMES[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            array = numbers[name]
            file.write(array.astype(array.dtype.newbyteorder("<")).tobytes())
