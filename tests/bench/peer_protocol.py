"""The protocol of the benchmarks: options of the peers, and answers to the driver, line by line.

    run N     trains N steps and answers {"ms": [milliseconds of each]}, or with --read last
              {"ms": [their mean], "host_us": the host's microseconds for a step}
    memory    answers {"mb": peak resident memory of the process, or of the GPU}
    quit      ends, as the end of input does

Every answer is one line on standard output; anything else a framework prints belongs on standard
error. With --steps N the peer trains N steps, prints both answers and reads nothing.
"""

import argparse
import functools
import json
import re
import sys
import time

NETS = ("mnist_cnn", "lenet5", "mlp", "cifar10_cnn", "resnet18", "resnet50", "gpt")


def parser(doc):
    """The options of every peer; doc is its module's."""
    options = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--net", choices=NETS, default="mnist_cnn")
    options.add_argument("--batch", type=int, default=128)
    options.add_argument("--steps", type=int, default=0, help="train these, print, end")
    options.add_argument("--warmup", type=int, default=3, help="steps before the first answer")
    options.add_argument("--layout", choices=("default", "channels_last"), default="default")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--read", choices=("each", "last"), default="each",
                         help="which losses of a run are read")
    options.add_argument("--clock", choices=("wall", "processor"), default="wall",
                         help="whether a step takes its duration or the time of all its threads")
    return options


def _peak_memory_mb():
    """VmHWM. The figure of getrusage would include the process that started this one."""
    with open("/proc/self/status", encoding="ascii") as file:
        return int(re.search(r"VmHWM:\s*(\d+)", file.read()).group(1)) / 1024


def _answer(**values):
    print(json.dumps(values), flush=True)


def run_steps(step, n, clock=time.perf_counter):
    """Trains n steps and answers with the milliseconds of each."""
    times = []
    for _ in range(n):
        start = clock()
        step().item()
        times.append(round((clock() - start) * 1e3, 4))
    _answer(ms=times)


def run_ahead(step, n):
    """Trains n steps without waiting, reads the last loss, and answers with their mean time."""
    start = time.perf_counter()
    for _ in range(n):
        loss = step()
    enqueued = time.perf_counter()
    loss.item()
    _answer(ms=[round((time.perf_counter() - start) / n * 1e3, 5)],
            host_us=round((enqueued - start) / n * 1e6, 2))


def answer_requests(run, memory_mb=_peak_memory_mb):
    """Answers until told to end; run(n) does n steps and answers."""
    for line in iter(sys.stdin.readline, ""):
        words = line.split()
        if words == ["quit"]:
            return
        if words == ["memory"]:
            _answer(mb=round(memory_mb(), 1))
        elif len(words) == 2 and words[0] == "run" and words[1].isdigit():
            run(int(words[1]))
        elif words:
            _answer(error=f"unknown request: {line.strip()} (there are run N, memory, quit)")


def _take_batches(take, n):
    start = time.perf_counter()
    for _ in range(n):
        take()
    _answer(ms=[round((time.perf_counter() - start) / n * 1e3, 5)])


def serve_batches(take, memory_mb=_peak_memory_mb):
    """Takes a few batches, then answers until told to end. take() waits for the next batch."""
    for _ in range(8):
        take()
    answer_requests(lambda n: _take_batches(take, n), memory_mb)


def serve(step, options, memory_mb=_peak_memory_mb):
    """Warms up, then answers until told to end. step() trains one batch; its loss has .item()."""
    run = run_ahead if options.read == "last" else run_steps
    if options.clock == "processor":
        run = functools.partial(run_steps, clock=time.process_time)
    for _ in range(options.warmup):
        step().item()
    if options.steps:
        run(step, options.steps)
        _answer(mb=round(memory_mb(), 1))
        return
    answer_requests(lambda n: run(step, n), memory_mb)


def process_start():
    """When this process began, as time.time gives it, to about 10 ms."""
    with open("/proc/self/stat", encoding="ascii") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    with open("/proc/uptime", encoding="ascii") as file:
        up = float(file.read().split()[0])
    return time.time() - (up - ticks / 100)


def answer_predictions(predict, first):
    """Answers for predict.lua: run(n) predicts n times; "first": seconds until the first prediction was there."""
    def run(n):
        times = []
        for _ in range(n):
            start = time.perf_counter()
            predict()
            times.append(round((time.perf_counter() - start) * 1e3, 5))
        _answer(ms=times, first=round(first, 3))
    answer_requests(run)
