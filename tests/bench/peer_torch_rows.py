"""PyTorch's side of gpu.lua: one process for all rows, which saves the starts of PyTorch.

    python tests/bench/peer_torch_rows.py [--device cuda] [--prepare NET:BATCH:PRECISION,...]
        [--seconds 540]

It answers, besides the requests of peer_protocol.py:

    use NET BATCH PRECISION MODE    chooses the step that `run N` trains from now on

MODE: eager; graph (the whole step recorded by hand in one CUDA graph); compiled (the network by
torch.compile in the mode max-autotune, which records CUDA graphs). Steps are channels-last, with
cudnn.benchmark and the precisions of peer_torch.py. Only the compiled steps of --prepare can be
used: they are made before the first answer, in that order, until the signal SIGUSR1 tells to stop
(again, if it goes on); those that are missing then answer an error. The process ends after --seconds in any case.
"""

import argparse
import gc
import json
import signal
import sys

sys.dont_write_bytecode = True

import torch  # noqa: E402

import peer_protocol  # noqa: E402
import peer_torch  # noqa: E402


class Enough(Exception):
    """Ends a compilation. Compilers wrap it into exceptions of theirs, or drop it."""


def make(device, net, batch, precision, mode):
    """The step of a row, which has run three times."""
    step = peer_torch.make_step(argparse.Namespace(
        device=device, net=net, batch=int(batch), precision=precision, layout="channels_last",
        compile="max-autotune" if mode == "compiled" else None, graph=mode == "graph"))
    for _ in range(3):
        step().item()
    return step


def compile_all(device, steps, asked):
    """Puts the compiled steps, or the reason why there is none, into `steps`."""
    for row in steps:
        if asked:
            return
        try:
            steps[row] = make(device, *row, "compiled")
            print("prepared", *row, file=sys.stderr, flush=True)
        except Exception as problem:  # the others may compile
            if not asked:
                steps[row] = f"{type(problem).__name__}: {problem}".split("\n", maxsplit=1)[0]


def prepare(device, rows):
    """The compiled steps by row, or the reason why there is none."""
    steps = {tuple(row.split(":")): "it was not compiled in time" for row in rows}
    asked, ends = [], []

    def enough(*_):
        asked.append(True)
        if not ends:
            raise Enough

    signal.signal(signal.SIGUSR1, enough)
    try:
        compile_all(device, steps, asked)
    except Enough:
        pass
    ends.append(True)
    print("ready", file=sys.stderr, flush=True)
    return steps


class Server:
    """Answers the requests of gpu.lua."""

    def __init__(self, device, compiled):
        self.device, self.compiled = device, compiled
        self.row, self.made, self.step = None, {}, None

    def change_row(self, row):
        """Frees what the row before it had of the memory."""
        self.row, self.made, self.step = row, {}, None
        gc.collect()
        if self.device != "cpu":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def use(self, *words):
        """Chooses a step, which is made if it has not been used since the row changed."""
        row, mode = words[:3], words[3]
        if row != self.row:
            self.change_row(row)
        if mode == "compiled":
            self.step = self.compiled.get(row, "it was not to be compiled")
            if isinstance(self.step, str):
                raise RuntimeError(self.step)
            return
        if mode not in self.made:
            self.made[mode] = make(self.device, *row, mode)
        self.step = self.made[mode]

    def memory_mb(self):
        """Peak memory of tensors on the GPU."""
        return 0 if self.device == "cpu" else peer_torch.gpu_memory_mb()

    def answer(self):
        """Answers until the input ends."""
        for line in iter(sys.stdin.readline, ""):
            words = line.split()
            if words == ["quit"]:
                return
            try:
                if words[0] == "use":
                    self.use(*words[1:])
                    print(json.dumps({"ready": " ".join(words[1:])}), flush=True)
                elif words[0] == "run":
                    peer_protocol.run_ahead(self.step, int(words[1]))
                else:
                    print(json.dumps({"mb": round(self.memory_mb(), 1)}), flush=True)
            except Exception as problem:  # the next row may run
                text = f"{type(problem).__name__}: {problem}".split("\n", maxsplit=1)[0]
                print(json.dumps({"error": text[:200]}), flush=True)


def main():
    """Reads the options, compiles, and serves."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cuda")
    options.add_argument("--prepare", default="")
    options.add_argument("--seconds", type=int, default=540)
    options = options.parse_args()
    signal.alarm(options.seconds)
    if options.device != "cpu":
        print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}", file=sys.stderr)
    torch._dynamo.config.recompile_limit = 64  # each row is a variant of the same code
    rows = [row for row in options.prepare.split(",") if row]
    Server(options.device, prepare(options.device, rows)).answer()


if __name__ == "__main__":
    main()
