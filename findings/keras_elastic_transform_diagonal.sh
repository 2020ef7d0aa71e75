#!/usr/bin/env bash
# Keras: elastic_transform and RandomElasticTransform shift each pixel across and down by the same distance.
#
# Versions: keras 3.15.1 on tensorflow-cpu 2.21.0 and on jax 0.7.2, numpy 2.5.5; Python 3.12.
# Behaviour: the noise for the shifts across and the noise for the shifts down are drawn from the same seed without a
# new draw of it in between, so both are the same numbers: images are distorted along one diagonal only.
# One would guess: two fields of noise, as in the paper that the method is from (Simard et al. 2003).
# Whom it hurts: everyone who augments with it: images never bend across one diagonal, and the variety is half of that
# promised.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q keras==3.15.1 tensorflow-cpu==2.21.0 jax==0.7.2 jaxlib==0.7.2 numpy==2.5.5

for backend in tensorflow jax; do
  KERAS_BACKEND=$backend TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" - 2>/dev/null <<'PYTHON'
import keras
import numpy as np

# each pixel of the image is its own place, so a pixel of the result minus its place is its shift
across, down = np.meshgrid(np.arange(32.0), np.arange(32.0))
places = np.stack([across, down], -1).astype("float32")[None]
moved = keras.ops.image.elastic_transform(places, alpha=3, sigma=2.0, seed=1, fill_mode="nearest",
                                          data_format="channels_last")
shifts = (np.asarray(moved) - places)[0, 8:24, 8:24]
print(keras.backend.backend(), "shifts are not 0: %s; across and down differ by %.3f at most" % (
    np.abs(shifts).max() > 0.1, np.abs(shifts[..., 0] - shifts[..., 1]).max()))
PYTHON
done | tee "$folder/seen"

sed -n '/^# Output seen/,$ s/^#   //p' "$0" | diff - "$folder/seen"

# Output seen
#   tensorflow shifts are not 0: True; across and down differ by 0.000 at most
#   jax shifts are not 0: True; across and down differ by 0.000 at most
