"""Writes tests/golden/images/: small PNG and JPEG files of Pillow, and in expected.npz their pixels
as Pillow reads them. tests/lua/files/image_spec.lua compares.

    ~/golden/bin/pip install pillow && ~/golden/bin/python tests/golden/make_images.py
"""

import pathlib
import struct
import zlib

import numpy as np
import PIL
from PIL import Image

FOLDER = pathlib.Path(__file__).parent / "images"
HEIGHT, WIDTH = 11, 13
ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]


def pixels(channels):
    """A smooth pattern, so that JPEG keeps it well."""
    i, j, c = np.meshgrid(np.arange(HEIGHT), np.arange(WIDTH), np.arange(channels), indexing="ij")
    return np.clip(20 * i + (15 - 10 * c) * j + 20 * c, 0, 255).astype("uint8")


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def interlaced(image):
    """A PNG file with the seven passes of Adam7, which Pillow does not write."""
    raw = b""
    for top, left, down, right in ADAM7:
        for row in image[top::down, left::right]:
            raw += b"\0" + row.tobytes() if row.size else b""
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 1)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw))
            + chunk(b"IEND", b""))


def main():
    FOLDER.mkdir(exist_ok=True)
    gray, rgb, rgba = (Image.fromarray(pixels(c).squeeze()) for c in (1, 3, 4))
    gray.save(FOLDER / "gray.png")
    rgb.save(FOLDER / "rgb.png")
    rgba.save(FOLDER / "rgba.png")
    rgb.quantize(16).save(FOLDER / "palette.png")
    rgb.quantize(15).save(FOLDER / "palette_alpha.png", transparency=3)
    rgba.convert("LA").save(FOLDER / "gray_alpha.png")
    gray.point(lambda v: 255 * (v > 128), mode="1").save(FOLDER / "one_bit.png")
    Image.fromarray(pixels(1).squeeze().astype("uint16") * 257).save(FOLDER / "gray16.png")
    (FOLDER / "interlaced.png").write_bytes(interlaced(pixels(3)))
    rgb.save(FOLDER / "rgb.jpg", quality=90)
    rgb.save(FOLDER / "progressive.jpg", quality=90, progressive=True)
    gray.save(FOLDER / "gray.jpg", quality=90)
    rgb.convert("CMYK").save(FOLDER / "cmyk.jpg")
    expected = {}
    for path in sorted(FOLDER.glob("*.[pj][np]g")):
        image = Image.open(path)
        if path.name == "cmyk.jpg":
            continue
        if image.mode == "P":
            image = image.convert("RGBA" if "transparency" in image.info else "RGB")
        image = {"1": image.convert("L"), "LA": image.convert("RGBA")}.get(image.mode, image)
        array = np.asarray(image)
        array = (array // 257).astype("uint8") if array.dtype != np.uint8 else array
        expected[path.name] = array.reshape(HEIGHT, WIDTH, -1)
    np.savez_compressed(FOLDER / "expected.npz", **expected)
    print(f"Pillow {PIL.__version__}, NumPy {np.__version__}")


main()
