"""PyTorch's side of tests/bench/data.lua: batches of a DataLoader, on request.

    python tests/bench/peer_torch_data.py --work augment|records --setting 0|workers --folder FOLDER

The images are changed as torchvision changes them, by tensor operations on each image; JPEG files are
decoded by Pillow. --setting 0 loads in this process, workers in as many processes as there are
threads. See peer_protocol.py for the requests; the time is the mean of N batches.
"""

import argparse
import io
import math
import os
import random
import struct
import sys

sys.dont_write_bytecode = True

import numpy  # noqa: E402
import peer_protocol  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402

IMAGES, SIDE, SHIFT, CROP = 20000, 32, 3, 224
BATCH = {"augment": 128, "records": 32}


class Small(torch.utils.data.Dataset):
    """Random images of CIFAR's size, flipped and shifted."""

    def __init__(self):
        self.x = torch.randint(0, 256, (IMAGES, 3, SIDE, SIDE), dtype=torch.uint8)
        self.y = torch.randint(0, 10, (IMAGES,))

    def __len__(self):
        return IMAGES

    def __getitem__(self, i):
        x = self.x[i]
        if random.random() < 0.5:
            x = x.flip(-1)
        wide = torch.nn.functional.pad(x[None].float(), (SHIFT,) * 4, mode="reflect")[0]
        top, left = random.randint(0, 2 * SHIFT), random.randint(0, 2 * SHIFT)
        return wide[:, top:top + SIDE, left:left + SIDE].to(torch.uint8), self.y[i]


def _payloads(path):
    """The JPEG files in a TFRecord file of ours, found by their first and last bytes."""
    files = []
    with open(path, "rb") as file:
        while head := file.read(12):
            record = file.read(struct.unpack("<Q", head[:8])[0])
            file.read(4)
            begin = record.index(b"\xff\xd8\xff")
            files.append(record[begin:record.rindex(b"\xff\xd9") + 2])
    return files


class Photos(torch.utils.data.Dataset):
    """JPEG files, cropped to a random part and resized."""

    def __init__(self, folder):
        self.files = _payloads(os.path.join(folder, "images.tfrecord"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        image = Image.open(io.BytesIO(self.files[i])).convert("RGB")
        share, aspect = random.uniform(0.1, 1), random.uniform(0.8, 1.25)
        width = min(image.width, int(math.sqrt(image.width * image.height * share * aspect)))
        height = min(image.height, int(math.sqrt(image.width * image.height * share / aspect)))
        left, top = random.randint(0, image.width - width), random.randint(0, image.height - height)
        part = image.resize((CROP, CROP), Image.Resampling.BILINEAR,
                            box=(left, top, left + width, top + height))
        return torch.from_numpy(numpy.array(part)), i % 10


def _endless(loader):
    while True:
        yield from loader


def main():
    """Reads the options and serves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", choices=("augment", "records"), required=True)
    parser.add_argument("--setting", choices=("0", "workers"), required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = Small() if options.work == "augment" else Photos(options.folder)
    workers = options.threads if options.setting == "workers" else 0
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH[options.work], shuffle=True, num_workers=workers,
                                         persistent_workers=workers > 0)
    batches = _endless(loader)
    peer_protocol.serve_batches(lambda: next(batches))


if __name__ == "__main__":
    main()
