"""Writes tests/golden/tfrecord/: small TFRecord files of TensorFlow, and in expected.npz what
tf.io.parse_single_example reads from them. tests/lua/data/tfrecord_golden_spec.lua compares.

    ~/golden/bin/python tests/golden/make_tfrecord.py

With the path of build/mgpulua it also has that program write such files (tfrecord_ours.lua), reads
them with TensorFlow, and fails unless all values are what was written:

    ~/golden/bin/python tests/golden/make_tfrecord.py build/mgpulua
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

FOLDER = pathlib.Path(__file__).parent / "tfrecord"
COUNT = 7
T = tf.train


def floats(values):
    return T.Feature(float_list=T.FloatList(value=values))


def integers(values):
    return T.Feature(int64_list=T.Int64List(value=values))


def strings(values):
    return T.Feature(bytes_list=T.BytesList(value=values))


def pixels(i, height, width, channels):
    """A smooth pattern, so that JPEG keeps it well."""
    r, c, k = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")
    return np.clip(15 * r + (12 - 8 * k) * c + 20 * k + 9 * i, 0, 255).astype("uint8")


def example(i):
    """Row i. Sizes of images and the number of boxes differ; row 3 has no boxes and no weight, and
    the text of row 0 is empty."""
    feature = {
        "image/encoded": strings([tf.io.encode_jpeg(pixels(i, 8 + i, 10, 3), quality=90).numpy()]),
        "image/png": strings([tf.io.encode_png(pixels(i, 5, 6, 1)).numpy()]),
        "image/raw": strings([pixels(i, 4, 3, 1).tobytes()]),
        "image/class/label": integers([i % 3 - 1]),
        "image/class/text": strings([b"" if i == 0 else b"class\0%d \xff" % i]),
        "point": floats([i / 4, -1e30 * i]),
        "big": integers([2**63 - 1 - i, -(2**63) + i, 0, 127, 128, -1]),
        "unused": integers([5]),
    }
    if i != 3:
        feature["image/object/bbox/xmin"] = floats([k / 8 for k in range(i % 4)])
        feature["weight"] = floats([0.5 + i])
    return T.Example(features=T.Features(feature=feature)).SerializeToString(deterministic=True)


def write(path, messages, compression=""):
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for message in messages:
            writer.write(message)


SPEC = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/png": tf.io.FixedLenFeature([], tf.string),
    "image/raw": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    "image/object/bbox/xmin": tf.io.VarLenFeature(tf.float32),
    "weight": tf.io.FixedLenFeature([], tf.float32, default_value=-1.0),
    "point": tf.io.FixedLenFeature([2], tf.float32),
    "big": tf.io.FixedLenFeature([2, 3], tf.int64),
}


def expected(messages):
    """What TensorFlow reads: ROW/FEATURE, images decoded."""
    arrays = {}
    for i, message in enumerate(messages):
        row = tf.io.parse_single_example(message, SPEC)
        row["image/encoded"] = tf.io.decode_jpeg(row["image/encoded"], channels=3, dct_method="INTEGER_ACCURATE",
                                                 fancy_upscaling=True)
        row["image/png"] = tf.io.decode_png(row["image/png"])
        row["image/raw"] = tf.reshape(tf.io.decode_raw(row["image/raw"], tf.uint8), [4, 3])
        row["image/object/bbox/xmin"] = tf.sparse.to_dense(row["image/object/bbox/xmin"])
        for name, value in row.items():
            arrays[f"{i}/{name}"] = value.numpy()
    return arrays


def check_ours(program):
    """Reads what our program writes; tfrecord_ours.lua says what that is."""
    spec = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "jpeg": tf.io.FixedLenFeature([], tf.string),
        "raw": tf.io.FixedLenFeature([], tf.string),
        "point": tf.io.FixedLenFeature([2], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "list": tf.io.VarLenFeature(tf.int64),
        "text": tf.io.FixedLenFeature([], tf.string, default_value="none"),
    }
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "tests/golden/tfrecord_ours.lua", folder], check=True)
        for compression, names in [("", ["plain"]), ("GZIP", ["gzip"]), ("ZLIB", ["zlib"]),
                                   ("", [f"shards-{k:05d}-of-00003" for k in range(3)])]:
            files = [f"{folder}/{name}" for name in names]
            rows = {}
            for message in tf.data.TFRecordDataset(files, compression_type=compression):
                row = tf.io.parse_single_example(message, spec)
                rows[int(row["label"])] = row
            assert sorted(rows) == [i - 5 for i in range(10)], sorted(rows)
            for i in range(10):
                row = rows[i - 5]
                image = np.arange(12).reshape(3, 4, 1) * (i + 1)
                assert (tf.io.decode_png(row["image"]).numpy() == image).all()
                assert tf.io.decode_jpeg(row["jpeg"]).shape == (3, 4, 3)
                assert tf.io.decode_raw(row["raw"], tf.float64).numpy().tolist() == [i / 3, -i]
                assert row["point"].numpy().tolist() == [np.float32(i / 3), -i]
                assert tf.sparse.to_dense(row["list"]).numpy().tolist() == [k - 2 for k in range(i)]
                assert row["text"].numpy() == (b"none" if i == 4 else b"row\0%d" % i)
            if len(names) == 3:
                counts = [sum(1 for _ in tf.data.TFRecordDataset(f)) for f in files]
                assert counts == [4, 3, 3], counts
    print("TensorFlow reads what our program writes")


def main():
    FOLDER.mkdir(exist_ok=True)
    messages = [example(i) for i in range(COUNT)]
    write(FOLDER / "plain.tfrecord", messages)
    write(FOLDER / "gzip.tfrecord", messages, "GZIP")
    write(FOLDER / "zlib.tfrecord", messages, "ZLIB")
    write(FOLDER / "empty.tfrecord", [])
    write(FOLDER / "shard-00000-of-00002", messages[:4])
    write(FOLDER / "shard-00001-of-00002", messages[4:])
    np.savez_compressed(FOLDER / "expected.npz", **expected(messages))
    print(f"TensorFlow {tf.__version__}, NumPy {np.__version__}")
    for program in sys.argv[1:]:
        check_ours(program)


main()
