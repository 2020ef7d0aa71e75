"""The integer hash that golden weights and batches come from (the same in hash.lua).

A value depends on its flat row-major index and a salt only, so that golden files store results and
never inputs. A recipe {salt, scale = 1, offset = 0} stands for the numbers
scale * (2 * unit - 1) + offset, with unit values in [0, 1) from the hash.
"""

import math

import numpy as np


def unit(n, salt):
    """The first n unit values of a salt: doubles in [0, 1)."""
    mask = np.uint64(0xFFFFFFFF)
    z = (np.arange(n, dtype=np.uint64) + np.uint64(salt * 0x9E3779B9 & 0xFFFFFFFF)) & mask
    z ^= z >> np.uint64(16)
    z = (z * np.uint64(0x7FEB352D)) & mask
    z ^= z >> np.uint64(15)
    z = (z * np.uint64(0x846CA68B)) & mask
    z ^= z >> np.uint64(16)
    return z.astype(np.float64) / 2.0**32


def array(shape, salt, scale=1.0, offset=0.0):
    """Doubles scale * centred + offset in a shape."""
    return (scale * (2.0 * unit(math.prod(shape), salt) - 1.0) + offset).reshape(shape)


def labels(n, salt, classes):
    """n class ids from 0 to classes - 1."""
    return np.floor(unit(n, salt) * classes).astype(np.int32)


def recipe(salt, scale=1.0, offset=0.0):
    """A recipe; defaults are left out, as the Lua side has the same ones."""
    given = {"salt": salt, "scale": scale, "offset": offset}
    return {k: v for k, v in given.items() if (k, v) not in (("scale", 1.0), ("offset", 0.0))}


def of_recipe(given, shape):
    """The doubles that a recipe stands for."""
    return array(shape, given["salt"], given.get("scale", 1.0), given.get("offset", 0.0))


def sample_indexes(size, salt, count):
    """count flat indexes (0-based, repeats possible): floor(unit(j, salt) * size)."""
    return np.floor(unit(count, salt) * size).astype(np.int64)
