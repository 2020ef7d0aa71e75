"""PyTorch's side of the benchmark: times training steps on request (see peer_protocol.py).

    python tests/bench/peer_torch.py --net lenet5 --layout channels_last --threads 2 [--compile MODE]
        [--device cuda --precision tf32|fp16|bf16 --graph]

Runs under any PyTorch from 1.10 on, Debian's python3-torch included. The step is that of ours.lua:
forward, categorical cross-entropy of one-hot labels, backward, RMSprop with Keras's learning rate,
rho and epsilon, and reading the loss; one batch of random images, float32. The net gpt gets ids,
has the cross-entropy of ids and AdamW, and needs PyTorch 2.0. --layout channels_last
stores images and weights channels-last, which is mostly faster for convolutions; --compile puts
torch.compile (2.0 or newer, needs a compiler) around the network. On a GPU: cudnn.benchmark, TF32
for all products, autocast (with a GradScaler for fp16) for 16 bits, the foreach form of the
optimizer; --graph records the whole step in one CUDA graph by hand.
"""

import sys

sys.dont_write_bytecode = True

import torch  # noqa: E402
from torch import nn  # noqa: E402

import peer_protocol  # noqa: E402


def mnist_cnn():
    """The network of models/mnist_cnn.lua; it returns logits."""
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


def cifar10_cnn():
    """The network of models/cifar10_cnn.lua; it returns logits."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Dropout(0.25), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
        nn.Linear(6 * 6 * 64, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10))


class Residual(nn.Module):
    """Two 3x3 convolutions, and a shortcut that is projected where the shape changes."""

    def __init__(self, channels, filters, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, filters, 3, stride, 1, bias=False), nn.BatchNorm2d(filters),
            nn.ReLU(), nn.Conv2d(filters, filters, 3, 1, 1, bias=False), nn.BatchNorm2d(filters))
        self.shortcut = nn.Identity() if stride == 1 and channels == filters else nn.Sequential(
            nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet18():
    """ResNet-18 of torchvision, for ten classes."""
    units = [Residual(64, 64, 1), Residual(64, 64, 1)]
    for filters in (128, 256, 512):
        units += [Residual(filters // 2, filters, 2), Residual(filters, filters, 1)]
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), *units, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions, the first with the stride, as in keras.applications."""

    def __init__(self, channels, filters, stride):
        super().__init__()

        def conv_bn(inputs, outputs, size, step=1):
            return nn.Sequential(nn.Conv2d(inputs, outputs, size, step, size // 2),
                                 nn.BatchNorm2d(outputs, eps=1.001e-5, momentum=0.01))

        self.body = nn.Sequential(conv_bn(channels, filters, 1, stride), nn.ReLU(),
                                  conv_bn(filters, filters, 3), nn.ReLU(),
                                  conv_bn(filters, 4 * filters, 1))
        self.shortcut = nn.Identity() if channels == 4 * filters else conv_bn(
            channels, 4 * filters, 1, stride)

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet50():
    """ResNet-50 of keras.applications, for ten classes."""
    units, channels = [], 64
    for filters, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for i in range(count):
            units.append(Bottleneck(channels, filters, 2 if i == 0 and filters > 64 else 1))
            channels = 4 * filters
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64, eps=1.001e-5, momentum=0.01), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), *units, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 10))


class Block(nn.Module):
    """Causal self-attention of four heads and a dense network, each normalized before."""

    def __init__(self, width):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.split, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, steps, width = x.shape
        parts = self.split(self.norm_1(x)).view(batch, steps, 3, 4, width // 4)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.join(y.transpose(1, 2).reshape(batch, steps, width))
        return x + self.dense(self.norm_2(x))


class gpt(nn.Module):
    """GPT-2 with the sizes of ours.lua; it returns logits."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(96, 128), nn.Embedding(128, 128)
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(128) for _ in range(4)), nn.LayerNorm(128))

    def forward(self, ids):
        x = self.words(ids) + self.places.weight[:ids.shape[1]]
        return nn.functional.linear(self.blocks(x), self.words.weight)


# Others: one of MNIST's images.
SHAPES = {"cifar10_cnn": (3, 32, 32), "resnet18": (3, 224, 224), "resnet50": (3, 224, 224)}


def on_gpu(options):
    """Whether it runs on a GPU; if so, sets what a user who wants speed sets."""
    if options.device == "cpu":
        return False
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    return True


def make_optimizer(net, gpu, graph):
    """RMSprop, or AdamW for gpt, with Keras's settings; the foreach form on a GPU."""
    extra = {"foreach": True, "capturable": graph} if gpu else {}
    if isinstance(net, gpt):
        return torch.optim.AdamW(net.parameters(), lr=1e-3, eps=1e-7, weight_decay=0.004, **extra)
    return torch.optim.RMSprop(net.parameters(), lr=1e-3, alpha=0.9, eps=1e-7, **extra)


def recorded(step):
    """The step as one CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss

    return replay


def on_first_call(make):
    """A function that calls make() at its first call and then what that returned."""
    made = []

    def call():
        if not made:
            made.append(make())
        return made[0]()

    return call


def make_batch(options):
    """Images and labels, or texts of ids, which are their own targets."""
    if options.net == "gpt":
        ids = torch.randint(0, 96, (options.batch, 128), device=options.device)
        return ids, ids
    shape = SHAPES.get(options.net, (1, 28, 28))
    images = torch.rand(options.batch, *shape, device=options.device)
    if options.layout == "channels_last":
        images = images.contiguous(memory_format=torch.channels_last)
    return images, torch.eye(10, device=options.device)[torch.arange(options.batch) * 7 % 10]


def make_step(options, wrap=lambda net: net):
    """The training step as a function that returns the loss; wrap is put around the network."""
    torch.manual_seed(1)
    gpu = on_gpu(options)
    net = globals()[options.net]().train().to(options.device)
    inputs, targets = make_batch(options)
    if options.layout == "channels_last":
        net = net.to(memory_format=torch.channels_last)
    optimizer = make_optimizer(net, gpu, options.graph)
    net = wrap(net)
    if options.compile:
        net = torch.compile(net, mode=options.compile, dynamic=False)
    loss_of = nn.CrossEntropyLoss()
    half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(options.precision)
    scaler = torch.amp.GradScaler(options.device, enabled=options.precision == "fp16"
                                  and not options.graph) if gpu else None

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(options.device, dtype=half, enabled=half is not None):
            outputs = net(inputs)
            if options.net == "gpt":
                outputs = outputs.transpose(1, 2)  # the classes are axis 1 for PyTorch
            loss = loss_of(outputs, targets)
        if scaler and scaler.is_enabled():
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        return loss

    return on_first_call(lambda: recorded(step)) if options.graph else step


def gpu_memory_mb():
    """Peak memory of tensors."""
    return torch.cuda.max_memory_allocated() / 2 ** 20


def main():
    """Reads the options and serves."""
    parser = peer_protocol.parser(__doc__)
    parser.add_argument("--compile", choices=("default", "reduce-overhead", "max-autotune"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("tf32", "fp16", "bf16"), default="tf32")
    parser.add_argument("--graph", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    step = make_step(options)
    if options.device == "cpu":
        peer_protocol.serve(step, options)
    else:
        peer_protocol.serve(step, options, gpu_memory_mb)


if __name__ == "__main__":
    main()
