"""What the peers of the benchmark share: their options, and answering a driver line by line.

    run N     trains N steps and answers {"ms": [milliseconds of each]}
    memory    answers {"rss_mb": peak resident set of the process}
    quit      ends, as the end of input does

Every answer is one line on standard output; anything else a framework prints belongs on standard
error. With --steps N the peer trains N steps, prints both answers and reads nothing.
"""

import argparse
import json
import re
import sys
import time

NETS = ("mnist_cnn", "lenet5", "mlp")


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
    return options


def _peak_memory_mb():
    """VmHWM: unlike getrusage's figure it does not inherit that of the process that started us."""
    with open("/proc/self/status", encoding="ascii") as file:
        return int(re.search(r"VmHWM:\s*(\d+)", file.read()).group(1)) / 1024


def _answer(**values):
    print(json.dumps(values), flush=True)


def _run(step, n):
    times = []
    for _ in range(n):
        start = time.perf_counter()
        step()
        times.append(round((time.perf_counter() - start) * 1e3, 4))
    _answer(ms=times)


def serve(step, options):
    """Warms up, then answers until told to end. step() trains one batch and waits for its loss."""
    for _ in range(options.warmup):
        step()
    if options.steps:
        _run(step, options.steps)
        _answer(rss_mb=round(_peak_memory_mb(), 1))
        return
    for line in iter(sys.stdin.readline, ""):
        words = line.split()
        if words == ["quit"]:
            return
        if words == ["memory"]:
            _answer(rss_mb=round(_peak_memory_mb(), 1))
        elif len(words) == 2 and words[0] == "run" and words[1].isdigit():
            _run(step, int(words[1]))
        elif words:
            _answer(error=f"unknown request: {line.strip()} (there are run N, memory, quit)")
