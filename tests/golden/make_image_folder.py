"""Writes tests/golden/images/folder.npz: what Keras's image_dataset_from_directory reads from a folder of the PNG files
beside it. tests/lua/data/image_folder_spec.lua makes the same folder and compares.

    ~/golden/bin/pip install pillow && ~/golden/bin/python tests/golden/make_image_folder.py
"""

import os
import pathlib
import shutil
import tempfile

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras  # noqa: E402
import numpy as np  # noqa: E402

FOLDER = pathlib.Path(__file__).parent / "images"
FILES = {"b/z.png": "rgb", "b/a/2.png": "gray", "b/a.b/1.png": "palette", "B/1.png": "interlaced",
         "c/10.PNG": "rgba", "c/9.png": "gray"}


def read(folder, **options):
    images, labels = next(iter(keras.utils.image_dataset_from_directory(
        folder, shuffle=False, batch_size=len(FILES), verbose=False, **options)))
    return images.numpy(), labels.numpy()


def main():
    expected = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, image in FILES.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(FOLDER / f"{image}.png", path)
        expected["smaller"], expected["int"] = read(folder, image_size=(5, 8))
        expected["larger"], expected["categorical"] = read(
            folder, image_size=(12, 20), color_mode="grayscale", label_mode="categorical")
        for fit in ("crop", "pad"):
            for name, size in (("wide", (6, 15)), ("tall", (9, 4)), ("square", (8, 8))):
                expected[f"{fit}/{name}"], _ = read(folder, image_size=size, **{f"{fit}_to_aspect_ratio": True})
        expected["nearest"], _ = read(folder, image_size=(6, 9), interpolation="nearest")
    np.savez_compressed(FOLDER / "folder.npz", **expected)
    print(f"Keras {keras.__version__}", {k: (v.shape, v.dtype) for k, v in expected.items()})


main()
