"""examples/train_mnist.lua with PyTorch: mnist_cnn, trained and tested.

    python tests/bench/peer_torch_mnist.py --epochs 12 --images 60000

As a careful user would write it for a GPU: channels-last, cudnn.benchmark, TF32, data kept on the
GPU as bytes and shuffled there, the loss read once an epoch. Images are random: only time counts.
"""

import argparse
import sys

sys.dont_write_bytecode = True

import torch  # noqa: E402
from torch import nn  # noqa: E402

import peer_torch  # noqa: E402

BATCH = 128


def main():
    """Trains, tests, prints one line an epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--images", type=int, default=60000)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    gpu = peer_torch.on_gpu(options)
    torch.manual_seed(1)
    net = peer_torch.mnist_cnn().to(options.device, memory_format=torch.channels_last)
    optimizer = peer_torch.make_optimizer(net, gpu, False)
    loss_of = nn.CrossEntropyLoss()
    shape = (options.images, 1, 28, 28)
    images = torch.randint(256, shape, dtype=torch.uint8).to(options.device)
    labels = torch.randint(10, shape[:1]).to(options.device)

    def batch(rows):
        x = images[rows].float().div_(255).contiguous(memory_format=torch.channels_last)
        return x, labels[rows]

    for epoch in range(options.epochs):
        order = torch.randperm(options.images, device=options.device)
        total = torch.zeros((), device=options.device)
        net.train()
        for first in range(0, options.images, BATCH):
            x, y = batch(order[first:first + BATCH])
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(y)
        print(epoch, total.item() / options.images)
    net.eval()
    right = torch.zeros((), device=options.device)
    with torch.no_grad():
        for first in range(0, options.images // 6, BATCH):
            x, y = batch(torch.arange(first, min(first + BATCH, options.images // 6),
                                      device=options.device))
            right += (net(x).argmax(1) == y).sum()
    print("accuracy", right.item() / (options.images // 6))


if __name__ == "__main__":
    main()
