"""Golden set of callbacks: what Keras's callbacks decide when they are given recorded histories."""

import keras
import numpy as np

from nets import compute_in

START_RATE = 0.1


def _model():
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(START_RATE), "mse", metrics=["mae", "accuracy"])
    model.evaluate(np.zeros((1, 1)), np.zeros((1, 1)), verbose=0)  # builds the metrics
    return model


def _histories(rng, count):
    """Random walks with ties, jumps and NaN, and a few histories made by hand."""
    nan = float("nan")
    yield from [[0.5] * 8, [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8],
                [nan] * 6, [0.5, nan, 0.4, nan, 0.3, nan, nan, 0.2], [nan, 0.5, 0.4, 0.3, 0.2, 0.1],
                [0.5, 0.4999, 0.4998, 0.4997, 0.4996, 0.4995, 0.4994], [1.0, 0.9, 0.9, 0.9, 0.8, 0.8, 0.8, 0.8, 0.7]]
    for _ in range(count):
        steps = rng.integers(-3, 4, size=rng.integers(6, 14)) * rng.choice([0.01, 0.05, 0.1])
        values = 0.5 + np.cumsum(steps)
        values[rng.random(len(values)) < rng.choice([0, 0, 0.2])] = nan
        yield [float(round(value, 6)) for value in values]


def _run(callback, monitor, values):
    """Gives the callback the values of one epoch after another; the weight is the number of the epoch."""
    model = callback.model
    rates = []
    callback.on_train_begin()
    model.stop_training = False
    for epoch, value in enumerate(values):
        model.set_weights([np.array([[epoch + 1.0]])])
        callback.on_epoch_begin(epoch)
        callback.on_epoch_end(epoch, {monitor: value})
        rates.append(float(model.optimizer.learning_rate))
        if model.stop_training:
            break
    callback.on_train_end()
    return rates


def _recorded(values):
    return ["nan" if value != value else value for value in values]


def _early_stopping(rng, model, values):
    monitor = str(rng.choice(["val_loss", "val_accuracy", "val_mae"]))
    args = {"monitor": monitor, "patience": int(rng.integers(0, 4)),
            "min_delta": float(rng.choice([0, 0.01, 0.1, -0.05])), "mode": str(rng.choice(["auto", "auto", "min", "max"])),
            "restore_best_weights": bool(rng.integers(2)), "start_from_epoch": int(rng.choice([0, 0, 0, 2]))}
    if rng.integers(3) == 0:
        args["baseline"] = float(rng.choice([0.3, 0.5, 0.7]))
    callback = keras.callbacks.EarlyStopping(**args)
    callback.set_model(model)
    epochs = len(_run(callback, monitor, values))
    stopped = callback.stopped_epoch + 1 if callback.stopped_epoch else 0
    return {"callback": "EarlyStopping", "args": args, "values": _recorded(values), "epochs": epochs,
            "stopped_epoch": stopped, "weight": float(model.get_weights()[0][0, 0])}


def _reduce(rng, model, values):
    monitor = str(rng.choice(["val_loss", "val_accuracy", "loss"]))
    args = {"monitor": monitor, "patience": int(rng.integers(0, 4)), "factor": float(rng.choice([0.5, 0.1])),
            "min_delta": float(rng.choice([1e-4, 0, 0.05])), "mode": str(rng.choice(["auto", "auto", "min", "max"])),
            "cooldown": int(rng.integers(0, 4)), "min_lr": float(rng.choice([0, 0.003]))}
    callback = keras.callbacks.ReduceLROnPlateau(**args)
    callback.set_model(model)
    model.optimizer.learning_rate = START_RATE
    return {"callback": "ReduceLROnPlateau", "args": args, "values": _recorded(values),
            "rates": np.array(_run(callback, monitor, values))}


def _checkpoint(rng, model, values):
    """save_best_only after each epoch, or every save_freq of the batches of 5-batch epochs."""
    monitor = str(rng.choice(["val_loss", "val_accuracy"]))
    args = {"monitor": monitor, "mode": str(rng.choice(["auto", "min", "max"])), "save_best_only": True}
    if rng.integers(2):
        args["initial_value_threshold"] = float(rng.choice([0.45, 0.55]))
    callback = keras.callbacks.ModelCheckpoint("{epoch}.keras", **args)
    callback.set_model(model)
    saved = []
    model.save = lambda path, **_: saved.append(int(path.split(".")[0]))
    _run(callback, monitor, values)
    return {"callback": "ModelCheckpoint", "args": args, "values": _recorded(values), "saved": saved}


def _frequency(model, save_freq, step):
    """Which batches are saved, of 3 epochs of 5 batches, `step` batches at a time."""
    callback = keras.callbacks.ModelCheckpoint("{epoch}-{batch}.keras", save_freq=save_freq)
    callback.set_model(model)
    saved = []
    model.save = lambda path, **_: saved.append(path[:-len(".keras")])
    for epoch in range(3):
        callback.on_epoch_begin(epoch)
        for first in range(0, 5, step):
            callback.on_train_batch_end(min(first + step, 5) - 1, {})
        callback.on_epoch_end(epoch, {})
    return {"callback": "ModelCheckpoint", "save_freq": save_freq, "steps_per_execution": step,
            "saved": " ".join(saved)}


def callbacks():
    """The set `callbacks`."""
    compute_in("float32")
    rng = np.random.default_rng(7)
    model = _model()
    cases = []
    for make, count in ((_early_stopping, 60), (_reduce, 40), (_checkpoint, 20)):
        cases += [make(rng, model, values) for values in _histories(rng, count)]
    cases += [_frequency(model, freq, step) for freq in (1, 2, 3, 5, 7, 20) for step in (1, 2)]
    return {"cases": cases, "start_rate": START_RATE}


SETS = {"callbacks": (callbacks, """
cases[i]: a callback with args, by Keras's names, and values[e], the monitored value after epoch e ("nan" is NaN). The weight
after epoch e is e. epochs: how many were run; weight: after training. rates[e]: the learning rate after epoch e.
saved: the epochs, or the batches as "epoch-batch ...", after which the model is saved. Epochs and batches count from 1.""")}
