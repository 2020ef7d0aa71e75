#!/usr/bin/env bash
# keras.ops.rot90 with k = 2 on the TensorFlow backend does not turn an array by half a turn.
#
# Versions: keras 3.15.1 on tensorflow-cpu 2.21.0, numpy 2.4.6; Python 3.11 or newer.
# Behaviour: for k = 0, 1 and 3 the result equals numpy.rot90. For k = 2 the shape is right, but the elements are those of
# the transposed array, turned and read in another order: [[0, 1, 2], [3, 4, 5]] becomes [[1, 3, 5], [0, 2, 4]].
# One would guess: [[5, 4, 3], [2, 1, 0]], as NumPy's function of that name, which Keras's documentation names, gives.
# Whom it hurts: models that turn images by half a turn (augmentation, test-time averaging over turned images) train and
# predict on scrambled pixels without an error, and give other results on another backend or after an export.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q keras==3.15.1 tensorflow-cpu==2.21.0 numpy==2.4.6

KERAS_BACKEND=tensorflow TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" - 2>/dev/null <<'PYTHON' | tee "$folder/seen"
import keras
import numpy as np

x = np.arange(6).reshape(2, 3)
print("keras", keras.__version__, "backend", keras.backend.backend())
for k in range(4):
    turned = np.array(keras.ops.rot90(x, k=k))
    print(k, turned.tolist(), "as NumPy" if np.array_equal(turned, np.rot90(x, k=k)) else "NumPy: %s" % np.rot90(x, k=k).tolist())
PYTHON

sed -n '/^# Output seen/,$ s/^#   //p' "$0" | diff - "$folder/seen"

# Output seen
#   keras 3.15.1 backend tensorflow
#   0 [[0, 1, 2], [3, 4, 5]] as NumPy
#   1 [[2, 5], [1, 4], [0, 3]] as NumPy
#   2 [[1, 3, 5], [0, 2, 4]] NumPy: [[5, 4, 3], [2, 1, 0]]
#   3 [[3, 0], [4, 1], [5, 2]] as NumPy
