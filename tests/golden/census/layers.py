"""Keras's own tests of layers as files: each call of run_layer_test becomes a functional model.

Recorder(folder).record takes the place of TestCase.run_layer_test; watched, the one of Layer.__call__, makes such
models of the other calls of layers in the tests, with the weights that they have. For case N it writes N.keras, N.h5
where Keras can, and N.npz: inputs x1, ..., predictions y1, ..., outputs in training t1, ... where they are
deterministic, and the weights after three steps of SGD a1, ... . `cases` describes them all, with the reason for those
that are no files.
"""

import inspect
import os

import keras
import numpy as np
from keras import tree

STEPS = 3
RATE = 0.01
LARGEST = 8 << 20  # bytes of the weights of a case
PUBLIC = {value: name for name, value in vars(keras.layers).items() if inspect.isclass(value)}


class LeftOut(Exception):
    """A case that no file can hold, with the reason."""


def random_data(shape, dtype, rng):
    """As Keras's create_eager_tensors, with numbers below zero among the floats."""
    if "float" in dtype:
        return rng.uniform(-1, 2, shape).astype(dtype)
    return rng.integers(0, 3, shape).astype(dtype)


def is_shape(value):
    return isinstance(value, (list, tuple)) and all(isinstance(size, (int, type(None))) for size in value)


def data_of_shapes(shape, dtype, rng):
    """Numbers in the structure of the shapes: tuples, lists and dicts of shapes."""
    if isinstance(shape, dict):
        types = dtype or {}
        return {k.removesuffix("_shape"): data_of_shapes(s, types.get(k), rng) for k, s in shape.items()}
    if is_shape(shape):
        return random_data([size or 2 for size in shape], dtype or "float32", rng)
    types = dtype or [None] * len(shape)
    return type(shape)(data_of_shapes(s, d, rng) for s, d in zip(shape, types))


def array_of(value):
    """A tensor of any backend or a number as a NumPy array."""
    if type(value).__name__ in ("SparseTensor", "RaggedTensor", "BCOO"):
        raise LeftOut("a sparse or ragged tensor")
    return np.asarray(keras.ops.convert_to_numpy(value) if keras.ops.is_tensor(value) else value)


def stored(value):
    """As array_of, with bfloat16 as float32, which .npz files can hold."""
    array = array_of(value)
    return array.astype("float32") if str(array.dtype) == "bfloat16" else array


def is_leaf_list(value):
    """Whether a list or tuple is an array of numbers rather than a structure of tensors."""
    return isinstance(value, (list, tuple)) and not any(hasattr(item, "shape") for item in tree.flatten(value))


def arrays_of(data):
    """The structure with NumPy arrays; numbers of Python get the dtypes that Keras gives them."""
    def standard(array):
        return array.astype({"float64": "float32", "int64": "int32"}.get(str(array.dtype), array.dtype))
    if is_leaf_list(data) and not isinstance(data, dict):
        return standard(np.asarray(data))
    return tree.map_structure(array_of, data)


def symbolic(data, keep_batch):
    def make(a):
        if a.ndim == 0:
            raise LeftOut("an input without a batch")
        batch = a.shape[0] if keep_batch else None
        dtype = "string" if a.dtype.kind in "UOS" else str(a.dtype)
        return keras.Input(batch_shape=(batch,) + a.shape[1:], dtype=dtype)
    return tree.map_structure(make, data)


def functional(layer_cls, init_kwargs, data, call_kwargs):
    """The model of a layer, with an open batch if the layer can have one."""
    problem = None
    for keep_batch in (False, True):
        layer = layer_cls(**init_kwargs)
        inputs = symbolic(data, keep_batch)
        try:
            outputs = layer(**inputs, **call_kwargs) if isinstance(inputs, dict) and not takes_dict(layer) \
                else layer(inputs, **call_kwargs)
            return keras.Model(inputs, outputs), keep_batch
        except LeftOut:
            raise
        except Exception as error:
            problem = problem or error
    raise LeftOut(f"no functional model: {type(problem).__name__}: {str(problem)[:200]}")


def takes_dict(layer):
    """Whether the call has one argument that is a dictionary, as for the layers of images."""
    names = [p.name for p in inspect.signature(layer.call).parameters.values() if p.default is p.empty]
    return names in (["data"], ["inputs"], ["images"], ["bounding_boxes"])


def randomized(model, seed):
    """Other weights than the initial ones, which are often 0."""
    rng = np.random.default_rng(seed)
    for v in model.weights:
        if "float" not in str(v.dtype) or "seed" in v.path:
            continue
        positive = any(part in v.path for part in ("variance", "gamma", "stddev"))
        low, high = (0.05, 0.5) if positive else (-0.3, 0.3)
        v.assign(np.asarray(v) + rng.uniform(low, high, v.shape).astype(str(v.dtype)))
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Normalization) and layer.built and hasattr(layer, "adapt_mean"):
            layer.finalize_state()  # it computes with copies of its weights


def called(layer, args, kwargs):
    """The model of a call with these arguments, and its inputs: all tensors in them."""
    arguments = (arrays_of(args[0]),) + args[1:], kwargs
    flat = tree.flatten(arguments)
    at = [i for i, value in enumerate(flat) if hasattr(value, "shape") and not hasattr(value, "assign")]
    data = [array_of(flat[i]) for i in at]
    if sum(a.size for a in data) > 1e6:
        raise LeftOut("inputs that are too large for this count")
    problem = None
    for keep_batch in (False, True):
        inputs = symbolic(data, keep_batch)
        for i, x in zip(at, inputs):
            flat[i] = x
        args, kwargs = tree.pack_sequence_as(arguments, flat)
        try:
            return keras.Model(inputs, layer(*args, **kwargs)), data, keep_batch
        except LeftOut:
            raise
        except Exception as error:
            problem = problem or error
    raise LeftOut(f"no functional model: {type(problem).__name__}: {str(problem)[:200]}")


def state_of(model):
    return [np.asarray(v) for v in model.variables]


def restore(model, values):
    for v, value in zip(model.variables, values):
        v.assign(value)


def as_input(array):
    """Strings as TensorFlow's."""
    return keras.ops.convert_to_tensor(array.astype(str).tolist(), "string") if array.dtype.kind in "UOS" else array


def outputs_of(model, data, training):
    try:
        found = model(tree.map_structure(as_input, data), training=training)
    finally:
        for layer in model._flatten_layers():
            if getattr(layer, "stateful", False):
                layer.reset_state()
    return [stored(y) for y in tree.flatten(found)]


def equal(a, b):
    return all(x.shape == y.shape and np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(a, b))


def trained(model, data, y):
    """The weights after three steps towards 0, or None where a step is not defined or does not stay small."""
    rows = {np.shape(a)[0] if np.ndim(a) else 0 for a in tree.flatten(data) + list(y)}
    if len(rows) != 1:
        return None
    zeros = tree.pack_sequence_as(model.output, [np.zeros_like(a) for a in y])
    losses = tree.map_structure(lambda _: "mse", model.output)
    model.compile(optimizer=keras.optimizers.SGD(RATE), loss=losses, run_eagerly=True)
    for _ in range(STEPS):
        model.train_on_batch(data, zeros)
    after = [stored(v) for v in model.trainable_weights + model.non_trainable_weights if "seed" not in v.path]
    if not all(np.isfinite(a).all() and np.abs(a).max(initial=0) < 1e3 for a in after if a.dtype.kind == "f"):
        return None
    return after


def is_of_keras(objects):
    return all(type(o).__module__.startswith("keras.") and not type(o).__module__.endswith("_test") for o in objects)


def is_single_image(layer_cls, data):
    """Whether a layer of images gets one image, of which no model can be made: the first axis of a model is a batch."""
    base = keras.src.layers.preprocessing.image_preprocessing.base_image_preprocessing_layer
    arrays = tree.flatten(data)
    return issubclass(layer_cls, base.BaseImagePreprocessingLayer) and len(arrays) == 1 and arrays[0].ndim == 3


def weights_of(model):
    return [stored(w) for w in model.weights if "seed" not in w.path]


class Recorder:
    """Writes cases to a folder."""

    def __init__(self, folder):
        self.folder, self.cases, self.current, self.reached = folder, [], "", {}
        self.depth, self.seen = 0, set()

    def begin(self, layer_cls):
        use = self.reached[self.current] = self.reached.get(self.current, 0) + 1
        case = {"number": len(self.cases) + 1, "test": f"{self.current}/{use}",
                "class": PUBLIC.get(layer_cls, layer_cls.__name__), "public": layer_cls in PUBLIC}
        self.cases.append(case)
        return case

    def record(self, _test, layer_cls, init_kwargs, input_shape=None, input_dtype=None, input_sparse=False,
               input_ragged=False, input_data=None, call_kwargs=None, custom_objects=None, **_):
        case = self.begin(layer_cls)
        number = case["number"]
        try:
            if input_sparse or input_ragged:
                raise LeftOut("a sparse or ragged tensor")
            if layer_cls not in PUBLIC:
                raise LeftOut("a class of the test")
            keras.utils.set_random_seed(number)
            rng = np.random.default_rng(number)
            data = arrays_of(input_data) if input_data is not None else \
                data_of_shapes(input_shape, input_dtype, rng) if input_shape is not None else None
            if data is None:
                raise LeftOut("a call without inputs")
            if is_single_image(layer_cls, data):
                data = tree.map_structure(lambda a: a[None], data)
                case["adapted"] = "one image, as a batch of one"
            model, case["fixed_batch"] = functional(layer_cls, dict(init_kwargs or {}), data, dict(call_kwargs or {}))
            self.write(case, model, data, True)
        except LeftOut as reason:
            case["left_out"] = str(reason)
        except Exception as error:
            case["left_out"] = "an error in Keras" if isinstance(error, ValueError) else \
                f"recording: {type(error).__name__}: {str(error)[:300]}"

    def call(self, layer, args, kwargs):
        """Records a call of a layer in a test."""
        self.depth += 1
        kwargs = {k: v for k, v in kwargs.items() if k != "training"}
        shapes = str([getattr(v, "shape", v) for v in tree.flatten((args, kwargs))])
        key = (self.current, type(layer).__name__, str(layer.get_config()), shapes)
        if key not in self.seen:
            self.seen.add(key)
            case = self.begin(type(layer))
            try:
                before = state_of(layer)
                try:
                    model, data, case["fixed_batch"] = called(layer, args, kwargs)
                    self.write(case, model, data, False)
                finally:
                    restore(layer, before)
            except LeftOut as reason:
                case["left_out"] = str(reason)
            except Exception as error:
                case["left_out"] = f"recording: {type(error).__name__}: {str(error)[:300]}"
        self.depth -= 1

    def watched(self, original):
        """Layer.__call__, whose outermost calls with numbers are recorded afterwards."""
        def wrapper(layer, *args, **kwargs):
            self.depth += 1
            try:
                found = original(layer, *args, **kwargs)
            finally:
                self.depth -= 1
            symbols = [v for v in tree.flatten((args, kwargs)) if isinstance(v, keras.KerasTensor)
                       or "Symbolic" in type(v).__name__]
            if not self.depth and self.current and type(layer) in PUBLIC and args and not symbols:
                self.call(layer, args, kwargs)
            return found
        return wrapper

    def write(self, case, model, data, other_weights):
        if not is_of_keras(model._flatten_layers()):
            raise LeftOut("a class of the test inside")
        if sum(w.size for w in map(np.asarray, model.weights)) * 4 > LARGEST:
            raise LeftOut("weights that are too large for this count")
        if other_weights:
            randomized(model, case["number"])
        base = os.path.join(self.folder, f"{case['number']:04}")
        arrays = {}
        for i, a in enumerate(tree.flatten(data), 1):
            if a.dtype.kind in "UOS":  # strings
                case.setdefault("strings", {})[f"x{i}"] = a.astype(str).tolist()
            else:
                arrays[f"x{i}"] = a
        before = state_of(model)
        y = outputs_of(model, data, False)
        random_state = not equal(y, outputs_of(model, data, False))
        restore(model, before)
        if random_state:
            raise LeftOut("predictions that are drawn")
        for ending in ("keras", "h5"):
            case[ending] = self.saved(model, f"{base}.{ending}", data, y, case)
        arrays.update({f"y{i}": a for i, a in enumerate(y, 1)})
        restore(model, before)
        self.training(case, model, data, before, arrays)
        np.savez(base + ".npz", **arrays)

    def saved(self, model, path, data, y, case):
        """"yes", or why Keras cannot read its own file. Notes whether Keras begins with other weights after loading, as
        layers with low-rank adaptation do."""
        try:
            model.save(path)
            again = keras.models.load_model(path, compile=False)
            if not all(np.allclose(a, b, 1e-4, 1e-5, equal_nan=True) if a.dtype.kind in "fiub" else True
                       for a, b in zip(outputs_of(again, data, False), y)):
                raise ValueError("Keras predicts something else from it")
            if path.endswith(".keras") and not equal(weights_of(model), weights_of(again)):
                case["starts_anew"] = True
            return "yes"
        except Exception as error:
            if os.path.exists(path):
                os.remove(path)
            return f"{type(error).__name__}: {str(error).strip()[:200]}"

    def training(self, case, model, data, before, arrays):
        """Adds what the model does in training, where that is deterministic."""
        try:
            t = outputs_of(model, data, True)
            twice = outputs_of(model, data, True)
            restore(model, before)
            case["deterministic"] = equal(t, twice) and not self.draws(model, data, t)
            if not case["deterministic"]:
                return
            arrays.update({f"t{i}": a for i, a in enumerate(t, 1)})
            if model.trainable_weights and "starts_anew" not in case and all(a.dtype.kind == "f" for a in t):
                after = trained(model, data, t)
                if after is not None:
                    arrays.update({f"a{i}": a for i, a in enumerate(after, 1)})
                    case["trained"] = True
        except Exception as error:
            case["training_problem"] = f"{type(error).__name__}: {str(error)[:200]}"

    @staticmethod
    def draws(model, data, t):
        """Whether outputs change with the seeds."""
        values = state_of(model)
        seeds = [v for v in model.variables if "seed" in v.path]
        changed = False
        for _ in range(5 if seeds else 0):  # a few images may draw the same by chance
            for v in seeds:
                v.assign(np.asarray(v) + 17)
            changed = changed or not equal(t, outputs_of(model, data, True))
        restore(model, values)
        return changed
