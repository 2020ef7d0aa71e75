"""Keras's side of the benchmark (TensorFlow behind it): times training steps on request.

    python tests/bench/peer_keras.py --net lenet5 --threads 2 [--mode graph|xla]

See peer_protocol.py for the requests. The step is that of ours.lua: forward, categorical cross-
entropy, gradients, RMSprop, and reading the loss, as one compiled function without the bookkeeping
of model.fit; one batch of random images, float32. --mode graph compiles by tf.function, xla by
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
        "mlp": lambda: [
            L.Flatten(), L.Dense(512, activation="relu"), L.Dropout(0.2),
            L.Dense(512, activation="relu"), L.Dropout(0.2)],
    }
    return [L.Input((28, 28, 1))] + head[net]() + [L.Dense(10, activation="softmax")]


def _make_step(options):
    """The training step as a function that returns the loss as a numpy scalar."""
    import keras
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(MODES[options.mode])
    keras.utils.set_random_seed(1)
    model = keras.Sequential(_layers(options.net))
    optimizer = keras.optimizers.RMSprop(learning_rate=1e-3)
    optimizer.build(model.trainable_variables)
    weights = [v.value for v in model.trainable_variables]
    images = tf.random.uniform((options.batch, 28, 28, 1))
    labels = tf.one_hot(tf.range(options.batch) * 7 % 10, 10)

    @tf.function(jit_compile=options.mode == "xla")
    def train(x, y):
        with tf.GradientTape() as tape:
            losses = keras.losses.categorical_crossentropy(y, model(x, training=True))
            loss = tf.reduce_mean(losses)
        optimizer.apply(tape.gradient(loss, weights), model.trainable_variables)
        return loss

    return lambda: train(images, labels).numpy()


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
