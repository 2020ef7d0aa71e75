"""Element sequences of tf.data: what chains of datasets without randomness give.

A chain is a list of steps, the first a source. Python runs it with tf.data here, and
tests/lua/data/flow_golden_spec.lua runs it with mgpu.data.
"""

import tensorflow as tf

Dataset = tf.data.Dataset

PREDICATES = {
    "even": lambda x: x % 2 == 0,
    "above_3": lambda x: x > 3,
    "none": lambda x: x < 0,
    "sum_even": lambda x: tf.reduce_sum(x) % 2 == 0,
    "first_even": lambda x, y: x % 2 == 0,
}
MAPS = {
    "double": lambda x: x * 2,
    "with_square": lambda x: (x, x * x),
    "swap": lambda x, y: (y, x),
    "nest": lambda x, y: ((x, y), x + y),
}


def _ragged(lengths):
    """Element i is the numbers 1 .. lengths[i]."""
    rows = tf.ragged.constant([list(range(1, n + 1)) for n in lengths], dtype=tf.int32)
    return Dataset.from_tensor_slices(rows).map(lambda x: x)


def _padded_batch(ds, s):
    shapes = s.get("padded_shapes")
    spec = ds.element_spec
    if shapes is not None:
        shapes = [None if d == -1 else d for d in shapes]
    elif isinstance(spec, tf.TensorSpec):
        shapes = spec.shape
    else:
        shapes = tuple(t.shape for t in spec)
    value = s.get("padding_values")
    return ds.padded_batch(s["n"], shapes, padding_values=value,
                           drop_remainder=s.get("drop_remainder", False))


def _window(ds, s):
    """Our windows are batches; tf.data's are datasets, which are batched here."""
    windows = ds.window(s["n"], s.get("shift"), s.get("stride", 1), s.get("drop_remainder", False))
    return windows.flat_map(lambda *parts: Dataset.zip(tuple(w.batch(s["n"]) for w in parts))
                            if len(parts) > 1 else parts[0].batch(s["n"]))


STEPS = {
    "range": lambda _, s: Dataset.range(s["n"]),
    "pairs": lambda _, s: Dataset.from_tensor_slices((tf.range(s["n"]), tf.range(s["n"]) + 10)),
    "rows": lambda _, s: Dataset.from_tensor_slices(tf.reshape(tf.range(s["n"] * s["size"]), [s["n"], -1])),
    "ragged": lambda _, s: _ragged(s["lengths"]),
    "zip": lambda _, s: Dataset.zip(tuple(build(c) for c in s["of"])),
    "concatenate": lambda ds, s: ds.concatenate(build(s["with"])),
    "interleave": lambda _, s: _interleave([build(c) for c in s["of"]], s),
    "flat_map": lambda ds, s: ds.flat_map(Dataset.range),
    "interleave_map": lambda ds, s: ds.interleave(Dataset.range, s["cycle_length"], s.get("block_length", 1)),
    "filter": lambda ds, s: ds.filter(PREDICATES[s["by"]]),
    "map": lambda ds, s: ds.map(MAPS[s["by"]]),
    "batch": lambda ds, s: ds.batch(s["n"], s.get("drop_remainder", False)),
    "unbatch": lambda ds, s: ds.unbatch(),
    "padded_batch": _padded_batch,
    "window": _window,
    "take": lambda ds, s: ds.take(s["n"]),
    "skip": lambda ds, s: ds.skip(s["n"]),
    "shard": lambda ds, s: ds.shard(s["n"], s["i"] - 1),
    "cycle": lambda ds, s: ds.repeat(s.get("n")),
    "cache": lambda ds, s: ds.cache(),
    "enumerate": lambda ds, s: ds.enumerate(s.get("start", 0)),
}


def _interleave(datasets, s):
    """Datasets of tf.data as elements of a dataset: by their numbers."""
    numbers = Dataset.range(len(datasets))

    def choose(i):
        result = datasets[0].map(lambda *e: (tf.constant(0, tf.int64), e if len(e) > 1 else e[0])).take(0)
        for k, ds in enumerate(datasets):
            tagged = ds.map(lambda *e: (tf.constant(0, tf.int64), e if len(e) > 1 else e[0]))
            result = result.concatenate(tagged.take(tf.where(i == k, tf.constant(-1, tf.int64), 0)))
        return result

    return numbers.interleave(choose, s.get("cycle_length", len(datasets)), s.get("block_length", 1)) \
        .map(lambda _, e: e)


def build(chain):
    ds = None
    for step in chain:
        ds = STEPS[step["op"]](ds, step)
    return ds


def _plain(value):
    """Tensors as nested lists, in which components are lists, too."""
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value.numpy().tolist()


def step(op, n=None, **options):
    given = {"op": op}
    if n is not None:
        given["n"] = n
    given.update(options)
    return given


def _chains():
    r10, even = step("range", 10), step("filter", by="even")
    evens = [r10, even]
    small = [step("range", 3), step("map", by="double")]
    yield evens
    yield evens + [step("batch", 2)]
    yield evens + [step("batch", 2, drop_remainder=True)]
    yield evens + [step("batch", 5)]
    yield evens + [step("batch", 2), step("batch", 2, drop_remainder=True)]
    yield evens + [step("batch", 2), step("unbatch")]
    yield [r10, step("batch", 3), step("filter", by="sum_even")]
    yield [r10, step("batch", 3), step("filter", by="sum_even"), step("unbatch"), step("batch", 4)]
    yield [r10, step("filter", by="none"), step("batch", 2)]
    yield [r10, step("filter", by="above_3"), step("take", 3)]
    yield [r10, step("filter", by="above_3"), step("take", 30)]
    yield [r10, step("filter", by="above_3"), step("skip", 2)]
    yield [r10, step("filter", by="above_3"), step("skip", 20)]
    yield [r10, step("take", 6), even, step("skip", 1), step("cycle", 3), step("take", 5)]
    yield evens + [step("cycle", 2)]
    yield evens + [step("cycle"), step("take", 8)]
    yield evens + [step("cycle", 0)]
    yield [r10, step("filter", by="none"), step("cycle")]
    yield evens + [step("shard", 2, i=1)]
    yield evens + [step("shard", 2, i=2)]
    yield evens + [step("shard", 7, i=6)]
    yield evens + [step("shard", 3, i=3), step("batch", 2)]
    yield evens + [step("cache"), step("cycle", 2), step("map", by="double")]
    yield evens + [step("enumerate")]
    yield evens + [step("enumerate", start=5), step("skip", 2)]
    pairs = step("pairs", 8)
    yield [r10, step("batch", 3), step("unbatch"), step("batch", 4)]
    yield [r10, step("batch", 4, drop_remainder=True), step("unbatch"), step("skip", 3)]
    yield [r10, step("shard", 3, i=2), step("batch", 2)]
    yield [r10, step("skip", 3), step("shard", 3, i=3), step("cycle", 2), step("skip", 1), step("take", 2)]
    yield [r10, step("batch", 2), step("shard", 2, i=2), step("unbatch"), step("cycle"), step("take", 9)]
    yield [pairs, step("batch", 2), step("window", 2, shift=1)]
    yield [pairs, step("window", 2, shift=1, drop_remainder=True), step("batch", 3), step("shard", 2, i=1)]
    yield [pairs, step("window", 3, shift=2), step("unbatch"), step("skip", 2), step("window", 2)]
    yield [pairs, step("cache"), step("shard", 4, i=4), step("cycle", 2), step("enumerate")]
    yield [step("zip", of=[[r10], [step("range", 4)]]), step("batch", 3), step("unbatch"), step("window", 2)]
    yield [step("zip", of=[[pairs], [r10, step("take", 3)]]), step("cycle", 2)]
    yield [r10, step("take", 3), step("concatenate", **{"with": [step("range", 4)]}), step("shard", 2, i=2)]
    yield [step("range", 3), step("concatenate", **{"with": [step("range", 4)]}), step("batch", 2), step("cycle", 2)]
    for options in ({}, {"drop_remainder": True}, {"shift": 1}, {"shift": 1, "drop_remainder": True},
                    {"shift": 2, "stride": 2}, {"shift": 2, "stride": 2, "drop_remainder": True},
                    {"shift": 4}, {"shift": 5, "stride": 3, "drop_remainder": False}):
        yield evens + [step("window", 3, **options)]
        yield [r10, step("window", 3, **options)]
        yield [step("pairs", 8), step("map", by="swap"), step("filter", by="first_even"),
               step("window", 2, **options)]
    yield [step("rows", 5, size=3), step("filter", by="sum_even"), step("batch", 2)]
    yield [step("rows", 6, size=3), step("unbatch"), even, step("batch", 4)]
    ragged = step("ragged", lengths=[1, 3, 0, 2, 5])
    yield [ragged, step("padded_batch", 2)]
    yield [ragged, step("padded_batch", 2, drop_remainder=True)]
    yield [ragged, step("padded_batch", 3, padded_shapes=[6])]
    yield [ragged, step("padded_batch", 5, padded_shapes=[-1], padding_values=-1)]
    yield [ragged, step("filter", by="sum_even"), step("padded_batch", 4, padding_values=9)]
    yield [ragged, step("unbatch")]
    yield [ragged, step("unbatch"), step("batch", 4)]
    yield [ragged, step("padded_batch", 2), step("padded_batch", 2, padded_shapes=[-1, -1], padding_values=7)]
    yield [ragged, step("filter", by="sum_even"), step("padded_batch", 2), step("unbatch")]
    yield [step("zip", of=[evens, [r10]])]
    yield [step("zip", of=[evens, small])]
    yield [step("zip", of=[evens, small, [step("pairs", 5)]])]
    yield [step("zip", of=[[step("zip", of=[evens, [r10]])], [r10]]), step("batch", 2)]
    yield [step("zip", of=[evens + [step("batch", 2)], [r10, step("batch", 2)]]), step("take", 2), step("unbatch")]
    yield [step("zip", of=[evens + [step("cycle")], [r10]]), step("skip", 3), step("take", 4)]
    yield [step("pairs", 9), step("filter", by="first_even"), step("map", by="nest"), step("take", 4),
           step("batch", 3)]
    yield [pairs, step("map", by="nest"), step("take", 4), step("batch", 3), step("cycle", 2)]
    yield [pairs, step("map", by="nest"), step("batch", 3), step("unbatch"), step("skip", 2)]
    yield evens + [step("concatenate", **{"with": small})]
    yield small + [step("concatenate", **{"with": evens}), step("batch", 3)]
    yield small + [step("concatenate", **{"with": [r10, step("take", 0)]}),
                   step("concatenate", **{"with": evens}), step("skip", 4), step("shard", 2, i=2)]
    for cycle_length in (1, 2, 3, 5):
        for block_length in (1, 2, 4):
            yield [step("interleave", of=[evens, small, [r10], [step("range", 4)], [step("range", 1)]],
                        cycle_length=cycle_length, block_length=block_length)]
    yield [step("interleave", of=[evens, [step("range", 0)], small])]
    yield [step("interleave", of=[[step("pairs", 3)], [step("pairs", 2)]]), step("batch", 2)]
    yield [step("range", 5), step("flat_map")]
    yield [step("range", 6), even, step("flat_map"), step("batch", 3)]
    yield [step("range", 7), step("interleave_map", cycle_length=3, block_length=2)]
    yield [step("range", 7), step("skip", 2), step("interleave_map", cycle_length=2), step("skip", 4)]
    yield [step("range", 4), step("map", by="with_square"), step("filter", by="first_even")]
    yield [step("range", 20), step("batch", 4), step("filter", by="sum_even"), step("skip", 1), step("unbatch"),
           step("window", 4, shift=3, drop_remainder=True), step("take", 4)]


def make():
    """Every chain with its elements; length: the number that tf.data knows without a pass, or -1."""
    cases = []
    for chain in _chains():
        ds = build(chain)
        cases.append({"chain": chain, "elements": [_plain(e) for e in ds],
                      "length": max(int(ds.cardinality()), -1)})
    return {"cases": cases}


SETS = {"flow": (make, """cases[i]: a chain of datasets, its elements (a list of components where there are
several), and its length if it is known without a pass, or -1. shard's i counts from 1; a window is a batch.""")}
