"""Keras's side of the benchmark (TensorFlow behind it): times training steps on request.

    python tests/bench/peer_keras.py --net lenet5 --threads 2 [--mode graph|xla]

See peer_protocol.py for the requests. The step is that of ours.lua: forward, categorical cross-
entropy, gradients, RMSprop, and reading the loss, as one compiled function without the bookkeeping
of model.fit; one batch of random images, float32. The net gpt gets ids, has the cross-entropy of
ids and AdamW. --mode graph compiles by tf.function, xla by
tf.function with jit_compile. --layout is accepted because the driver passes it, but has no effect:
on CPUs TensorFlow trains convolutions in channels-last only.
"""

import os
import sys

sys.dont_write_bytecode = True

import peer_protocol  # noqa: E402

# The number of inter-op threads with which each mode is fastest on two cores.
MODES = {"graph": 1, "xla": 2}


def _layers(net):
    """The layers of a net: the same as models/*.lua."""
    from keras import layers as L
    head = {
        "mnist_cnn": lambda: [
            L.Conv2D(32, 3, activation="relu"), L.Conv2D(256, 3, activation="relu"),
            L.BatchNormalization(), L.Conv2D(128, 3, activation="relu"), L.MaxPooling2D(2),
            L.Dropout(0.25), L.Flatten(), L.Dense(128, activation="relu"), L.Dropout(0.5)],
        "lenet5": lambda: [
            L.Conv2D(6, 5, padding="same", activation="relu"), L.MaxPooling2D(2),
            L.Conv2D(16, 5, activation="relu"), L.MaxPooling2D(2), L.Flatten(),
            L.Dense(120, activation="relu"), L.Dense(84, activation="relu")],
        "cifar10_cnn": lambda: [
            L.Conv2D(32, 3, padding="same", activation="relu"), L.Conv2D(32, 3, activation="relu"),
            L.MaxPooling2D(2), L.Dropout(0.25), L.Conv2D(64, 3, padding="same", activation="relu"),
            L.Conv2D(64, 3, activation="relu"), L.MaxPooling2D(2), L.Dropout(0.25), L.Flatten(),
            L.Dense(512, activation="relu"), L.Dropout(0.5)],
        "mlp": lambda: [
            L.Flatten(), L.Dense(512, activation="relu"), L.Dropout(0.2),
            L.Dense(512, activation="relu"), L.Dropout(0.2)],
    }
    return [L.Input(_shape(net))] + head[net]() + [L.Dense(10, activation="softmax")]


def _shape(net):
    return {"cifar10_cnn": (32, 32, 3), "resnet18": (224, 224, 3)}.get(net, (28, 28, 1))


def _resnet18():
    """ResNet-18 for ten classes; "same" padding is torchvision's but for which side gets more."""
    import keras
    from keras import layers as L

    def normalized(x, filters, size, stride):
        x = L.Conv2D(filters, size, stride, padding="same", use_bias=False)(x)
        return L.BatchNormalization()(x)

    def unit(x, filters, stride):
        y = L.Activation("relu")(normalized(x, filters, 3, stride))
        y = normalized(y, filters, 3, 1)
        if stride != 1:
            x = normalized(x, filters, 1, stride)
        return L.Activation("relu")(L.Add()([x, y]))

    images = L.Input(_shape("resnet18"))
    x = L.Activation("relu")(normalized(images, 64, 7, 2))
    x = L.MaxPooling2D(3, 2, padding="same")(x)
    for filters in (64, 128, 256, 512):
        x = unit(unit(x, filters, 1 if filters == 64 else 2), filters, 1)
    x = L.Dense(10, activation="softmax")(L.GlobalAveragePooling2D()(x))
    return keras.Model(images, x)


def _gpt():
    """GPT-2 with the sizes of ours.lua; it returns logits."""
    import keras
    from keras import layers as L

    class Places(L.Layer):
        def build(self, shape):
            self.table = self.add_weight(shape=shape[1:])

        def call(self, x):
            return x + self.table

    ids = L.Input((128,), dtype="int32")
    words = L.ReversibleEmbedding(96, 128)
    x = Places()(words(ids))
    for _ in range(4):
        y = L.LayerNormalization(epsilon=1e-5)(x)
        x = x + L.MultiHeadAttention(4, 32)(y, y, use_causal_mask=True)
        y = L.Dense(512)(L.LayerNormalization(epsilon=1e-5)(x))
        x = x + L.Dense(128)(keras.activations.gelu(y, approximate=True))
    return keras.Model(ids, words(L.LayerNormalization(epsilon=1e-5)(x), reverse=True))


def _make_step(options):
    """The training step as a function that returns the loss as a numpy scalar."""
    import keras
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(MODES[options.mode])
    keras.utils.set_random_seed(1)
    whole = {"resnet18": _resnet18, "gpt": _gpt}.get(options.net)
    model = whole() if whole else keras.Sequential(_layers(options.net))
    if options.net == "gpt":
        optimizer = keras.optimizers.AdamW(learning_rate=1e-3)
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        inputs = targets = tf.random.uniform((options.batch, 128), maxval=96, dtype=tf.int32)
    else:
        optimizer = keras.optimizers.RMSprop(learning_rate=1e-3)
        loss_of = keras.losses.categorical_crossentropy
        inputs = tf.random.uniform((options.batch, *_shape(options.net)))
        targets = tf.one_hot(tf.range(options.batch) * 7 % 10, 10)
    optimizer.build(model.trainable_variables)
    weights = [v.value for v in model.trainable_variables]

    @tf.function(jit_compile=options.mode == "xla")
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(loss_of(y, model(x, training=True)))
        optimizer.apply(tape.gradient(loss, weights), model.trainable_variables)
        return loss

    return lambda: train(inputs, targets).numpy()


def main():
    """Reads the options and serves."""
    parser = peer_protocol.parser(__doc__)
    parser.add_argument("--mode", choices=MODES, default="graph")
    options = parser.parse_args()
    os.environ.update(CUDA_VISIBLE_DEVICES="", KERAS_BACKEND="tensorflow",
                      TF_CPP_MIN_LOG_LEVEL="2", OMP_NUM_THREADS=str(options.threads))
    peer_protocol.serve(_make_step(options), options)


if __name__ == "__main__":
    main()
