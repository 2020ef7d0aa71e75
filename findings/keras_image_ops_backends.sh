#!/usr/bin/env bash
# Keras on the TensorFlow backend: gaussian_blur with two kernel sizes scrambles its kernel, and map_coordinates with
# fill_mode "reflect" reads other pixels left of an image than right of it.
#
# Versions: keras 3.15.1 on tensorflow-cpu 2.21.0 and on jax 0.7.2, numpy 2.5.5; Python 3.12.
# Behaviour: keras.ops.image.gaussian_blur(x, (5, 3), ...) makes a kernel of 3 rows and 5 columns and reshapes it to 5
# rows and 3 columns without transposing it, so a spot is smeared askew; two equal sizes are right. map_coordinates
# with "reflect", d c b a | a b c d | d c b a by the documentation, takes b for the first place left of the image, as
# "mirror" does, and d for the first one right of it. Both are right with JAX, whose map_coordinates is SciPy's.
# One would guess: the same numbers on all backends.
# Whom it hurts: RandomGaussianBlur(kernel_size=(5, 3)) moves images to the side, and elastic_transform and
# RandomElasticTransform, whose default is "reflect", repeat the wrong pixels at the left and upper edges.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q keras==3.15.1 tensorflow-cpu==2.21.0 jax==0.7.2 jaxlib==0.7.2 numpy==2.5.5

for backend in tensorflow jax; do
  KERAS_BACKEND=$backend TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" - 2>/dev/null <<'PYTHON'
import keras
import numpy as np

name, ops = keras.backend.backend(), keras.ops.image
spot = np.zeros((1, 7, 7, 1), "float32")
spot[0, 3, 3, 0] = 1
for size in (5, 5), (5, 3):
    blurred = np.asarray(ops.gaussian_blur(spot, size, (1.0, 1.0), data_format="channels_last"))[0, :, :, 0]
    print(name, "blur", size, "first row of the spot:", *np.round(blurred[blurred.any(1)][0], 3))

row = np.arange(4, dtype="float32")
places = np.array([[-2, -1, 0, 1, 2, 3, 4, 5]], "float32")
read = ops.map_coordinates(row, places, order=1, fill_mode="reflect")
print(name, "pixels 0 1 2 3 at -2 to 5:", *np.asarray(read).astype(int))
PYTHON
done | tee "$folder/seen"

sed -n '/^# Output seen/,$ s/^#   //p' "$0" | diff - "$folder/seen"

# Output seen
#   tensorflow blur (5, 5) first row of the spot: 0.0 0.003 0.013 0.022 0.013 0.003 0.0
#   tensorflow blur (5, 3) first row of the spot: 0.0 0.0 0.015 0.067 0.11 0.0 0.0
#   tensorflow pixels 0 1 2 3 at -2 to 5: 2 1 0 1 2 3 3 2
#   jax blur (5, 5) first row of the spot: 0.0 0.003 0.013 0.022 0.013 0.003 0.0
#   jax blur (5, 3) first row of the spot: 0.0 0.015 0.067 0.11 0.067 0.015 0.0
#   jax pixels 0 1 2 3 at -2 to 5: 1 0 0 1 2 3 3 2
