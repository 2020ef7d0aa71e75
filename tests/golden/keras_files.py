"""Model files of Keras 3 and Keras 2 (tf_keras), for tests/lua/nn/keras_files_spec.lua; and the check of ours.

    python keras_files.py write 3          writes keras/*_3.* and keras/expected_3.safetensors beside this file
    python keras_files.py write 2          the same with tf_keras 2.21, in an environment that has it
    python keras_files.py check FOLDER     loads the files that keras_ours.lua has written to FOLDER, with both

expected_V.safetensors has, for each file, its inputs FILE/x/1, ..., its predictions FILE/y/1, ... and, where the model
is compiled, targets FILE/target/1 and the weights FILE/after/1, ... after one more step on them.
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np

import tensor_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keras")
BATCH = 3


def keras_of(version):
    """The module keras of that version."""
    if version == "3":
        import keras
    else:
        import tf_keras as keras
    return keras


def lenet5(k):
    """models/lenet5.lua on small images, with fewer channels."""
    L = k.layers
    return k.Sequential([
        k.Input((12, 12, 1)), L.Conv2D(3, 5, padding="same", activation="relu"), L.MaxPooling2D(2),
        L.Conv2D(4, 5, activation="relu"), L.MaxPooling2D(2), L.Flatten(),
        L.Dense(12, activation="relu"), L.Dense(8, activation="relu"),
        L.Dense(10, activation="softmax")], name="lenet5")


def mlp(k):
    """models/mlp.lua, narrower."""
    L = k.layers
    return k.Sequential([
        k.Input((4, 4, 1)), L.Flatten(), L.Dense(8, activation="relu"), L.Dropout(0.2),
        L.Dense(8, activation="relu"), L.Dropout(0.2), L.Dense(10, activation="softmax")], name="mlp")


def mnist_cnn(k):
    """models/mnist_cnn.lua on small images, with fewer channels."""
    L = k.layers
    return k.Sequential([
        k.Input((8, 8, 1)), L.Conv2D(3, 3, activation="relu"), L.Conv2D(4, 3, activation="relu"),
        L.BatchNormalization(), L.Conv2D(3, 3, activation="relu"), L.MaxPooling2D(2),
        L.Dropout(0.25), L.Flatten(), L.Dense(8, activation="relu"), L.Dropout(0.5),
        L.Dense(10, activation="softmax")], name="mnist_cnn")


def two_inputs(k):
    """Two inputs, two outputs, a shared layer, an inner Sequential used twice, an inner functional model."""
    L = k.layers
    a, b = k.Input((4,), name="a"), k.Input((4,), name="b")
    shared = L.Dense(4, activation="tanh", name="shared", kernel_regularizer=k.regularizers.L2(0.01))
    inner = k.Sequential([k.Input((4,)), L.Dense(3, name="q"), L.BatchNormalization(name="norm")],
                         name="inner")
    inner.layers[0].trainable = False
    i = k.Input((6,), name="i")
    deep = k.Model(i, L.Dense(2, activation="softplus", name="deep_out")(i), name="deep")
    u, v = shared(a), shared(b)
    both = L.Concatenate(name="both")([inner(u), inner(b)])
    total = L.Add(name="total")([deep(both), L.Dense(2, use_bias=False, name="side")(v)])
    last = L.Dense(1, name="last")(total)
    return k.Model([a, b], [last, deep(L.Concatenate(axis=1, name="more")([v, L.Reshape((2,))(total)]))],
                   name="two")


def every_layer(k):
    """A branch with non-default options for every layer that mgpu has; image is {6, 6, 4}, steps is {8, 4}."""
    L, I, R = k.layers, k.initializers, k.regularizers
    image, steps = k.Input((6, 6, 4), name="image"), k.Input((8, 4), name="steps")
    row, ids = k.Input((5,), name="row"), k.Input((4,), dtype="int32", name="ids")
    leaky = {"negative_slope": 0.15} if k.__version__ >= "3" else {"alpha": 0.15}
    scaled = {"data_format": "channels_first"}
    outputs = [
        L.Dense(3, activation="selu", use_bias=False, kernel_initializer=I.HeNormal(seed=4),
                kernel_constraint=k.constraints.MaxNorm(1.5, axis=0),
                activity_regularizer=R.L1(0.1))(row),
        L.Activation("swish")(row), L.Flatten()(steps), L.Reshape((-1, 8))(steps),
        L.Permute((2, 1))(steps), L.Dropout(0.4, noise_shape=(None, 1, 4), seed=3)(steps),
        L.SpatialDropout2D(0.3)(image), L.GaussianNoise(0.2, seed=1)(row),
        L.Conv1D(4, 3, strides=2, padding="same", groups=2, activation="elu",
                 bias_initializer=I.Constant(0.1))(steps),
        L.Conv1D(2, 2, dilation_rate=2)(steps),
        L.Conv2D(4, (3, 2), strides=(2, 1), padding="same", groups=2, activation="gelu",
                 kernel_regularizer=R.L1L2(0.01, 0.02), bias_regularizer=R.L2(0.1))(image),
        L.Conv2D(3, 2, dilation_rate=(2, 1), use_bias=False,
                 kernel_initializer=I.VarianceScaling(2.0, "fan_out", "uniform", seed=2))(image),
        L.Conv2DTranspose(2, 3, strides=2, padding="same", output_padding=1)(image),
        L.DepthwiseConv2D((2, 3), strides=2, padding="same", depth_multiplier=2, activation="tanh")(image),
        L.SeparableConv2D(3, 3, depth_multiplier=2, padding="same", use_bias=False)(image),
        L.MaxPooling1D(3, strides=2, padding="same")(steps), L.AveragePooling1D(2)(steps),
        L.MaxPooling2D((3, 2), strides=1)(image), L.AveragePooling2D(2, padding="same")(image),
        L.GlobalMaxPooling1D()(steps), L.GlobalAveragePooling1D(keepdims=True)(steps),
        L.GlobalMaxPooling2D(keepdims=True)(image), L.GlobalAveragePooling2D(**scaled)(image),
        L.ZeroPadding2D(((1, 2), (0, 3)))(image), L.Cropping2D(((1, 0), (2, 1)))(image),
        L.UpSampling2D((2, 3), interpolation="bilinear")(image),
        L.BatchNormalization(axis=1, momentum=0.9, epsilon=0.01, scale=False,
                             moving_variance_initializer="random_uniform")(image),
        L.BatchNormalization(center=False, trainable=False)(row),
        L.LayerNormalization(axis=[1, 2], epsilon=0.1)(image), L.LayerNormalization(center=False)(row),
        L.Embedding(7, 3, embeddings_initializer=I.RandomNormal(0, 0.5, seed=1))(ids),
        L.Add()([row, row]), L.Subtract()([row, L.ReLU(max_value=1.0, negative_slope=0.2, threshold=0.1)(row)]),
        L.Multiply()([row, L.LeakyReLU(**leaky)(row)]), L.Average()([row, L.ELU(alpha=0.7)(row)]),
        L.Maximum()([steps, L.PReLU(alpha_initializer="ones", shared_axes=[1])(steps)]),
        L.Concatenate(axis=1)([steps, steps]), L.Dot(axes=(2, 2), normalize=True)([steps, steps]),
        L.Softmax(axis=1)(steps)]
    return k.Model([image, steps, row, ids], outputs, name="every_layer")


def randomize(model, seed):
    """Gives every weight random values; variances stay positive."""
    rng = np.random.default_rng(seed)
    model.set_weights([(rng.uniform(0.2, 1.0, w.shape) if "variance" in v.name
                        else rng.normal(0, 0.4, w.shape)).astype("float32") if w.dtype == np.float32 else w
                       for w, v in zip(model.get_weights(), model.weights)])


def inputs_of(model, seed):
    """A batch for the model: small integers for integer inputs."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 7, (BATCH,) + tuple(t.shape[1:])).astype("int32") if "int" in str(t.dtype)
            else rng.normal(0, 1, (BATCH,) + tuple(t.shape[1:])).astype("float32") for t in model.inputs]


def optimizers(k):
    """A name and an optimizer for each state that differs."""
    O, S = k.optimizers, k.optimizers.schedules
    return {"sgd": O.SGD(0.1), "momentum": O.SGD(0.1, momentum=0.9, nesterov=True),
            "adam": O.Adam(0.01, amsgrad=True, clipnorm=1.0),
            "adamw": O.AdamW(S.ExponentialDecay(0.05, 2, 0.5), weight_decay=0.01),
            "rmsprop": O.RMSprop(0.01, momentum=0.5, centered=True), "adagrad": O.Adagrad(0.1),
            "adadelta": O.Adadelta(1.0), "adamax": O.Adamax(0.01), "nadam": O.Nadam(0.01)}


def add(numbers, name, what, arrays):
    """Adds arrays as FILE/what/1, ..."""
    for i, array in enumerate(arrays, 1):
        numbers[f"{name}/{what}/{i}"] = np.asarray(array)


def as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def write_models(k, version, numbers):
    for seed, make in enumerate([lenet5, mlp, mnist_cnn, two_inputs, every_layer]):
        model = make(k)
        randomize(model, seed)
        x = inputs_of(model, seed + 50)
        y = as_list(model.predict(x, verbose=0))
        base = f"{make.__name__}_{version}"
        files = [base + ".keras", base + ".h5"]
        for file in files:
            model.save(os.path.join(HERE, file))
        if version == "3" or make is mlp:
            weights = base + (".weights.h5" if version == "3" else "_weights.h5")
            model.save_weights(os.path.join(HERE, weights))
        add(numbers, base, "x", x)
        add(numbers, base, "y", y)


def write_optimizers(k, version, numbers):
    for name, optimizer in optimizers(k).items():
        L = k.layers
        model = k.Sequential([k.Input((3,)), L.Dense(3, activation="relu", name="one"),
                              L.Dense(2, activation="softmax", name="two")], name=name)
        randomize(model, 7)
        model.compile(optimizer, loss=k.losses.CategoricalCrossentropy(label_smoothing=0.1),
                      metrics=["accuracy", k.metrics.TopKCategoricalAccuracy(k=1, name="first")])
        rng = np.random.default_rng(8)
        x, target = rng.normal(0, 1, (4, 3)).astype("float32"), np.eye(2, dtype="float32")[[0, 1, 1, 0]]
        for _ in range(3):
            model.train_on_batch(x, target)
        base = f"{name}_{version}"
        for ending in [".keras", ".h5"]:
            model.save(os.path.join(HERE, base + ending))
        model.train_on_batch(x, target)
        add(numbers, base, "x", [x])
        add(numbers, base, "target", [target])
        if (name, version) != ("nadam", "2"):  # compiled, Keras 2's forgets a factor of its product at each step
            add(numbers, base, "after", model.get_weights())


def write(version):
    os.makedirs(HERE, exist_ok=True)
    k, numbers = keras_of(version), {}
    write_models(k, version, numbers)
    write_optimizers(k, version, numbers)
    tensor_file.write(os.path.join(HERE, f"expected_{version}.safetensors"), numbers,
                      {"set": f"Keras {k.__version__}"})


def check(folder):
    """Loads our files with both versions of Keras and compares predictions, and one more step of training."""
    from safetensors.numpy import load_file
    expected, worst = load_file(os.path.join(folder, "expected.safetensors")), 0
    for file in sorted(os.listdir(folder)):
        name, ending = os.path.splitext(file)
        if ending not in (".h5", ".keras") or name.endswith(".weights"):
            continue
        # Keras 2 reads .h5 files, but its .h5 files have no AdamW and count the uses of inner models otherwise.
        for version in ["3", "2"] if ending == ".h5" and not name.endswith("_nested") and name != "adamw" else ["3"]:
            k = keras_of(version)
            model = k.models.load_model(os.path.join(folder, file))
            x = [expected[f"{name}/x/{i}"] for i in range(1, len(model.inputs) + 1)]
            y = as_list(model.predict(x if len(x) > 1 else x[0], verbose=0))
            if os.path.exists(os.path.join(folder, name + ".weights.h5")) and version == "3":
                randomize(model, 1)
                model.load_weights(os.path.join(folder, name + ".weights.h5"))
                y += as_list(model.predict(x if len(x) > 1 else x[0], verbose=0))
            error = max(np.abs(expected[f"{name}/y/{1 + i % len(model.outputs)}"] - out).max()
                        for i, out in enumerate(y))
            steps = ""
            # Keras 3 cannot train models from .h5 files, its own ones included: the optimizer has no variables.
            if f"{name}/target/1" in expected and ending == ".keras":
                model.train_on_batch(x[0], expected[f"{name}/target/1"])
                after = model.get_weights()
                error = max([error] + [np.abs(expected[f"{name}/after/{i}"] - w).max()
                                       for i, w in enumerate(after, 1)])
                steps = f", {int(model.optimizer.iterations.numpy())} steps"
            print(f"{file} in Keras {k.__version__}: largest difference {error:.2g}{steps}")
            worst = max(worst, error)
    assert worst < 1e-5, worst


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](sys.argv[2])
