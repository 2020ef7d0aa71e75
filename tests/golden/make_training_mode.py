"""Functional models whose files record `training` for calls of layers, for tests/lua/nn/training_mode_spec.lua.

    python make_training_mode.py        writes training_mode/*_VERSION.* beside this file

To be run with each version: tensorflow-cpu 2.15 (its keras 2.15); keras 3.4.1 on tensorflow-cpu 2.16.2; keras 3.15.1 on
tensorflow-cpu 2.21.0. Keras 2 records `training` where the user gives it, and obeys it. Keras 3 records it for every
call and ignores it in predict and fit.

expected_VERSION.safetensors has for each model NAME the input NAME/x, the predictions NAME/y/1, ... of the outputs that
are not random, and after one step with learning rate 0 the weights NAME/after/1, ...; and for each output two flags,
NAME/random/1, ...: whether predict gives other numbers each time, and whether a call with training = True does.
"""

import os
import zipfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np

import tensor_file

try:
    import keras as k
    k.__version__
except AttributeError:
    import tensorflow as tf
    k = tf.keras

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "training_mode")
L = k.layers


def images(ending):
    """Augmentation, whose recorded training is true in files of Keras 3, and dropout of channels."""
    x = k.Input((6, 6, 1), name="image")
    y = x
    layers = [L.RandomFlip(), L.RandomTranslation(0.2, 0.2), L.RandomZoom(0.3), L.RandomContrast(0.3)]
    if ending != ".h5" or k.__version__ < "3":  # Keras 3 cannot write these as .h5
        layers += [L.RandomRotation(0.2), L.RandomBrightness(0.2)]
    for layer in layers:
        y = layer(y)
    y = L.SpatialDropout2D(0.5, name="channels")(L.Conv2D(4, 3, name="conv")(y))
    return k.Model(x, L.Dense(2, name="dense")(L.Flatten(name="flat")(y)), name="images")


def frozen(ending):
    """A base in a base, and a shared layer, that were called with training=False; noise and dropout behind and beside."""
    i = k.Input((3,), name="i")
    deep = k.Model(i, L.Dropout(0.5, name="deep_drop")(L.BatchNormalization(name="deep_norm")(i)), name="deep")
    j = k.Input((4,), name="j")
    base = k.Model(j, deep(L.BatchNormalization(name="norm")(L.Dense(3, name="q")(j))), name="base")
    x, shared = k.Input((4,), name="x"), L.BatchNormalization(name="shared", momentum=0.9)
    both = L.Concatenate(name="both")([base(x, training=False), shared(x, training=False)])
    return k.Model(x, [
        L.Dropout(0.5, name="behind")(both),
        shared(L.Dense(4, name="p")(x)),
        L.Dropout(0.5, name="always")(x, training=True),
        L.Dropout(0.5, name="never")(x, training=False),
        L.GaussianNoise(0.5, name="noise")(x)], name="frozen")


def randomize(model, seed):
    """Gives every weight random values; variances stay positive. States of generators stay."""
    rng = np.random.default_rng(seed)
    model.set_weights([(rng.uniform(0.2, 1.0, w.shape) if "variance" in v.name
                        else rng.normal(0, 0.4, w.shape)).astype("float32") if w.dtype == np.float32 else w
                       for w, v in zip(model.get_weights(), model.weights)])


def as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def differs(outputs):
    """For each output whether several results of it differ."""
    return [any(not np.array_equal(np.asarray(first), np.asarray(other)) for other in others)
            for first, *others in zip(*outputs)]


def save(model, path):
    """Saves the model; an archive is deflated, which keeps it small."""
    model.save(path)
    if path.endswith(".keras"):
        with zipfile.ZipFile(path) as archive:
            parts = [(name, archive.read(name)) for name in archive.namelist()]
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in parts:
                archive.writestr(name, data)


def write():
    os.makedirs(HERE, exist_ok=True)
    version, numbers = ".".join(k.__version__.split(".")[:2]), {}
    for make in (images, frozen):
        name = make.__name__
        for ending in (".h5", ".keras"):
            k.backend.clear_session()
            model = make(ending)
            randomize(model, 3)
            save(model, os.path.join(HERE, f"{name}_{version}{ending}"))
        x = np.random.default_rng(4).uniform(0, 1, (5,) + tuple(model.inputs[0].shape[1:])).astype("float32")
        with open(os.path.join(HERE, f"{name}_{version}.json"), "w") as file:
            file.write(model.to_json())
        results = [as_list(model.predict(x, verbose=0)) for _ in range(4)]
        in_predict = differs(results)
        in_training = differs([as_list(model(x, training=True)) for _ in range(4)])
        numbers[f"{name}/x"] = x
        for i, y in enumerate(results[0], 1):
            numbers[f"{name}/random/{i}"] = np.array([in_predict[i - 1], in_training[i - 1]], "int32")
            if not in_predict[i - 1]:
                numbers[f"{name}/y/{i}"] = y
        randomize(model, 3)
        model.compile(k.optimizers.SGD(0.0), loss="mse")
        model.train_on_batch(x, [np.zeros_like(y) for y in results[0]])
        after = [w for w, v in zip(model.get_weights(), model.weights) if "seed" not in v.name]
        for i, w in enumerate(after, 1):
            numbers[f"{name}/after/{i}"] = w
    tensor_file.write(os.path.join(HERE, f"expected_{version}.safetensors"), numbers,
                      {"set": f"Keras {k.__version__}"})


if __name__ == "__main__":
    write()
