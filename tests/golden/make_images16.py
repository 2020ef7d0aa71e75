"""Writes tests/golden/images16/: small PNG files with 16 bits a sample, and in expected.npz their pixels, and those of
the 8-bit files in tests/golden/images, as TensorFlow's decode_png reads them with dtype uint16, and with uint8.
tests/lua/files/image16_spec.lua compares. Last run with TensorFlow 2.21.0, NumPy 2.4.6.

    ~/golden/bin/python tests/golden/make_images16.py
"""

import os
import pathlib
import struct
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

FOLDER = pathlib.Path(__file__).parent / "images16"
HEIGHT, WIDTH = 5, 7
KINDS = {1: ("gray", 0), 2: ("gray_alpha", 4), 3: ("rgb", 2), 4: ("rgba", 6)}  # the name, PNG's number of the kind
ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
# Without one_bit, which TensorFlow does not scale up.
OLD = ["gray", "rgb", "rgba", "palette", "palette_alpha", "gray_alpha", "gray16", "interlaced"]


def pixels(channels):
    """Values whose two bytes differ, with the least and the largest among them."""
    x = (np.arange(HEIGHT * WIDTH * channels) * 7919 + 1234) % 65536
    x[0], x[-1] = 0, 65535
    return x.reshape(HEIGHT, WIDTH, channels).astype("uint16")


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(image, color, interlaced=False, more=b""):
    passes = ADAM7 if interlaced else [(0, 0, 1, 1)]
    rows = [row for top, left, down, right in passes for row in image[top::down, left::right] if row.size]
    raw = b"".join(b"\0" + row.astype(">u2").tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 16, color, 0, 0, interlaced)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + more + chunk(b"IDAT", zlib.compress(raw, 9))
            + chunk(b"IEND", b""))


def main():
    FOLDER.mkdir(exist_ok=True)
    for channels, (name, color) in KINDS.items():
        (FOLDER / f"{name}.png").write_bytes(png(pixels(channels), color))
        (FOLDER / f"{name}_interlaced.png").write_bytes(png(pixels(channels), color, True))
    keyed = chunk(b"tRNS", struct.pack(">H", pixels(1)[1, 2, 0]))  # the color that is transparent
    (FOLDER / "gray_key.png").write_bytes(png(pixels(1), 0, more=keyed))
    expected = {}
    files = {f"16/{path.name}": path for path in sorted(FOLDER.glob("*.png"))}
    files |= {f"8/{name}.png": FOLDER.parent / "images" / f"{name}.png" for name in OLD}
    for name, path in files.items():
        data = path.read_bytes()
        # TensorFlow gives the opaque pixels of a palette of 4 bits the alpha 15 of 255.
        for channels in (3,) if name == "8/palette.png" else (3, 4):
            wide = tf.io.decode_png(data, channels=channels, dtype=tf.uint16).numpy()
            expected[f"{name}/{channels}"] = wide.astype("int32")
        if data[25] in (0, 2) and b"tRNS" not in data:  # the channels of these files are TensorFlow's, too
            expected[f"{name}/0"] = tf.io.decode_png(data, dtype=tf.uint16).numpy().astype("int32")
    np.savez_compressed(FOLDER / "expected.npz", **expected)
    print(f"TensorFlow {tf.__version__}, NumPy {np.__version__}")


main()
