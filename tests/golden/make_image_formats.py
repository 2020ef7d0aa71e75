"""Writes tests/golden/image_formats/: small BMP, GIF and WebP files of Pillow, CMYK JPEG files, and kinds of BMP files
that Pillow only reads; and expected.npz, their pixels as Pillow reads them, with 3 channels, and with 4 where the file
has alpha. tests/lua/files/image_formats_spec.lua compares. Last run with Pillow 13.0.0, NumPy 2.4.6, TensorFlow 2.21.0.

    ~/golden/bin/python tests/golden/make_image_formats.py
"""

import os
import pathlib
import struct

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import PIL  # noqa: E402
import tensorflow as tf  # noqa: E402
from PIL import Image  # noqa: E402

FOLDER = pathlib.Path(__file__).parent / "image_formats"
HEIGHT, WIDTH = 7, 9


def pixels(channels):
    """A smooth pattern, so that lossy formats keep it well."""
    i, j, c = np.meshgrid(np.arange(HEIGHT), np.arange(WIDTH), np.arange(channels), indexing="ij")
    return np.clip(30 * i + (20 - 12 * c) * j + 20 * c, 0, 255).astype("uint8")


def bmp(bits, rows, compression=0, header=40, palette=(), masks=(), top_down=False):
    """A BMP file of these rows, which are bytes in the order of the file."""
    data = b"".join(row + bytes(-len(row) % 4) for row in rows) if compression in (0, 3) else b"".join(rows)
    colors = b"".join(bytes([b, g, r]) + (b"" if header == 12 else b"\0") for r, g, b in palette)
    after = b"".join(struct.pack("<I", m) for m in masks)
    if header == 12:
        info = struct.pack("<IHHHH", 12, WIDTH, HEIGHT, 1, bits)
    else:
        height = -HEIGHT if top_down else HEIGHT
        info = struct.pack("<IiiHHIIiiII", header, WIDTH, height, 1, bits, compression, len(data), 0, 0, len(palette), 0)
        if header > 40:  # the masks are in the header
            info, after = (info + after).ljust(header, b"\0"), b""
    begin = 14 + len(info) + len(after) + len(colors)
    return b"BM" + struct.pack("<IHHI", begin + len(data), 0, 0, begin) + info + after + colors + data


def index_rows(bits):
    """Indices into a palette of up to 16 colors, packed, from the bottom row on."""
    indices = (np.arange(HEIGHT)[:, None] * 3 + np.arange(WIDTH)) % min(2**bits, 13)
    per_byte = 8 // bits
    padded = np.pad(indices, ((0, 0), (0, -WIDTH % per_byte)))
    rows = sum(padded[:, k::per_byte] << (8 - bits * (k + 1)) for k in range(per_byte))
    return [row.astype("uint8").tobytes() for row in rows[::-1]]


def write_bmp():
    rgb, gray = Image.fromarray(pixels(3)), Image.fromarray(pixels(1).squeeze())
    rgb.save(FOLDER / "rgb.bmp")
    gray.save(FOLDER / "gray.bmp")
    rgb.quantize(16).save(FOLDER / "palette.bmp")
    gray.point(lambda v: 255 * (v > 128), mode="1").save(FOLDER / "one_bit.bmp")
    Image.fromarray(pixels(4)).save(FOLDER / "rgba.bmp")
    colors = [(20 * k, 255 - 15 * k, 7 * k) for k in range(13)]
    wide = (pixels(3)[::-1].astype("uint32") << np.array([16, 8, 0], "uint32")).sum(-1)
    five = ((pixels(3)[::-1].astype("uint16") >> 3) << np.array([10, 5, 0], "uint16")).sum(-1)
    six = ((pixels(3)[::-1].astype("uint16") >> np.array([3, 2, 3], "uint16")) << np.array([11, 5, 0], "uint16")).sum(-1)
    alpha = wide.astype("uint32") | (np.arange(WIDTH, dtype="uint32") * 25 << 24)
    files = {
        "four_bits": bmp(4, index_rows(4), palette=colors),
        "core": bmp(8, index_rows(8), header=12, palette=colors + [(0, 0, 0)] * 243),
        "top_down": bmp(24, [row.tobytes() for row in pixels(3)[..., ::-1]], top_down=True),
        "five": bmp(16, [row.astype("<u2").tobytes() for row in five]),
        "six": bmp(16, [row.astype("<u2").tobytes() for row in six], 3, masks=(0xf800, 0x7e0, 0x1f)),
        "unused_byte": bmp(32, [(row | 0x12000000).astype("<u4").tobytes() for row in wide]),
        "alpha": bmp(32, [row.astype("<u4").tobytes() for row in alpha], 3, header=108,
                     masks=(0xff0000, 0xff00, 0xff, 0xff000000)),
        "rle8": bmp(8, rle8(), 1, palette=colors),
        "rle4": bmp(4, rle4(), 2, palette=colors),
    }
    for name, data in files.items():
        (FOLDER / f"{name}.bmp").write_bytes(data)


def rle8():
    """Runs, plain indices with a byte to fill up, ends of rows, and a jump to the right and up by one. There is no row
    without pixels, which Pillow loses."""
    return [bytes([9, 1, 0, 0]), bytes([4, 2, 0, 5, 3, 4, 5, 6, 7, 0, 0, 0]), bytes([2, 8, 0, 2, 3, 1, 2, 9, 0, 0]),
            bytes([8, 4, 0, 0]), bytes([1, 12, 1, 11, 7, 10, 0, 0]), bytes([9, 5, 0, 1])]


def rle4():
    return [bytes([9, 0x12, 0, 0]), bytes([4, 0x33, 0, 5, 0x45, 0x67, 0x80, 0, 0, 0]), bytes([9, 0x9a, 0, 0]) * 4,
            bytes([9, 0xb1, 0, 1])]


def write_gif():
    rgb = Image.fromarray(pixels(3)).quantize(16)
    rgb.save(FOLDER / "palette.gif", interlace=False)
    # Pillow interlaces no images as small as these: rows in the order of the four passes, and the flag for it
    order = [i for first, step in ((0, 8), (4, 8), (2, 4), (1, 2)) for i in range(first, HEIGHT, step)]
    rows = Image.fromarray(np.asarray(rgb)[order], "P")
    rows.putpalette(rgb.getpalette())
    rows.save(FOLDER / "interlaced.gif", interlace=False)
    data = bytearray((FOLDER / "interlaced.gif").read_bytes())
    size = 3 * 2 ** (data[10] % 8 + 1)
    data[13 + size + 9] |= 0x40
    (FOLDER / "interlaced.gif").write_bytes(data)
    # the palette is that of the image, not of the screen
    data = bytearray((FOLDER / "palette.gif").read_bytes())
    flags, palette = data[10], data[13:13 + size]
    descriptor = data[13 + size:13 + size + 10]
    descriptor[9] |= flags & 0x87
    (FOLDER / "own_palette.gif").write_bytes(data[:10] + bytes([flags & 0x70]) + data[11:13] + descriptor + palette
                                             + data[13 + size + 10:])
    rgb.save(FOLDER / "transparent.gif", transparency=3)
    Image.fromarray(pixels(1).squeeze()).save(FOLDER / "gray.gif")
    others = [Image.fromarray(255 - pixels(3)).quantize(8), Image.fromarray(pixels(3)[::-1]).quantize(4)]
    rgb.save(FOLDER / "animated.gif", save_all=True, append_images=others, duration=100)
    # a screen of 9 x 7 pixels, and an image of 4 x 3 at 2, 1
    image = Image.new("P", (4, 3))
    image.putpalette(rgb.getpalette())
    image.putdata(list(range(12)))
    image.save(FOLDER / "part.gif")
    part = (FOLDER / "part.gif").read_bytes()
    begin = part.index(b",", 13 + 3 * 16)
    descriptor = struct.pack("<BHHHH", 0x2c, 2, 1, 4, 3)
    (FOLDER / "part.gif").write_bytes(bytes(part[:6]) + struct.pack("<HH", WIDTH, HEIGHT) + part[10:begin] + descriptor
                                      + part[begin + 9:])


def write_webp():
    rgb, rgba = Image.fromarray(pixels(3)), Image.fromarray(pixels(4))
    rgb.save(FOLDER / "lossy.webp", quality=90)
    rgb.save(FOLDER / "lossless.webp", lossless=True)
    rgba.save(FOLDER / "alpha.webp", lossless=True, exact=True)
    rgba.save(FOLDER / "lossy_alpha.webp", quality=90)
    rgb.save(FOLDER / "animated.webp", save_all=True, append_images=[rgb.rotate(180)], duration=100, lossless=True)


def write_cmyk():
    Image.fromarray(pixels(4), "CMYK").save(FOLDER / "cmyk.jpg", quality=95)
    Image.fromarray(pixels(4), "CMYK").save(FOLDER / "progressive_cmyk.jpg", quality=95, progressive=True)
    data = bytearray((FOLDER / "cmyk.jpg").read_bytes())
    data[data.index(b"Adobe") + 11] = 2  # the same numbers as YCCK
    (FOLDER / "ycck.jpg").write_bytes(data)


def main():
    FOLDER.mkdir(exist_ok=True)
    write_bmp()
    write_gif()
    write_webp()
    write_cmyk()
    expected = {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix == ".npz" or path.name == "animated.webp":
            continue
        image = Image.open(path)
        has_alpha = image.mode == "RGBA" or "transparency" in image.info
        rgb, rgba = np.asarray(image.convert("RGB")), np.asarray(image.convert("RGBA"))
        if path.suffix == ".gif":  # transparent pixels are black, as in TensorFlow
            rgba = np.where(rgba[..., 3:] == 0, 0, rgba).astype("uint8")
            if path.name == "part.gif":  # Pillow fills the screen with the first color
                outside = np.pad(np.zeros((3, 4, 1), bool), ((1, 3), (2, 3), (0, 0)), constant_values=True)
                rgba = np.where(outside, 0, rgba).astype("uint8")
            rgb = rgba[..., :3]
            if path.name != "part.gif":  # whose size TensorFlow takes from the image, not from the screen
                assert (tf.io.decode_image(path.read_bytes(), expand_animations=False).numpy() == rgb).all(), path
        if has_alpha:
            expected[f"{path.name}/4"] = rgba
        if not has_alpha or path.suffix != ".webp":  # Pillow's conversion to RGB drops alpha, too
            expected[f"{path.name}/3"] = rgb
        print(path.name, path.stat().st_size, image.mode, image.size)
    np.savez_compressed(FOLDER / "expected.npz", **expected)
    print(f"Pillow {PIL.__version__}, NumPy {np.__version__}, TensorFlow {tf.__version__}")


main()
