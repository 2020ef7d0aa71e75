"""Model files of old versions of Keras, for tests/lua/nn/old_files_spec.lua.

    python make_old_files.py FOLDER            writes all models of the Keras that is installed to FOLDER
    python make_old_files.py keras_old NAME... the models NAME, to the folder beside this file

It runs with Keras 1.2.2 (Python 3.6, tensorflow 1.2.1, h5py < 3), 2.2.5 and 2.3.1 (Python 3.7, tensorflow 1.15.5, h5py
< 3), tf.keras 1.15.5, 2.4.3, 2.7.4, 2.13.1 and 2.15.1, and Keras 3 (3.3.3 to 3.15.1). Each model becomes NAME.h5, NAME.json,
NAME.keras where the version has the format, and NAME.safetensors: inputs x/1, ..., predictions y/1, ..., and what a step
of SGD on the targets 0 makes of the weights, step/1, ... (not of Keras 1, whose kernels have other shapes, nor of models
that drop). A model that was trained for 3 steps has the targets target/1 and the weights after/1, ... of 3 more steps on
them; again/1, ... are those of a model that Keras itself has loaded from the .h5 file (it forgets the count of steps of
some optimizers).
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np

import tensor_file

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH = 4

try:
    import keras
    keras.__version__, keras.optimizers.SGD  # the package keras of 2.4 to 2.8 lacks them
except (ImportError, AttributeError):
    from tensorflow import keras
L = keras.layers
KERAS1 = keras.__version__.startswith("1.")
KERAS3 = keras.__version__ >= "3"

# ---- Keras 1's names ------------------------------------------------------------------------------

NAMES = {"units": "output_dim", "use_bias": "bias", "filters": "nb_filter", "padding": "border_mode",
         "kernel_initializer": "init", "embeddings_initializer": "init", "alpha_initializer": "init",
         "kernel_regularizer": "W_regularizer", "bias_regularizer": "b_regularizer",
         "kernel_constraint": "W_constraint", "bias_constraint": "b_constraint", "rate": "p", "stddev": "sigma",
         "data_format": "dim_ordering", "gamma_initializer": "gamma_init", "dilation_rate": "atrous_rate"}
ORDERINGS = {"channels_last": "tf", "channels_first": "th"}
CLASSES = {"Conv1D": "Convolution1D", "Conv2D": "Convolution2D", "Conv2DTranspose": "Deconvolution2D",
           "SeparableConv2D": "SeparableConvolution2D"}


def layer1(kind, options):
    """A layer of Keras 1 by Keras 2's name and options."""
    if kind in ("Conv1D", "Conv2D") and "dilation_rate" in options:
        kind = {"Conv1D": "AtrousConvolution1D", "Conv2D": "AtrousConvolution2D"}[kind]
    else:
        kind = CLASSES.get(kind, kind)
    given = {}
    one = kind.endswith("1D")
    for key, value in options.items():
        if key == "kernel_size":
            given.update({"filter_length": value} if one else {"nb_row": value[0], "nb_col": value[1]})
        elif key == "strides":
            given["stride" if "Pooling" in kind and one else "strides" if "Pooling" in kind else
                  "subsample_length" if one else "subsample"] = value
        elif key == "pool_size":
            given["pool_length" if one else key] = value
        elif key == "data_format":
            given["dim_ordering"] = ORDERINGS[value]
        elif key == "padding" and "Padding" in kind:
            given[key] = value
        else:
            given[NAMES.get(key, key)] = value
    return getattr(L, kind)(**given)


def make(kind, **options):
    """A layer by Keras 2's name and options."""
    if KERAS1:
        return layer1(kind, options)
    if KERAS3:
        shape = options.pop("input_shape", None)
        options.pop("input_length", None)
        if kind == "LeakyReLU" and "alpha" in options:
            options["negative_slope"] = options.pop("alpha")
        layer = getattr(L, kind)(**options)
        return (keras.Input(shape), layer) if shape is not None else layer
    return getattr(L, kind)(**options)


def stack(*layers):
    """A Sequential of the layers."""
    model = keras.models.Sequential()
    for layer in layers:
        for part in layer if isinstance(layer, tuple) else (layer,):
            model.add(part)
    return model


def functional(inputs, outputs):
    """A functional model."""
    if KERAS1:
        return keras.models.Model(input=inputs, output=outputs)
    return keras.models.Model(inputs=inputs, outputs=outputs)


def merged(mode, tensors, axis=-1):
    """A merging layer by Keras 1's mode."""
    if KERAS1:
        return keras.layers.merge(tensors, mode=mode, concat_axis=axis, dot_axes=axis)
    if mode == "concat":
        return L.Concatenate(axis=axis)(tensors)
    if mode in ("dot", "cos"):
        return L.Dot(axes=axis, normalize=mode == "cos")(tensors)
    return {"sum": L.Add, "mul": L.Multiply, "ave": L.Average, "max": L.Maximum}[mode]()(tensors)


def l1_l2():
    R = keras.regularizers
    if KERAS1:
        return R.l1l2(0.01, 0.02)
    return R.L1L2(0.01, 0.02) if KERAS3 else R.l1_l2(0.01, 0.02)


def max_norm(value, axis):
    C = keras.constraints
    return C.MaxNorm(value, axis) if KERAS3 else (C.maxnorm if KERAS1 else C.max_norm)(value, axis)


# ---- the models -----------------------------------------------------------------------------------


def dense():
    return stack(make("Dense", units=5, input_shape=(4,), activation="relu", kernel_initializer="he_normal",
                      kernel_regularizer=l1_l2(), bias_regularizer=keras.regularizers.l2(0.1),
                      kernel_constraint=max_norm(1.5, 0)),
                 make("Dense", units=3, use_bias=False, kernel_initializer="normal"), make("Activation",
                                                                                          activation="softmax"))


def activations():
    names = ["hard_sigmoid", "softsign", "elu", "softplus", "sigmoid", "tanh", "linear", "relu", "hard_sigmoid"]
    layers = [make("Dense", units=6, input_shape=(4,), activation="hard_sigmoid")]
    for name in names:
        layers += [make("Activation", activation=name), make("Dense", units=6, kernel_initializer="glorot_normal")]
    return stack(*layers)


def advanced():
    return stack(make("Dense", units=6, input_shape=(4,)), make("LeakyReLU", alpha=0.2), make("Dense", units=5),
                 make("PReLU"), make("Dense", units=5), make("ELU", alpha=0.7), make("Dense", units=6))


def thresholded():
    return stack(make("Dense", units=6, input_shape=(4,)), make("ThresholdedReLU", theta=0.4),
                 make("ActivityRegularization", l1=0.1, l2=0.2), make("Dense", units=2))


def activity():
    return stack(make("Dense", units=6, input_shape=(4,)), make("ActivityRegularization", l1=0.1, l2=0.2),
                 make("Dense", units=2))


def conv2d():
    return stack(make("Conv2D", filters=3, kernel_size=(3, 2), input_shape=(8, 7, 2), activation="relu",
                      padding="same", strides=(2, 1)),
                 make("Conv2D", filters=2, kernel_size=(2, 3), use_bias=False),
                 make("MaxPooling2D", pool_size=(2, 2), strides=(1, 2), padding="same"), make("Flatten"),
                 make("Dense", units=3))


def channels_first():
    first = {"data_format": "channels_first"}
    return stack(make("Conv2D", filters=3, kernel_size=(3, 2), input_shape=(2, 8, 7), **first),
                 make("MaxPooling2D", pool_size=(2, 2), **first),
                 make("BatchNormalization", axis=1), make("GlobalAveragePooling2D", **first), make("Dense", units=2))


def dilated():
    return stack(make("Conv2D", filters=3, kernel_size=(2, 2), input_shape=(8, 7, 2), dilation_rate=(2, 2)),
                 make("AveragePooling2D", pool_size=(2, 3)), make("Flatten"), make("Dense", units=2))


def transposed():
    options = {"output_shape": (None, 9, 9, 3)} if KERAS1 else {}
    return stack(make("Conv2DTranspose", filters=3, kernel_size=(3, 3), input_shape=(4, 4, 2), strides=(2, 2),
                      padding="valid", **options), make("GlobalMaxPooling2D"), make("Dense", units=2))


def separable():
    return stack(make("SeparableConv2D", filters=4, kernel_size=(3, 3), input_shape=(6, 6, 2), depth_multiplier=2,
                      padding="same"), make("GlobalAveragePooling2D"), make("Dense", units=2))


def depthwise():
    return stack(make("DepthwiseConv2D", kernel_size=(3, 2), input_shape=(6, 6, 2), depth_multiplier=2, strides=(2, 2)),
                 make("Flatten"), make("Dense", units=2))


def conv1d():
    return stack(make("Conv1D", filters=4, kernel_size=3, input_shape=(9, 2), activation="tanh", padding="same"),
                 make("MaxPooling1D", pool_size=2, strides=1),
                 make("Conv1D", filters=3, kernel_size=2, strides=2),
                 make("AveragePooling1D", pool_size=2), make("Flatten"), make("Dense", units=2))


def dilated1d():
    return stack(make("Conv1D", filters=4, kernel_size=3, input_shape=(12, 2), dilation_rate=2),
                 make("GlobalMaxPooling1D"), make("Dense", units=2))


def local1d():
    return stack(make("LocallyConnected1D", filters=3, kernel_size=3, input_shape=(8, 2), strides=2),
                 make("GlobalAveragePooling1D"), make("Dense", units=2))


def local2d():
    return stack(make("LocallyConnected2D", filters=3, kernel_size=(3, 2), input_shape=(6, 5, 2), strides=(1, 2),
                      activation="tanh"), make("Flatten"), make("Dense", units=2))


def local_same():
    """The other two ways to keep the kernel, which allow padding."""
    return stack(make("LocallyConnected2D", filters=2, kernel_size=(3, 2), input_shape=(5, 6, 2), strides=(2, 1),
                      padding="same", implementation=2),
                 make("LocallyConnected2D", filters=3, kernel_size=(2, 3), padding="same", implementation=3),
                 make("Reshape", target_shape=(3, 18)),
                 make("LocallyConnected1D", filters=2, kernel_size=2, padding="same", implementation=2),
                 make("LocallyConnected1D", filters=2, kernel_size=3, padding="same", implementation=3,
                      use_bias=False), make("Flatten"), make("Dense", units=2))


def local_first():
    first = {"data_format": "channels_first"}
    return stack(make("LocallyConnected2D", filters=2, kernel_size=(3, 2), input_shape=(2, 5, 6), strides=(1, 2), **first),
                 make("LocallyConnected2D", filters=3, kernel_size=(2, 2), padding="same", implementation=2, **first),
                 make("LocallyConnected2D", filters=2, kernel_size=(2, 2), implementation=3, **first),
                 make("Flatten"), make("Dense", units=2))


def shapes2d():
    return stack(make("ZeroPadding2D", padding=(1, 2), input_shape=(5, 5, 2)), make("UpSampling2D", size=(2, 3)),
                 make("Cropping2D", cropping=((1, 2), (3, 1))), make("Conv2D", filters=2, kernel_size=(2, 2)),
                 make("Flatten"), make("Dense", units=2))


def normalized():
    return stack(make("Dense", units=5, input_shape=(4,)), make("BatchNormalization", momentum=0.8, epsilon=0.01),
                 make("Dense", units=3), make("BatchNormalization"))


def layer_norm():
    return stack(make("Dense", units=5, input_shape=(4,)), make("LayerNormalization", epsilon=0.01),
                 make("Dense", units=3))


def frozen():
    model = stack(make("Dense", units=5, input_shape=(4,)), make("BatchNormalization"), make("Dense", units=3))
    model.layers[0].trainable = False
    model.layers[-2].trainable = False
    return model


def noisy():
    return stack(make("Dropout", rate=0.3, input_shape=(4,)), make("Dense", units=5), make("GaussianNoise", stddev=0.2),
                 make("Dense", units=5), make("Dropout", rate=0.5), make("Dense", units=3))


def spatial():
    return stack(make("Conv2D", filters=3, kernel_size=(2, 2), input_shape=(5, 5, 2)),
                 make("SpatialDropout2D", rate=0.3), make("Flatten"), make("Dense", units=2))


def embedded():
    return stack(make("Embedding", input_dim=7, output_dim=3, input_length=5, input_shape=(5,),
                      **({"dropout": 0.2} if KERAS1 else {})), make("Flatten"), make("Dense", units=2))


def reshaped():
    return stack(make("Dense", units=6, input_shape=(4,)), make("Reshape", target_shape=(2, 3)),
                 make("Permute", dims=(2, 1)), make("Flatten"), make("Dense", units=2))


def masked():
    return stack(make("Masking", mask_value=0.0, input_shape=(3, 4)),
                 make("Dense", units=2))


def relus():
    return stack(make("Dense", units=5, input_shape=(4,)), make("ReLU", max_value=1.0), make("Dense", units=5),
                 make("Softmax"))


def nested_sequential():
    inner = stack(make("Dense", units=5, input_shape=(4,), activation="tanh"), make("Dense", units=4),
                  make("BatchNormalization"))
    model = keras.models.Sequential()
    if KERAS3:
        model.add(keras.Input((4,)))
    model.add(inner)
    model.add(make("Dense", units=3))
    return model


def nested_functional():
    a, i = L.Input(shape=(4,), name="a"), L.Input(shape=(5,), name="i")
    deep = functional(i, make("Dense", units=2, activation="sigmoid")(make("Dense", units=3)(i)))
    inner = stack(make("Dense", units=5, input_shape=(4,)), make("BatchNormalization"))
    return functional(a, make("Dense", units=2)(deep(inner(a))))


def shared():
    a, b = L.Input(shape=(4,), name="a"), L.Input(shape=(4,), name="b")
    one = make("Dense", units=4, activation="tanh", name="one")
    u, v = one(a), one(b)
    return functional([a, b], [make("Dense", units=2, name="left")(merged("sum", [u, v])),
                               make("Dense", units=3, name="right")(one(u))])


def shared_model():
    a, b = L.Input(shape=(4,), name="a"), L.Input(shape=(4,), name="b")
    inner = stack(make("Dense", units=5, input_shape=(4,)), make("Dense", units=4))
    return functional([a, b], make("Dense", units=2)(merged("concat", [inner(a), inner(b), inner(inner(b))])))


def merges():
    a, b = L.Input(shape=(3, 4), name="a"), L.Input(shape=(3, 4), name="b")
    flat = [make("Flatten")(merged(mode, [a, b])) for mode in ["sum", "mul", "ave", "max", "concat"]]
    flat += [make("Flatten")(merged("concat", [a, b], 1)), make("Flatten")(merged("dot", [a, b], 2))]
    return functional([a, b], make("Dense", units=3)(merged("concat", flat)))


def cosine():
    a, b = L.Input(shape=(4,), name="a"), L.Input(shape=(4,), name="b")
    return functional([a, b], merged("cos", [make("Dense", units=3)(a), make("Dense", units=3)(b)], 1))


def many_uses():
    a = L.Input(shape=(4,), name="a")
    u = make("Dense", units=4, activation="relu")(a)
    v = merged("sum", [u, a])
    w = merged("mul", [make("Dense", units=4)(v), v])
    return functional(a, [make("Dense", units=2)(w), make("Dropout", rate=0.4)(v)])


def branches():
    """Keras 1's Sequential of several models: the only one that begins with a Merge."""
    left = stack(make("Dense", units=5, input_shape=(4,)), make("Activation", activation="tanh"))
    right = stack(make("Dense", units=5, input_shape=(3,)))
    model = keras.models.Sequential()
    model.add(L.Merge([left, right], mode="concat"))
    model.add(make("Dense", units=3))
    model.add(make("Dense", units=2))
    return model


def branches_inside():
    """Branches that have branches, merged by other modes, and one layer only."""
    def branch(mode):
        model = keras.models.Sequential()
        model.add(L.Merge([stack(make("Dense", units=3, input_shape=(4,))),
                           stack(make("Dense", units=3, input_shape=(4,)))], mode=mode))
        model.add(make("Dense", units=3))
        return model
    model = keras.models.Sequential()
    model.add(L.Merge([branch("sum"), branch("mul"), stack(make("Dense", units=3, input_shape=(2,)))], mode="ave"))
    model.add(make("Dense", units=2))
    return model


# ---- trained models -------------------------------------------------------------------------------


def optimizers():
    """The optimizers, those of Keras 1 and 2 with decay."""
    O = keras.optimizers
    if not KERAS1 and not keras.__version__.startswith("2.2") and hasattr(O, "legacy") and not KERAS3:
        O = O.legacy
    rate = "lr" if KERAS1 or keras.__version__ < "2.3" and "tf" not in keras.__version__ else "learning_rate"
    decay = {} if KERAS3 else {"decay": 0.3}
    made = {}
    for name, value, more in [("SGD", 0.1, {}), ("SGD", 0.1, {"momentum": 0.9, "nesterov": True}),
                              ("RMSprop", 0.01, {}), ("Adagrad", 0.1, {}), ("Adadelta", 1.0, {}), ("Adam", 0.02, {}),
                              ("Adamax", 0.02, {})]:
        options = dict(more, **decay)
        options[rate] = value
        made["momentum" if more else name.lower()] = getattr(O, name)(**options)
    made["nadam"] = O.Nadam(**dict({rate: 0.02}, **({} if KERAS3 else {"schedule_decay": 0.1})))
    made["clipped"] = O.Adam(**{rate: 0.02, "clipnorm": 0.3})
    if O is not keras.optimizers:  # those that followed in tf.keras 2.11
        made["new_adam"] = keras.optimizers.Adam(0.02)
        made["new_sgd"] = keras.optimizers.SGD(0.1, momentum=0.9)
    if KERAS3 and keras.__version__ >= "3.2":
        made["accumulated"] = O.Adagrad(0.1, gradient_accumulation_steps=2)
    return made


LOSSES = ["mse", "poisson", "logcosh"]


def trained(model, optimizer, loss, metrics, save, h5):
    """Trains for 3 steps, calls save(), trains for 3 more. Returns x, predictions, targets and the weights at the end."""
    model.compile(optimizer=optimizer, loss=loss, metrics=metrics)
    rng = np.random.RandomState(8)
    x = rng.uniform(-1, 1, (6, 3)).astype("float32")
    target = np.eye(2, dtype="float32")[[0, 1, 1, 0, 1, 0]]
    for _ in range(3):
        model.train_on_batch(x, target)
    y = model.predict(x)
    save(model)
    try:
        again = keras.models.load_model(h5)
    except Exception:  # losses that Keras 3 does not find again
        again = None
    for each in [model, again] if again else [model]:
        for _ in range(3):
            each.train_on_batch(x, target)
    return x, y, target, model.get_weights(), again.get_weights() if again else []


def classifier():
    return stack(make("Dense", units=4, input_shape=(3,), activation="relu", name="one"),
                 make("Dense", units=2, activation="softmax", name="two"))


# ---- writing --------------------------------------------------------------------------------------


def randomize(model, seed):
    """Random weights; those with one axis, the variances among them, are positive."""
    rng = np.random.RandomState(seed)
    model.set_weights([(rng.uniform(0.2, 1.0, w.shape) if w.ndim == 1 else rng.normal(0, 0.5, w.shape)).astype(w.dtype)
                       for w in model.get_weights()])


def inputs_of(model, seed):
    rng = np.random.RandomState(seed)
    shapes = model.input_shape if isinstance(model.input_shape, list) else [model.input_shape]
    if any("Embedding" in type(layer).__name__ for layer in model.layers):
        return [rng.randint(0, 7, (BATCH,) + tuple(s[1:])).astype("float32") for s in shapes]
    x = [rng.normal(0, 1, (BATCH,) + tuple(s[1:])).astype("float32") for s in shapes]
    if any("Masking" in type(layer).__name__ for layer in model.layers):
        x[0][:, 0] = 0
    return x


def as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def save(model, base):
    """Writes the files that this version can write."""
    if KERAS3 or keras.__version__.startswith(("2.12", "2.13", "2.14", "2.15")):
        model.save(base + ".keras")  # first, since Keras 3 takes the optimizer from the model when it writes .h5
    model.save(base + ".h5")
    with open(base + ".json", "w") as file:
        file.write(model.to_json())
    model.save_weights(base + (".weights.h5" if KERAS3 else "_weights.h5"))


def write_numbers(base, **lists):
    numbers = {}
    for what, arrays in lists.items():
        for i, array in enumerate(arrays, 1):
            numbers["%s/%d" % (what, i)] = np.asarray(array)
    tensor_file.write(base + ".safetensors", numbers, {"set": "Keras " + keras.__version__})


PLAIN = [dense, activations, advanced, thresholded, activity, conv2d, channels_first, dilated, transposed, separable,
         depthwise, conv1d, dilated1d, local1d, local2d, local_same, local_first, shapes2d, normalized, layer_norm, frozen, noisy, spatial,
         embedded, reshaped, masked, relus, nested_sequential, nested_functional, shared, shared_model, merges, cosine,
         many_uses, branches, branches_inside]


def write_plain(function, folder):
    model = function()
    randomize(model, len(function.__name__))
    x = inputs_of(model, 5)
    y = as_list(model.predict(x if len(x) > 1 else x[0]))
    base = os.path.join(folder, function.__name__)
    trains = not KERAS1 and function not in (noisy, spatial, many_uses)
    if trains:
        model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
    save(model, base)
    if not trains:
        return write_numbers(base, x=x, y=y)
    targets = [np.zeros_like(t) for t in y]
    model.train_on_batch(x if len(x) > 1 else x[0], targets if len(y) > 1 else targets[0])
    write_numbers(base, x=x, y=y, step=model.get_weights())


def write_trained(name, optimizer, loss, folder):
    base = os.path.join(folder, name)
    model = classifier()
    randomize(model, 7)
    x, y, target, after, again = trained(model, optimizer, loss, ["accuracy"], lambda m: save(m, base), base + ".h5")
    write_numbers(base, x=[x], y=[y], target=[target], after=after, again=again)


def main(folder, wanted):
    if not os.path.isabs(folder):
        folder = os.path.join(HERE, folder)
    os.makedirs(folder, exist_ok=True)
    tasks = [(f.__name__, lambda f=f: write_plain(f, folder)) for f in PLAIN]
    tasks += [(n, lambda n=n: write_trained(n, optimizers()[n], "categorical_crossentropy", folder))
              for n in optimizers()]
    tasks += [("loss_" + n, lambda n=n: write_trained("loss_" + n, keras.optimizers.get("sgd"), n, folder))
              for n in LOSSES]
    for name, task in tasks:
        if wanted and name not in wanted:
            continue
        keras.backend.clear_session()  # else the graphs of TensorFlow 1 grow
        try:
            task()
        except Exception as problem:  # this version does not have the layer
            print("%s: %s: %s" % (name, type(problem).__name__, str(problem).strip().split("\n")[0][:150]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
