"""PyTorch's side of the benchmark: times training steps on request (see peer_protocol.py).

    python tests/bench/peer_torch.py --net lenet5 --layout channels_last --threads 2 [--compile]

Runs under any PyTorch from 1.10 on, Debian's python3-torch included. The step is that of ours.lua:
forward, categorical cross-entropy of one-hot labels, backward, RMSprop with Keras's learning rate,
rho and epsilon, and reading the loss; one batch of random images, float32. --layout channels_last
stores images and weights so, which mostly suits convolutions on CPUs; --compile puts torch.compile
(2.0 or newer, needs a C++ compiler) around the network.
"""

import sys

sys.dont_write_bytecode = True

import torch  # noqa: E402
from torch import nn  # noqa: E402

import peer_protocol  # noqa: E402


def mnist_cnn():
    """The first seed's network; logits come out."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 256, 3), nn.ReLU(),
        nn.BatchNorm2d(256, eps=1e-3, momentum=0.01), nn.Conv2d(256, 128, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(), nn.Linear(11 * 11 * 128, 128), nn.ReLU(),
        nn.Dropout(0.5), nn.Linear(128, 10))


def lenet5():
    """LeNet-5 with a same-padded first convolution, max pools and ReLU."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84),
        nn.ReLU(), nn.Linear(84, 10))


def mlp():
    """Two hidden layers of 512 with dropout."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 512),
        nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 10))


def make_step(options):
    """The training step as a function that returns the loss as a number."""
    torch.manual_seed(1)
    net = globals()[options.net]().train()
    images = torch.rand(options.batch, 1, 28, 28)
    labels = torch.eye(10)[torch.arange(options.batch) * 7 % 10]
    if options.layout == "channels_last":
        net = net.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    if options.compile:
        net = torch.compile(net)
    loss_of = nn.CrossEntropyLoss()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, alpha=0.9, eps=1e-7)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(net(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def main():
    """Reads the options and serves."""
    parser = peer_protocol.parser(__doc__)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    peer_protocol.serve(make_step(options), options)


if __name__ == "__main__":
    main()
