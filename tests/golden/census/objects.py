"""What Keras's own tests do with losses, metrics, optimizers, schedules, regularizers, constraints, initializers and
activations.

Recorder().install() wraps their calls. Each becomes a record: kind, test, class, object (Keras's serialized form) and
    loss          y_true, y_pred, sample_weight -> result
    metric        updates: lists {y_true, y_pred, sample_weight} -> result
    optimizer     variables, gradients of each step, variables after each step
    schedule      step -> result
    regularizer, constraint, activation    x -> result
    initializer   shape -> result, where it is not drawn
Arrays are {shape, dtype, data}; `left_out` is the reason for a record that no file or no other language can hold.
"""

import functools
import inspect
import json

import keras
import numpy as np
from keras import tree


BASES = ("Optimizer", "Loss", "Metric", "Constraint", "Regularizer", "LearningRateSchedule")


class LeftOut(Exception):
    """A record that cannot be made, with the reason."""


def number(x):
    x = float(x)
    return x if np.isfinite(x) else "nan" if x != x else "inf" if x > 0 else "-inf"


def array(value, largest=20000):
    if value is None:
        return None
    if type(value).__name__ in ("SparseTensor", "RaggedTensor", "IndexedSlices"):
        raise LeftOut("a sparse or ragged tensor")
    if isinstance(value, keras.KerasTensor) or "SymbolicTensor" in type(value).__name__:
        raise LeftOut("a symbolic tensor")
    a = np.asarray(keras.ops.convert_to_numpy(value) if keras.ops.is_tensor(value) else value)
    if a.dtype.kind not in "fiub" and str(a.dtype) != "bfloat16":
        raise LeftOut("values that are no numbers")
    if a.size > largest:
        raise LeftOut("arrays that are too large for this count")
    dtype = {"float64": "float32", "int64": "int32"}.get(str(a.dtype), str(a.dtype))
    return {"shape": list(a.shape), "dtype": dtype, "data": [number(str(x)) for x in a.astype(
        "float32" if a.dtype.kind not in "iub" else "int64").reshape(-1)]}


def serialized(value):
    try:
        found = keras.saving.serialize_keras_object(value)
    except Exception as error:
        raise LeftOut(f"not serializable: {str(error)[:100]}") from None
    module = str(found.get("module", ""))
    if (not module.startswith("keras") or module.endswith("_test")) and found.get("class_name") != "function":
        raise LeftOut("a class of the test")
    if any(mark in json.dumps(found, default=str) for mark in ("__lambda__", "test>")) or (
            isinstance(found.get("config"), dict) and is_function(found["config"].get("optimizer_map"))):
        raise LeftOut("a function of the test")
    return found


def is_function(value):
    return isinstance(value, dict) and value.get("class_name") == "function"


class Recorder:
    """Collects records; `current` is the test that runs."""

    def __init__(self):
        self.records, self.current, self.depth, self.live, self.known = [], "", 0, [], {}

    def add(self, kind, cls, fill):
        """Adds a record, filled by a function that may raise LeftOut."""
        record = {"number": len(self.records) + 1, "kind": kind, "test": self.current, "class": cls}
        self.records.append(record)
        self.fill(record, fill)
        return record

    @staticmethod
    def fill(record, fill):
        try:
            fill(record)
        except LeftOut as reason:
            record["left_out"] = str(reason)
        except Exception as error:
            record["left_out"] = f"recording: {type(error).__name__}: {str(error)[:200]}"

    def wrapped(self, original, watch):
        """The function, whose outermost calls go to watch(call, args, kwargs); call() runs it."""
        @functools.wraps(original)
        def wrapper(*args, **kwargs):
            if self.depth or not self.current:
                return original(*args, **kwargs)

            def call():
                self.depth += 1
                try:
                    return original(*args, **kwargs)
                finally:
                    self.depth -= 1
            return watch(call, args, kwargs)
        return wrapper

    # ---- what is watched

    def pure(self, kind, names):
        """For objects that are called with arrays: a record of arguments and result."""
        def watch(call, args, kwargs):
            obj, arguments = args[0], args[1:]
            result = call()

            def fill(record):
                if type(obj).__name__ in BASES:
                    raise LeftOut("a base class")
                record["object"] = serialized(obj)
                for name, value in list(zip(names, arguments)) + list(kwargs.items()):
                    if isinstance(value, (list, tuple, dict)) and any(keras.ops.is_tensor(v) for v in
                                                                     tree.flatten(value)):
                        raise LeftOut("several tensors")
                    record[name] = array(value)
                record["result"] = array(result)
            self.add(kind, type(obj).__name__, fill)
            return result
        return watch

    def initializer(self, call, args, kwargs):
        obj, result = args[0], call()
        shape = kwargs.get("shape", args[1] if len(args) > 1 else None)
        dtype = kwargs.get("dtype", args[2] if len(args) > 2 else None)

        def fill(record):
            if isinstance(obj, keras.src.initializers.random_initializers.RandomInitializer):
                raise LeftOut("numbers that are drawn")
            record["object"] = serialized(obj)
            record["shape"], record["dtype"] = list(shape), str(dtype or "float32")
            record["result"] = array(result, 1 << 18)
        self.add("initializer", type(obj).__name__, fill)
        return result

    def activation(self, name):
        def watch(call, args, kwargs):
            result = call()

            def fill(record):
                record["x"], record["options"] = array(args[0]), dict(kwargs)
                if len(args) > 1 or any(not isinstance(v, (int, float, bool)) for v in kwargs.values()):
                    raise LeftOut("arguments that a file does not hold")
                record["result"] = array(result)
            self.add("activation", name, fill)
            return result
        return watch

    def update_state(self, call, args, kwargs):
        metric = args[0]
        event = dict(zip(("y_true", "y_pred", "sample_weight"), args[1:]), **kwargs)
        self.known.setdefault(id(metric), (metric, []))[1].append(event)
        return call()

    def reset_state(self, call, args, _kwargs):
        self.known.pop(id(args[0]), None)
        return call()

    def result(self, call, args, _kwargs):
        metric, result = args[0], call()
        updates = self.known.get(id(metric), (metric, []))[1]

        def fill(record):
            record["object"] = serialized(metric)
            record["updates"] = [{k: array(v) for k, v in event.items()} for event in updates]
            record["result"] = array(result)
        if updates:
            self.add("metric", type(metric).__name__, fill)
        return result

    def metric_call(self, call, args, kwargs):
        """A metric that is called: an update and its result."""
        self.depth += 1
        try:
            self.update_state(lambda: None, args, kwargs)
        finally:
            self.depth -= 1
        value = call()
        return self.result(lambda: value, args[:1], {})

    def apply(self, call, args, kwargs):
        optimizer, grads = args[0], args[1]
        variables = kwargs.get("trainable_variables", args[2] if len(args) > 2 else None)
        if variables is None:
            variables = getattr(optimizer, "_trainable_variables", [])
        variables, record = list(variables), self.known.get(id(optimizer), (None, None))[1]
        if record is None:
            def begin(record):
                record["object"] = serialized(optimizer)
                if any(getattr(v, "constraint", None) or getattr(v, "overwrite_with_gradient", False)
                       for v in variables):
                    raise LeftOut("variables with constraints, or that are overwritten")
                if type(optimizer).__name__ in BASES:
                    raise LeftOut("a base class")
                record["variables"] = [array(v) for v in variables]
                record["names"] = [getattr(v, "path", v.name) for v in variables]
                record["excluded"] = [i for i, v in enumerate(variables, 1)
                                      if not getattr(optimizer, "_use_weight_decay", lambda _: True)(v)]
                record["gradients"], record["after"] = [], []
            record = self.add("optimizer", type(optimizer).__name__, begin)
            record["objects"] = variables
            self.known[id(optimizer)] = (optimizer, record)

        def before(record):
            if record["objects"] != variables and [v.path for v in record["objects"]] != [v.path for v in variables]:
                raise LeftOut("variables that change")
            if any(g is None for g in grads):
                raise LeftOut("a gradient that is None")
            if keras.saving.serialize_keras_object(optimizer) != record["object"]:
                raise LeftOut("options that change")
            record["gradients"].append([array(g) for g in grads])
        if "left_out" not in record:
            self.fill(record, before)
        call()
        if "left_out" not in record:
            self.fill(record, lambda r: r["after"].append([array(v) for v in variables]))

    # ---- installing

    def install(self):
        for kind, module, names in (
                ("loss", keras.losses, ("y_true", "y_pred", "sample_weight")),
                ("schedule", keras.optimizers.schedules, ("step",)),
                ("regularizer", keras.regularizers, ("x",)), ("constraint", keras.constraints, ("x",))):
            self.wrap(module, "__call__", self.pure(kind, names))
        self.wrap(keras.initializers, "__call__", self.initializer)
        for name, watch in (("update_state", self.update_state), ("reset_state", self.reset_state),
                            ("result", self.result), ("__call__", self.metric_call)):
            self.wrap(keras.metrics, name, watch)
        self.wrap(keras.optimizers, "apply", self.apply)
        package = keras.src.activations
        for name, value in list(vars(package.activations).items()):
            if inspect.isfunction(value) and name in dir(keras.activations):
                wrapper = self.wrapped(value, self.activation(name))
                setattr(package, name, wrapper)
                setattr(package.activations, name, wrapper)

    def wrap(self, module, method, watch):
        done = set()
        for cls in [value for value in vars(module).values() if inspect.isclass(value)]:
            for base in cls.__mro__:
                if base not in done and method in vars(base) and base.__module__.startswith("keras."):
                    done.add(base)
                    setattr(base, method, self.wrapped(vars(base)[method], watch))

    def begin(self, test):
        self.current, self.known = test, {}

    def end(self):
        self.current = ""
        for record in self.records:
            record.pop("objects", None)
