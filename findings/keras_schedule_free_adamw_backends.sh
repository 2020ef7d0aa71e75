#!/usr/bin/env bash
# keras.optimizers.ScheduleFreeAdamW takes other steps on the TensorFlow backend than on the JAX backend.
#
# Versions: keras 3.15.1 on tensorflow-cpu 2.21.0 and on jax 0.7.2, numpy 2.5.5; Python 3.12.
# Behaviour: the update keeps the old value of its slot "momentum" in a variable of Python before it assigns the new one.
# With TensorFlow that is the variable itself, so what is read later is the new value; with JAX it is the old one, as the
# formula of the paper has it. The first step is equal, as the weight 1 - 1/t of the average is 0 in it.
# One would guess: the same weights to rounding on both, as for every other optimizer of Keras.
# Whom it hurts: anyone who trains on one backend and continues or compares on another, or who expects the published
# method on TensorFlow.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q keras==3.15.1 tensorflow-cpu==2.21.0 jax==0.7.2 jaxlib==0.7.2 numpy==2.5.5

for backend in tensorflow jax; do
  for optimizer in ScheduleFreeAdamW AdamW; do
    KERAS_BACKEND=$backend TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" - $optimizer 2>/dev/null <<'PYTHON'
import sys

import keras
import numpy as np

v = keras.Variable(np.array([1.0, 2.0], "float32"))
optimizer = getattr(keras.optimizers, sys.argv[1])(learning_rate=0.1)
optimizer.build([v])
seen = []
for step in range(3):  # the loss (v - 0.5)^2
    optimizer.apply([keras.ops.convert_to_tensor(2 * (np.array(v) - 0.5))], [v])
    seen.append("%.4f %.4f" % tuple(np.array(v)))
print(sys.argv[1], keras.backend.backend(), "after 1, 2, 3 steps:", ", ".join(seen))
PYTHON
  done
done | tee "$folder/seen"

sed -n '/^# Output seen/,$ s/^#   //p' "$0" | diff - "$folder/seen"

# Output seen
#   ScheduleFreeAdamW tensorflow after 1, 2, 3 steps: 0.9000 1.9000, 0.8558 1.8518, 0.8131 1.8039
#   AdamW tensorflow after 1, 2, 3 steps: 0.8996 1.8992, 0.8004 1.7987, 0.7038 1.6986
#   ScheduleFreeAdamW jax after 1, 2, 3 steps: 0.9000 1.9000, 0.8514 1.8469, 0.8048 1.7944
#   AdamW jax after 1, 2, 3 steps: 0.8996 1.8992, 0.8004 1.7987, 0.7038 1.6986
