"""tf.data's side of tests/bench/data.lua: batches of a pipeline, on request.

    python tests/bench/peer_tf_data.py --work augment|records --setting map|batch --folder FOLDER

--setting map changes each image and then makes batches; batch first makes batches and then changes
their images together, which is faster for small ones; decoding is by image in both. All maps have
AUTOTUNE. See peer_protocol.py for the requests; the time is the mean of N batches.
"""

import argparse
import os
import sys
import time

sys.dont_write_bytecode = True
os.environ.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="2")

import peer_protocol  # noqa: E402
import tensorflow as tf  # noqa: E402

IMAGES, SIDE, SHIFT, CROP = 20000, 32, 3, 224
BATCH = {"augment": 128, "records": 32}
AUTO = tf.data.AUTOTUNE
AHEAD = 4  # batches


def _shifted(images, shape):
    """Images moved by up to SHIFT pixels in both directions, their borders repeated."""
    pad = [[SHIFT, SHIFT], [SHIFT, SHIFT], [0, 0]]
    if len(shape) == 4:
        pad = [[0, 0]] + pad
    wide = tf.pad(images, pad, mode="SYMMETRIC")
    if len(shape) == 3:
        return tf.image.random_crop(wide, shape)
    n = tf.shape(images)[0]
    start = tf.random.uniform((2, n), 0, 2 * SHIFT + 1, tf.int32)
    steps = tf.range(SIDE)
    rows = tf.gather(wide, start[0][:, None] + steps, axis=1, batch_dims=1)
    return tf.gather(rows, start[1][:, None] + steps, axis=2, batch_dims=1)


def _augment(setting):
    x = tf.random.uniform((IMAGES, SIDE, SIDE, 3), 0, 256, tf.int32)
    y = tf.random.uniform((IMAGES,), 0, 10, tf.int32)
    rows = tf.data.Dataset.from_tensor_slices((tf.cast(x, tf.uint8), y)).shuffle(IMAGES).repeat()
    if setting == "batch":
        return rows.batch(BATCH["augment"]).map(
            lambda x, y: (_shifted(tf.image.random_flip_left_right(x), (0, SIDE, SIDE, 3)), y),
            num_parallel_calls=AUTO)
    return rows.map(
        lambda x, y: (_shifted(tf.image.random_flip_left_right(x), (SIDE, SIDE, 3)), y),
        num_parallel_calls=AUTO).batch(BATCH["augment"])


def _parse(record):
    row = tf.io.parse_single_example(record, {"image": tf.io.FixedLenFeature([], tf.string),
                                              "label": tf.io.FixedLenFeature([], tf.int64)})
    shape = tf.io.extract_jpeg_shape(row["image"])
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        shape, tf.zeros((1, 0, 4)), area_range=(0.1, 1), aspect_ratio_range=(0.8, 1.25),
        use_image_if_no_bounding_boxes=True)
    window = tf.concat([begin[:2], size[:2]], 0)
    image = tf.image.decode_and_crop_jpeg(row["image"], window, channels=3)
    return tf.cast(tf.image.resize(image, (CROP, CROP)), tf.uint8), row["label"]


def _records(folder):
    rows = tf.data.TFRecordDataset(os.path.join(folder, "images.tfrecord")).cache()
    return rows.shuffle(600).repeat().map(_parse, num_parallel_calls=AUTO).batch(BATCH["records"])


def main():
    """Reads the options and serves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", choices=("augment", "records"), required=True)
    parser.add_argument("--setting", choices=("map", "batch"), required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if options.work == "records" and options.setting == "batch":
        sys.exit("decoding has one setting")
    rows = _augment(options.setting) if options.work == "augment" else _records(options.folder)
    settings = tf.data.Options()
    settings.threading.private_threadpool_size = options.threads
    # As many as the others: what is made while they have their turn would be timed as if it cost nothing.
    batches = iter(rows.prefetch(AHEAD).with_options(settings))
    peer_protocol.serve_batches(lambda: next(batches))


if __name__ == "__main__":
    main()
