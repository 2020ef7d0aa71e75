"""PyTorch's side of convs.lua: times one pass of one convolution.

    python tests/bench/peer_torch_convs.py --threads 2

Reads lines from standard input and answers one line each:

    hello           ok
    case PASS N SIDE CHANNELS KERNELS SIZE STRIDE PADDING GROUPS
                    builds it in both layouts; PASS is forward, input or filters; ok
    run N LAYOUT    runs N steps in planes or channels_last; milliseconds of each
"""

import argparse
import sys

sys.dont_write_bytecode = True

import torch  # noqa: E402
from peer_torch_layers import run  # noqa: E402

LAYOUTS = {"planes": torch.contiguous_format, "channels_last": torch.channels_last}


def make(layout, part, sizes):
    """A step of the pass in that layout."""
    n, side, channels, kernels, size, stride, padding, groups = sizes
    x = torch.randn(n, channels, side, side).contiguous(memory_format=layout)
    w = torch.randn(kernels, channels // groups, size, size).contiguous(memory_format=layout)
    rest = [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups
    y = torch.convolution(x, w, None, *rest)
    dy = torch.randn_like(y)
    wanted = [part == "input", part == "filters", False]

    @torch.no_grad()
    def step():
        if part == "forward":
            torch.convolution(x, w, None, *rest)
        else:
            torch.ops.aten.convolution_backward(dy, x, w, None, *rest, wanted)

    return step


def main():
    """Reads the options and serves."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    steps = {}
    for line in iter(sys.stdin.readline, ""):
        words, answer = line.split(), "ok"
        if words[0] == "case":
            sizes = [int(word) for word in words[2:]]
            steps = {name: make(layout, words[1], sizes) for name, layout in LAYOUTS.items()}
        elif words[0] == "run":
            answer = run(steps[words[2]], int(words[1]))
        print(answer, flush=True)


if __name__ == "__main__":
    main()
