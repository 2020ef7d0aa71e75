"""Golden set of the TensorBoard callback: what Keras's writes for recorded logs, read by TensorBoard."""

import glob
import os
import tempfile

import keras
import numpy as np
from tensorboard.backend.event_processing import event_file_loader
from tensorboard.util import tensor_util

import hashed
from nets import compute_in

EPOCHS, BATCHES = 3, 4
KERNEL, BIAS = (5, 3), (3,)


def _logs(case, epoch, batch):
    """Numbers that float32 holds exactly; batch 0 is that of the epoch."""
    return {"loss": 1 / 2 ** (epoch + case) + batch / 64, "accuracy": epoch / 4 + batch / 128}


def _model():
    model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(3, name="d")], name="net")
    model.compile(keras.optimizers.SGD(0.25), "mse")
    return model


def _events(folder):
    """Every value in the files, in their order, without the model's graph."""
    for run in ("train", "validation"):
        for path in sorted(glob.glob(f"{folder}/{run}/*tfevents*")):
            for event in event_file_loader.EventFileLoader(path).Load():
                for value in event.summary.value:
                    plugin = value.metadata.plugin_data.plugin_name
                    if plugin == "graph_keras_model":
                        continue
                    numbers = tensor_util.make_ndarray(value.tensor)
                    yield {"run": run, "step": event.step, "tag": value.tag, "plugin": plugin,
                           "shape": list(numbers.shape), "values": numbers.astype("float64").reshape(-1)}


def _case(index, args, validates):
    model = _model()
    with tempfile.TemporaryDirectory() as folder:
        callback = keras.callbacks.TensorBoard(folder, **args)
        callback.set_model(model)
        callback.on_train_begin()
        for epoch in range(EPOCHS):
            model.set_weights([hashed.array(KERNEL, 1 + epoch), hashed.array(BIAS, 9, 0, epoch)])
            callback.on_epoch_begin(epoch)
            for batch in range(1, BATCHES + 1):
                callback.on_train_batch_begin(batch - 1)
                model.optimizer.iterations.assign(epoch * BATCHES + batch)
                callback.on_train_batch_end(batch - 1, _logs(index, epoch, batch))
            logs = _logs(index, epoch, 0)
            if validates:
                callback.on_test_begin()
                callback.on_test_end(_logs(index, epoch, 5))
                logs.update({f"val_{name}": value for name, value in _logs(index, epoch, 5).items()})
            callback.on_epoch_end(epoch, logs)
        callback.on_train_end()
        events = list(_events(folder))
    # Keras writes the logs of a step in the order of their names; the order of tags says nothing
    events.sort(key=lambda event: (event["run"], event["tag"], event["step"]))
    return {"args": args, "validates": validates, "events": [{k: v for k, v in e.items() if k != "values"} for e in events],
            "values": [e["values"] for e in events]}


def tensorboard():
    """The set `tensorboard`."""
    compute_in("float32")
    cases = [({}, True), ({"update_freq": "batch"}, True), ({"update_freq": 2}, False),
             ({"histogram_freq": 1}, False), ({"histogram_freq": 2, "update_freq": 4}, True)]
    return {"epochs": EPOCHS, "batches": BATCHES,
            "cases": [_case(i, *case) for i, case in enumerate(cases)]}


SETS = {"tensorboard": (tensorboard, """
cases[i]: events that TensorBoard's reader finds in the files of Keras's TensorBoard callback with args, sorted by run, tag and
step, and values[k], the numbers of event k. The logs of epoch e (from 0) and batch b of case i (from 0) are loss = 1 / 2^(e + i)
+ b / 64, accuracy = e / 4 + b / 128, with b = 0 at the end of the epoch and 5 for validation. The weights of the model "net",
Dense "d" {5 -> 3}, are {salt = 1 + e} and e in epoch e; its learning rate is 0.25; a batch is a step of the optimizer.""")}
