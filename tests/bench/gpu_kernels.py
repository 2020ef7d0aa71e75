"""Where the time of a training step goes on a GPU: the kernels of one step, measured by ncu.

    python tests/bench/gpu_kernels.py PROGRAM LIST SECONDS [PROPERTIES]

LIST: a file with lines `NET BATCH PRECISION`, as gpu.lua writes it of the rows that are too slow.
SECONDS: for all of them. PROPERTIES: the JSON file of tests/cuda/machine.lua, for the bandwidth.

Steps run without CUDA graphs, because ncu measures a graph as one. It leaves the GPU's clocks alone
(--clock-control none), and measures each kernel alone, so the sum of the times is more than a step
with parallel branches takes. The floor of a step is the time for its bytes at the full bandwidth.
"""

import csv
import glob
import io
import json
import os
import shutil
import subprocess
import sys
import time

STEPS = 3  # see last_step
METRICS = "gpu__time_duration.sum,dram__bytes.sum"  # nanoseconds, bytes


def find_ncu():
    """The path of ncu, or None."""
    places = glob.glob("/usr/local/cuda*/bin/ncu") + glob.glob("/opt/nvidia/nsight-compute/*/ncu")
    return shutil.which("ncu") or next(iter(places), None)


def read_kernels(text):
    """A list of (name, seconds, bytes) from ncu's output: CSV, after a few lines of its own."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    kernels = []
    for row in csv.DictReader(io.StringIO("\n".join(lines[first:]))):
        if row["ID"]:  # else the line of units
            duration, size = (float(row[m].replace(",", "")) for m in METRICS.split(","))
            kernels.append((row["Kernel Name"], duration / 1e9, size))
    return kernels


def last_step(kernels):
    """The kernels of the last of three steps: the longest end that stands twice."""
    names = [kernel[0] for kernel in kernels]
    for n in range(len(names) // 2, 0, -1):
        if names[-n:] == names[-2 * n:-n]:
            return kernels[-n:]
    return []


def bandwidth(path):
    """Bytes a second of the GPU's memory, by its clock and its bus; two bits a clock and line.

    None if the file cannot be read or does not tell."""
    try:
        with open(path, encoding="ascii") as file:
            values = json.load(file)
        return values["memClockRateKHz"] * 1e3 * 2 * values["memoryBusWidth"] / 8
    except (OSError, ValueError, KeyError):
        return None


def report(row, kernels, speed):
    """Prints the kernels of a step in the order of their time."""
    sums = {}
    for name, duration, size in kernels:
        n, t, b = sums.get(name, (0, 0, 0))
        sums[name] = (n + 1, t + duration, b + size)
    total, size = sum(k[1] for k in kernels), sum(k[2] for k in kernels)
    floor = f", floor {size / speed * 1e6:.0f} us" if speed else ""
    print(f"= {row}: {len(kernels)} kernels, {total * 1e6:.0f} us, {size / 1e6:.0f} MB{floor}")
    print("  share       us   calls       MB     GB/s  kernel")
    for name, (n, t, b) in sorted(sums.items(), key=lambda item: -item[1][1])[:15]:
        print(f"  {t / total:5.1%} {t * 1e6:8.1f} {n:7} {b / 1e6:8.1f} {b / t / 1e9:8.0f}  {name[:80]}")


def measure(ncu, program, row, seconds):
    """The kernels of a step of a row."""
    net, batch, precision = row.split()
    command = [ncu, "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base",
               "--metrics", METRICS, program, "tests/bench/ours.lua", "--device", "cuda:0", "--net",
               net, "--batch", batch, "--precision", precision, "--read", "last"]
    answer = subprocess.run(command, input=f"run {STEPS}\n", capture_output=True, text=True,
                            timeout=seconds, check=False,
                            env={**os.environ, "MGPU_CUDA_GRAPH": "no"})
    kernels = last_step(read_kernels(answer.stdout))
    if not kernels:
        last = (answer.stdout + answer.stderr).strip().splitlines()[-1:]
        raise RuntimeError(f"no step was found; status {answer.returncode}: {''.join(last)}")
    return kernels


def main():
    """Measures the rows of the list while time is left."""
    program, path, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    end, ncu = time.time() + seconds, find_ncu()
    try:
        with open(path, encoding="ascii") as file:
            rows = file.read().splitlines()
    except OSError:
        print("FAIL kernels: the benchmark has not listed the rows that are too slow")
        sys.exit("0 passed, 1 failed")
    if not rows:
        print("= no row that was measured is too slow")
    speed = bandwidth(sys.argv[4]) if len(sys.argv) > 4 else None
    failed = 0
    for row in rows:
        try:
            if not ncu:
                raise RuntimeError("there is no ncu")
            report(row, measure(ncu, program, row, max(end - time.time(), 1)), speed)
        except (OSError, RuntimeError, subprocess.TimeoutExpired, KeyError, ValueError) as problem:
            failed += 1
            print(f"FAIL {row}: {problem}"[:300])
        sys.stdout.flush()
    print(f"{max(len(rows) - failed, 1 if not rows else 0)} passed, {failed} failed")


if __name__ == "__main__":
    main()
