"""PyTorch's side of layers.lua: times forward and backward of one layer at a time.

    python tests/bench/peer_torch_layers.py --threads 2 --pass step

Reads lines from standard input and answers one line each:

    hello           ok
    case NAME       builds that case in every layout; "sizes N N ...; layouts A B": elements of the
                    output, of each input's gradient and of each weight's, in layers.lua's order
    run N LAYOUT    runs N steps; milliseconds of each

A step is eager: y = layer(x), y.backward(g); gradients are dropped before the next one. With --pass
forward it is y = layer(x) without recording gradients. Images are timed as planes (NCHW) and as
channels_last.
"""

import argparse
import sys
import time

sys.dont_write_bytecode = True

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

IMAGE, SMALL = (64, 64, 28, 28), (64, 64, 14, 14)
SEQUENCE, TOKENS = (64, 64, 256), (32, 128, 256)
LONG, LONGER = (32, 100, 128), (64, 200, 64)  # batch, steps, features


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


class Tables(nn.Embedding):
    """An embedding whose input has no gradient."""


def separable():
    """Depthwise 3x3, then 1x1 to 128 channels with bias."""
    return nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False), nn.Conv2d(64, 128, 1))


class Recurrent(nn.Module):
    """The outputs of all steps, without the last states."""

    def __init__(self, kind, features, units):
        super().__init__()
        self.layer = kind(features, units, bias=False, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


# Name: (shapes of the inputs, maker). A rank-4 input is measured in both layouts. Sequences are
# {batch, channels, steps}, PyTorch's way.
CASES = {
    "Dense": ([(128, 1024)], lambda: nn.Linear(1024, 1024)),
    "Dense 32x512": ([(32, 512)], lambda: nn.Linear(512, 512)),
    "Dense 64x2048": ([(64, 2048)], lambda: nn.Linear(2048, 2048)),
    "Dense 256x4096": ([(256, 4096)], lambda: nn.Linear(4096, 4096)),
    "relu": ([IMAGE], nn.ReLU),
    "gelu": ([TOKENS], nn.GELU),
    "tanh": ([TOKENS], nn.Tanh),
    "sigmoid": ([TOKENS], nn.Sigmoid),
    "softmax": ([(128, 1000)], lambda: nn.Softmax(-1)),
    "Conv1D": ([SEQUENCE], lambda: nn.Conv1d(64, 64, 3, padding=1)),
    "Conv2D 3x3": ([IMAGE], lambda: nn.Conv2d(64, 64, 3, padding=1)),
    "Conv2D 1x1": ([IMAGE], lambda: nn.Conv2d(64, 128, 1)),
    "Conv2D 3x3 strided": ([IMAGE], lambda: nn.Conv2d(64, 128, 3, stride=2, padding=1)),
    "Conv2D 5x5 of 1 channel": ([(128, 1, 28, 28)], lambda: nn.Conv2d(1, 32, 5)),
    "Conv2DTranspose": ([SMALL], lambda: nn.ConvTranspose2d(64, 32, 2, stride=2)),
    "DepthwiseConv2D": ([IMAGE], lambda: nn.Conv2d(64, 64, 3, padding=1, groups=64)),
    "SeparableConv2D": ([IMAGE], separable),
    "MaxPooling1D": ([SEQUENCE], lambda: nn.MaxPool1d(2)),
    "MaxPooling2D": ([IMAGE], lambda: nn.MaxPool2d(2)),
    "MaxPooling2D 3x3/2": ([IMAGE], lambda: nn.MaxPool2d(3, stride=2)),
    "AveragePooling1D": ([SEQUENCE], lambda: nn.AvgPool1d(2)),
    "AveragePooling2D": ([IMAGE], lambda: nn.AvgPool2d(2)),
    "GlobalMaxPooling1D": ([SEQUENCE], lambda: Function(lambda x: x.amax(2))),
    "GlobalMaxPooling2D": ([IMAGE], lambda: Function(lambda x: x.amax((2, 3)))),
    "GlobalAveragePooling1D": ([SEQUENCE], lambda: Function(lambda x: x.mean(2))),
    "GlobalAveragePooling2D": ([IMAGE], lambda: Function(lambda x: x.mean((2, 3)))),
    "ZeroPadding2D": ([IMAGE], lambda: nn.ZeroPad2d(1)),
    # A view would be no work; cloned, it is a new tensor, as ours is.
    "Cropping2D": ([IMAGE], lambda: Function(lambda x: x[:, :, 2:-2, 2:-2].clone())),
    "UpSampling2D": ([SMALL], lambda: nn.Upsample(scale_factor=2)),
    "UpSampling2D bilinear": ([SMALL], lambda: nn.Upsample(scale_factor=2, mode="bilinear")),
    "BatchNormalization": ([IMAGE], lambda: nn.BatchNorm2d(64, eps=1e-3, momentum=0.01)),
    "LayerNormalization": ([TOKENS], lambda: nn.LayerNorm(256, eps=1e-3)),
    "Embedding": ([(64, 200)], lambda: Tables(20000, 128)),
    "Add": ([IMAGE, IMAGE], lambda: Function(torch.add)),
    "Subtract": ([IMAGE, IMAGE], lambda: Function(torch.sub)),
    "Multiply": ([IMAGE, IMAGE], lambda: Function(torch.mul)),
    "Average": ([IMAGE, IMAGE], lambda: Function(lambda a, b: (a + b) / 2)),
    "Maximum": ([IMAGE, IMAGE], lambda: Function(torch.maximum)),
    "Concatenate": ([IMAGE, IMAGE], lambda: Function(lambda a, b: torch.cat((a, b), 1))),
    "Dot": ([(64, 128, 64), (64, 128, 64)], lambda: Function(lambda a, b: a @ b.transpose(1, 2))),
    "Dropout": ([TOKENS], lambda: nn.Dropout(0.5)),
    "SpatialDropout2D": ([IMAGE], lambda: nn.Dropout2d(0.5)),
    "GaussianNoise": ([TOKENS], lambda: Function(lambda x: x + torch.randn_like(x) * 0.1)),
    "ReLU": ([IMAGE], nn.ReLU),
    "PReLU": ([IMAGE], lambda: nn.PReLU(64)),
    "ELU": ([IMAGE], nn.ELU),
    "LeakyReLU": ([IMAGE], lambda: nn.LeakyReLU(0.2)),
    "Softmax": ([(256, 128, 128)], lambda: nn.Softmax(-1)),
    "Flatten after relu": ([IMAGE], lambda: Function(lambda x: torch.flatten(F.relu(x), 1))),
    "Permute": ([TOKENS], lambda: Function(lambda x: x.permute(0, 2, 1).contiguous())),
    "LSTM 128 to 256": ([LONG], lambda: Recurrent(nn.LSTM, 128, 256)),
    "LSTM 64 to 64": ([LONGER], lambda: Recurrent(nn.LSTM, 64, 64)),
    "GRU 128 to 256": ([LONG], lambda: Recurrent(nn.GRU, 128, 256)),
    "GRU 64 to 64": ([LONGER], lambda: Recurrent(nn.GRU, 64, 64)),
}


def make(name, layout, only_forward):
    """A step of the case in that layout, and the sizes of its output and gradients."""
    torch.manual_seed(1)
    shapes, maker = CASES[name]
    layer = maker().train()
    if isinstance(layer, Tables):
        inputs = [torch.randint(0, layer.num_embeddings, shape) for shape in shapes]
    else:
        inputs = [torch.randn(shape) for shape in shapes]
    if layout == "channels_last":
        layer = layer.to(memory_format=torch.channels_last)
        inputs = [x.contiguous(memory_format=torch.channels_last) for x in inputs]
    leaves = [x.requires_grad_() for x in inputs if x.is_floating_point()] + list(layer.parameters())
    y = layer(*inputs)
    # The gradient from above, in the layout that the next layer would give it.
    g = torch.randn_like(y)

    def step():
        for leaf in leaves:
            leaf.grad = None
        layer(*inputs).backward(g)

    @torch.no_grad()
    def forward():
        layer(*inputs)

    return forward if only_forward else step, [y.numel()] + [leaf.numel() for leaf in leaves]


def run(step, n):
    """Milliseconds of each of n steps."""
    times = []
    for _ in range(n):
        start = time.perf_counter()
        step()
        times.append(f"{(time.perf_counter() - start) * 1e3:.4f}")
    return " ".join(times)


def answer(words, steps, only_forward):
    """The answer to a line."""
    if words[0] == "case":
        name = " ".join(words[1:])
        layouts = ["planes", "channels_last"] if len(CASES[name][0][0]) == 4 else ["planes"]
        steps.clear()
        for layout in layouts:
            steps[layout], sizes = make(name, layout, only_forward)
        return f"sizes {' '.join(map(str, sizes))}; layouts {' '.join(layouts)}"
    if words[0] == "run":
        return run(steps[words[2]], int(words[1]))
    return "ok"


def main():
    """Reads the options and serves."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pass", choices=("step", "forward"), default="step", dest="part")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    steps = {}
    for line in iter(sys.stdin.readline, ""):
        print(answer(line.split(), steps, options.part == "forward"), flush=True)


if __name__ == "__main__":
    main()
