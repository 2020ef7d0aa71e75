"""Golden sets of networks: gradients of mnist_cnn, RMSprop loss curves of a narrow copy and of LeNet-5.

Weights are hashed with one salt per tensor in the order of get_weights(): kernels scaled by
sqrt(6 / fan_in), biases and beta by 0.05, gamma 1 + 0.05; moving statistics keep their defaults. A
batch is images in [0, 1) and class ids, with salts that follow from the step.
"""

import math

import keras
import numpy as np
import tensorflow as tf

import hashed

WEIGHT_SALT, IMAGE_SALT, LABEL_SALT, SAMPLE_SALT = 100, 1000, 2000, 3000
SAMPLES = 64
# The batch of mnist_cnn_gradients. Of 60 batches it is the one in which float32 rounding is least
# likely to change which cell a max pool picks: the smallest gap is 1.2e-5 of the spread. One changed
# pick moves the gradients by 0.5 %.
QUIET_BATCH = 50
L = keras.layers

NOTE = """weights[k]: recipe of tensor k of get_weights(), or `default`, the value of all its elements
(moving statistics). Step s (from 0) trains on the images array(n, images.salt + s, images.scale,
images.offset) and the class ids labels(batch, labels.salt + s, classes). Weights and images are
rounded to `dtype`. The loss is the mean categorical cross-entropy."""


def _tail(dense):
    return [L.MaxPooling2D(2, name="pool"), L.Dropout(0.0), L.Flatten(),
            L.Dense(dense, activation="relu", name="dense1"), L.Dropout(0.0),
            L.Dense(10, activation="softmax", name="dense2")]


def mnist_cnn(size=28, filters=(32, 256, 128), dense=128):
    """The network mnist_cnn of models/, with dropout rates of 0."""
    a, b, c = filters
    return keras.Sequential([
        L.Input((size, size, 1)),
        L.Conv2D(a, 3, activation="relu", name="conv1"),
        L.Conv2D(b, 3, activation="relu", name="conv2"), L.BatchNormalization(name="bn"),
        L.Conv2D(c, 3, activation="relu", name="conv3"),
    ] + _tail(dense))


def lenet5():
    """LeNet-5 as the Keras tutorials write it, with ReLU."""
    return keras.Sequential([
        L.Input((28, 28, 1)),
        L.Conv2D(6, 5, padding="same", activation="relu", name="conv1"), L.MaxPooling2D(2),
        L.Conv2D(16, 5, activation="relu", name="conv2"), L.MaxPooling2D(2), L.Flatten(),
        L.Dense(120, activation="relu", name="dense1"),
        L.Dense(84, activation="relu", name="dense2"),
        L.Dense(10, activation="softmax", name="dense3"),
    ])


def compute_in(floatx):
    """Makes Keras compute in float32 or float64. Without the policy, that of an earlier set would stay."""
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(floatx)


def _recipe(index, weight):
    name, shape = weight.path.split("/")[-1], list(weight.shape)
    recipe = {"name": "/".join(weight.path.split("/")[-2:]), "shape": shape,
              "trainable": weight.trainable}
    if name.startswith("moving"):
        return recipe | {"default": 0.0 if name == "moving_mean" else 1.0}
    scale = math.sqrt(6.0 / math.prod(shape[:-1])) if name == "kernel" else 0.05
    return recipe | hashed.recipe(WEIGHT_SALT + index, scale, 1.0 if name == "gamma" else 0.0)


def _set_weights(model, dtype):
    """Gives the model its hashed weights, rounded to dtype; returns the recipes."""
    recipes = [_recipe(i, w) for i, w in enumerate(model.weights)]
    for weight, recipe in zip(model.weights, recipes):
        if "salt" in recipe:
            weight.assign(hashed.of_recipe(recipe, recipe["shape"]).astype(dtype))
    return recipes


def _batch(shape, step, dtype):
    """Images rounded to dtype, one-hot labels."""
    images = hashed.array(shape, IMAGE_SALT + step, 0.5, 0.5).astype(dtype)
    return images, np.eye(10)[hashed.labels(shape[0], LABEL_SALT + step, 10)]


def _gradients(model, images, labels):
    """Mean loss over the batch and the gradients of the trainable weights."""
    with tf.GradientTape() as tape:
        probabilities = model(tf.cast(images, keras.config.floatx()), training=True)
        losses = keras.losses.categorical_crossentropy(
            tf.cast(labels, probabilities.dtype), probabilities)
        loss = tf.reduce_mean(losses)
    assert loss.dtype == keras.config.floatx()
    return float(loss), tape.gradient(loss, [w.value for w in model.trainable_weights])


def _describe(shape, dtype, recipes, first=0):
    return {"dtype": dtype, "batch": shape[0], "input_shape": list(shape[1:]), "classes": 10,
            "images": {"salt": IMAGE_SALT + first, "scale": 0.5, "offset": 0.5},
            "labels": {"salt": LABEL_SALT + first}, "weights": recipes}


def _in_precision(floatx, build, shape):
    """Loss, gradients of float32 values computed in floatx; the recipes and weight names."""
    compute_in(floatx)
    model = build()
    recipes = _set_weights(model, "float32")
    loss, gradients = _gradients(model, *_batch(shape, QUIET_BATCH, "float32"))
    return loss, [g.numpy().astype(np.float64) for g in gradients], recipes


def _gradient_entry(k, recipe, exact, single):
    """SAMPLES elements of a gradient, and how far Keras's float32 gradient is from it."""
    salt = SAMPLE_SALT + k
    at = hashed.sample_indexes(exact.size, salt, SAMPLES)
    norm = np.linalg.norm(exact)
    return {"name": recipe["name"], "shape": recipe["shape"], "norm": norm, "sample_salt": salt,
            "samples": exact.ravel()[at], "f32_norm": np.linalg.norm(single),
            "f32_deviation": np.linalg.norm(single - exact) / norm}


def gradients_of_mnist_cnn():
    """Loss and gradients of one batch of 16."""
    shape = (16, 28, 28, 1)
    loss, exact, recipes = _in_precision("float64", mnist_cnn, shape)
    f32_loss, single, _ = _in_precision("float32", mnist_cnn, shape)
    trainable = [r for r in recipes if r["trainable"]]
    entries = [_gradient_entry(k, *row) for k, row in enumerate(zip(trainable, exact, single))]
    return _describe(shape, "float32", recipes, QUIET_BATCH) | {
        "loss": np.float64(loss), "f32_loss": np.float64(f32_loss), "sample_count": SAMPLES, "gradients": entries}


def _train(build, shape, dtype, floatx, steps):
    """Losses of RMSprop steps; values are rounded to dtype and computed in floatx."""
    compute_in(floatx)
    model = build()
    recipes = _set_weights(model, dtype)
    optimizer = keras.optimizers.RMSprop(learning_rate=1e-3)
    losses = []
    for step in range(steps):
        loss, gradients = _gradients(model, *_batch(shape, step, dtype))
        optimizer.apply(gradients, model.trainable_weights)
        losses.append(loss)
    assert optimizer.learning_rate.dtype == floatx
    norms = [np.linalg.norm(w.numpy().astype(np.float64)) for w in model.weights]
    return np.array(losses), np.array(norms), recipes


def curve_of_narrow_cnn():
    """20 steps of a narrow mnist_cnn in float64."""
    shape = (8, 12, 12, 1)
    losses, norms, recipes = _train(
        lambda: mnist_cnn(12, (4, 8, 4), 16), shape, "float64", "float64", 20)
    return _describe(shape, "float64", recipes) | {
        "filters": [4, 8, 4], "dense": 16, "learning_rate": 1e-3, "losses": losses,
        "final_norms": norms}


def curve_of_lenet5():
    """12 steps of LeNet-5 in float32, and the losses of the same steps in float64."""
    shape = (128, 28, 28, 1)
    losses, norms, recipes = _train(lenet5, shape, "float32", "float32", 12)
    exact, _, _ = _train(lenet5, shape, "float32", "float64", 12)
    return _describe(shape, "float32", recipes) | {
        "learning_rate": 1e-3, "losses": losses, "f64_losses": exact, "final_norms": norms}


SETS = {
    "mnist_cnn_gradients": (gradients_of_mnist_cnn, NOTE + """

loss and gradients[k], in the order of trainable_weights, are computed in float64 from the float32
weights and images: norm (L2), and samples[j], the element floor(unit(j - 1, sample_salt) * size) of
the flat gradient, counted from 0. f32_loss and f32_norm: the same computed by Keras in float32;
f32_deviation: |f32 - f64| / |f64|. It is up to 1e-3, because a ReLU input near 0 may change its sign by
float32 rounding, which changes the gradients of all earlier layers."""),
    "narrow_cnn_curve": (curve_of_narrow_cnn, NOTE + """

losses[s + 1]: the loss before the update of RMSprop step s; final_norms[k]: the L2 norm of tensor k
of get_weights() after the last step."""),
    "lenet5_curve": (curve_of_lenet5, NOTE + """

losses[s + 1]: the loss before the update of RMSprop step s, computed by Keras in float32; f64_losses:
the same in float64 from the same float32 weights and images; final_norms[k]: the L2 norm of tensor k of
get_weights() after the last step."""),
}
