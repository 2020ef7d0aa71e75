"""The set `tensor_ops`: ops on tensors that mgpu makes of other ops, computed by NumPy and TensorFlow.

A case: the op, its inputs (a recipe of hash.lua, or numbers), its arguments as Lua gives them (axes from 1), the value.
"""

import numpy as np
import tensorflow as tf

import hashed

SALT = 21
TIES = [[3, 1, 3, 2, 1, 3], [0, 0, 5, 5, 0, 5]]


def _x(*shape, salt=SALT):
    return hashed.array(shape, salt)


def _case(op, inputs, args, value):
    given = [{"shape": list(x.shape), "salt": SALT + i} if x.dtype == np.float64 and x.size > 0 else
             {"shape": list(x.shape), "ids": x.reshape(-1).tolist()} for i, x in enumerate(inputs)]
    return {"op": op, "inputs": given, "args": args, "shape": list(np.shape(value)),
            "value": np.asarray(value).reshape(-1)}


def _moved():
    x, y = _x(2, 3, 4), _x(3, 4)
    return [
        _case("flip", [x], {}, np.flip(x)),
        _case("flip", [x], {"axis": [1, 3]}, np.flip(x, (0, 2))),
        _case("roll", [x], {"shift": 5}, np.roll(x, 5)),
        _case("roll", [x], {"shift": -1, "axis": 2}, np.roll(x, -1, 1)),
        _case("roll", [x], {"shift": [1, 6], "axis": [2, -1]}, np.roll(x, (1, 6), (1, 2))),
        _case("tile", [y], {"repeats": [2, 3]}, np.tile(y, (2, 3))),
        _case("tile", [y], {"repeats": [2]}, np.tile(y, 2)),
        _case("tile", [y], {"repeats": [2, 1, 3]}, np.tile(y, (2, 1, 3))),
        _case("repeat_elements", [y], {"repeats": 2}, np.repeat(y, 2)),
        _case("repeat_elements", [y], {"repeats": 3, "axis": 1}, np.repeat(y, 3, 0)),
        _case("repeat_elements", [y], {"repeats": [2, 0, 1, 3], "axis": -1}, np.repeat(y, [2, 0, 1, 3], 1)),
    ]


def _matrices():
    x, y, v = _x(2, 3, 4), _x(3, 4), _x(3)
    cases = [_case("diag", [v], {"offset": k}, np.diag(v, k)) for k in (0, 2, -1)]
    for k in (0, 2, -1, 4, -3):
        cases += [_case("diagonal", [x], {"offset": k}, np.diagonal(x, k, 1, 2)),
                  _case("trace", [x], {"offset": k}, np.trace(x, k, 1, 2)),
                  _case("triu", [x], {"k": k}, np.triu(x, k)), _case("tril", [x], {"k": k}, np.tril(x, k))]
    b, c = _x(4, 3, 2, salt=SALT + 1), _x(3, 5, salt=SALT + 1)
    cases += [
        _case("outer", [y, _x(2, salt=SALT + 1)], {}, np.outer(y, _x(2, salt=SALT + 1))),
        _case("tensordot", [x, _x(3, 4, 5, salt=SALT + 1)], {}, np.tensordot(x, _x(3, 4, 5, salt=SALT + 1))),
        _case("tensordot", [x, b], {"axes": [[3, 2], [1, 2]]}, np.tensordot(x, b, ((2, 1), (0, 1)))),
        _case("tensordot", [x, c], {"axes": [2, 1]}, np.tensordot(x, c, (1, 0))),
        _case("tensordot", [v, _x(2, salt=SALT + 1)], {"axes": 0}, np.tensordot(v, _x(2, salt=SALT + 1), 0)),
    ]
    return cases


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,kj", (2, 3), (4, 3)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)), ("ii", (3, 3)), ("ii->i", (3, 3)), ("iij->ji", (3, 3, 2)),
    ("ij->ji", (2, 3)), ("ba", (2, 3)), ("ijk->k", (2, 3, 4)), ("i,i", (4,), (4,)), ("i,j->ij", (2,), (3,)),
    ("i,ij,j->", (2,), (2, 3), (3,)), ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2)),
    ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)), ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("...ij,jk->...ik", (2, 2, 3, 4), (4, 5)), ("i...->...i", (2, 3, 4)), ("...a,...a", (2, 3), (3,)),
    ("ij,ij->ij", (2, 3), (2, 3)), ("ij,ik->jk", (4, 2), (4, 3)), ("ij,k->i", (2, 3), (4,)), (" i j , j -> i ", (2, 3), (3,)),
    ("abc,abd,aed->ce", (2, 3, 2), (2, 3, 4), (2, 2, 4)),
]


def _einsum():
    cases = []
    for equation, *shapes in EQUATIONS:
        inputs = [_x(*s, salt=SALT + i) for i, s in enumerate(shapes)]
        cases.append(_case("einsum", inputs, {"equation": equation}, np.einsum(equation, *inputs)))
    return cases


def _ordered():
    x, ties = _x(3, 4, 5), np.array(TIES)
    cases = []
    for axis in (1, 2, 3):
        cases += [_case("sort", [x], {"axis": axis}, np.sort(x, axis - 1)),
                  _case("argsort", [x], {"axis": axis}, np.argsort(x, axis - 1)),
                  _case("median", [x], {"axis": axis}, np.median(x, axis - 1))]
    cases += [
        _case("sort", [x], {"descending": True}, tf.sort(x, direction="DESCENDING")),
        _case("argsort", [ties], {}, np.argsort(ties, kind="stable")),
        _case("argsort", [ties], {"descending": True}, tf.argsort(ties, direction="DESCENDING", stable=True)),
        _case("top_k", [x], {"k": 3}, tf.math.top_k(x, 3).values),
        _case("top_k_ids", [ties], {"k": 4}, tf.math.top_k(ties, 4).indices),
        _case("median", [x], {}, np.median(x)),
        _case("median", [x], {"axis": [1, 3], "keepdims": True}, np.median(x, (0, 2), keepdims=True)),
        _case("quantile", [x], {"q": 0.3, "axis": 2}, np.quantile(x, 0.3, 1)),
        _case("quantile", [x], {"q": 1.0}, np.quantile(x, 1.0)),
        _case("cumprod", [x], {"axis": 2}, np.cumprod(x, 1)),
        _case("logsumexp", [x], {"axis": [1, 3]}, tf.reduce_logsumexp(x, (0, 2))),
        _case("logsumexp", [x], {"axis": 2, "keepdims": True}, tf.reduce_logsumexp(x, 1, keepdims=True)),
        _case("count_nonzero", [ties], {"axis": 2}, np.count_nonzero(ties, 1)),
    ]
    return cases


def _picked():
    x, ids = _x(2, 3, 4), np.array([[[2, 0, 1, 1]], [[0, 1, 2, 0]]])
    low = np.array([[[1], [0]], [[2], [2]]])
    at, pairs = np.array([[1], [2], [1]]), np.array([[0, 2], [1, 1], [1, 2]])
    return [
        _case("take_along_axis", [x, ids], {"axis": 2}, np.take_along_axis(x, ids, 1)),
        _case("take_along_axis", [x, low], {"axis": 2}, np.take_along_axis(x, low, 1)),
        _case("take_along_axis", [x, low[:1]], {"axis": 2}, np.take_along_axis(x, low[:1], 1)),
        _case("slice_rows", [x, np.array([[1, 0], [0, 2]])], {"size": [2, 2]},
              np.stack([x[0, 1:3, 0:2], x[1, 0:2, 2:4]])),
        _case("scatter", [at, _x(3, 4, salt=SALT + 1)], {"shape": [5, 4]},
              tf.scatter_nd(at, _x(3, 4, salt=SALT + 1), (5, 4))),
        _case("scatter_add", [x, pairs, _x(3, 4, salt=SALT + 2)], {},
              tf.tensor_scatter_nd_add(x, pairs, _x(3, 4, salt=SALT + 2))),
        _case("scatter_update", [x, pairs, _x(3, 4, salt=SALT + 2)], {},
              tf.tensor_scatter_nd_update(x, pairs, _x(3, 4, salt=SALT + 2))),
    ]


def tensor_ops():
    """The set `tensor_ops`."""
    return {"cases": _moved() + _matrices() + _einsum() + _ordered() + _picked()}


SETS = {"tensor_ops": (tensor_ops, """
cases[i].value: the op of the inputs, in float64. Input k is array(shape, salt), or integers `ids`. args: the options of
mgpu, by name. top_k_ids: the second result of top_k.""")}
