"""Writes op_nodes/: models of Keras and tf.keras whose nodes are operations, and what they predict.

    python tests/golden/make_op_nodes.py         in an environment with Keras 3 (3.0.5, 3.4.1 and 3.15.1 are here) or
                                                 tf.keras (2.3.4, 2.4.4, 2.15.1; TensorFlowOpLayer in 2.3, TFOpLambda after)

few_3.4.1.keras, few_3.0.5.h5 and few_tf2.4.4.h5 are left out of the repository, since their forms are those of others.

Each model has the inputs x {4, 6}, b {4, 6}, a {6} and ids {4} (integers), and an output for each entry of a list.
The small model "few" is few_VERSION.h5, of Keras 3 also few_VERSION.keras; the configurations of the others are
NAME.json in models_VERSION.zip. expected_3.safetensors and expected_tf.safetensors, which the newest version writes, have
the inputs x/1, ... of all models, the outputs NAME/y/1, ... (older versions have the first of them) and the weights
NAME/w/1, ... tests/lua/nn/op_nodes_spec.lua loads them.
"""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import json
import struct
import zipfile

import numpy as np

try:
    from keras import ops  # noqa: F401 (Keras 3 has it)
    import keras
    VERSION = keras.__version__
except ImportError:
    import tensorflow as tf
    from tensorflow import keras
    VERSION = "tf" + tf.__version__

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "op_nodes")


def array(*shape):
    """Small numbers that are not all alike."""
    return (np.arange(np.prod(shape), dtype="float32").reshape(shape) % 7 - 3) / 4


def keras3_models(x, b, a, ids):
    """Models by name for Keras 3; newer operations only where it has them."""
    from keras import layers as L, ops
    from keras.src.applications.convnext import LayerScale
    from keras.src.applications.inception_resnet_v2 import CustomScaleLayer
    grid = ops.reshape(x, (-1, 2, 2, 6))
    models = {
        "few": [1 - x, ops.mean(x[:, 1:3], axis=1), L.Dense(2, name="dense")(ops.relu(a)) ** 2, *ops.split(b, 2, axis=1)],
        "arithmetic": [(1 - x) * b / 2.0 + x**2, x + a[:, None, :], abs(-x), x // 2 + x % 2, 2.0**x,
                       ops.maximum(x, 0.0) - ops.minimum(b, x), x > b, ops.where(x > 0, x, 0.5), ops.not_equal(ids, 2),
                       ops.logical_and(x > 0, b < 1), ops.clip(x, -1, 1), ops.exp(x) + ops.log(ops.square(x) + 1),
                       ops.sqrt(abs(x)), ops.arctan2(x, b), ops.cast(ids, "float32") * 0.5, x + array(6),
                       ops.subtract(array(6), x), x * ops.convert_to_tensor([2.0]), ops.matmul(x, array(6, 3))],
        "reductions": [ops.mean(x, axis=1, keepdims=True), ops.mean(x) * b, ops.sum(x, axis=(1, 2)),
                       ops.max(x, axis=-1), ops.min(x, axis=0, keepdims=True) + b, ops.prod(x, axis=1),
                       ops.var(x, axis=-1), ops.std(x, axis=1), ops.argmax(x, axis=-1), ops.argmin(x, axis=1),
                       ops.any(x > 2, axis=1), ops.cumsum(x, axis=1), ops.logsumexp(x, axis=(2,)), ops.sort(x, axis=1),
                       ops.median(x, axis=1), ops.count_nonzero(ids, axis=(1,))],
        "movement": [x[:, 1:3, ::2], x[:, -1], x[:, None, :, 0], x[:, ::-1], x[:, -1:0:-2, 1:-1], x[:, 3:1],
                     ops.concatenate([x, b], axis=1), ops.stack([x, b], axis=-1), ops.reshape(x, (-1, 3, 8)),
                     ops.transpose(x, (0, 2, 1)), ops.expand_dims(x, 2), ops.squeeze(ops.expand_dims(x, 1), axis=1),
                     *ops.split(x, 2, axis=1), *ops.split(x, [1, 3], axis=2), *ops.unstack(x, axis=1),
                     ops.tile(x, (1, 2, 1)), ops.repeat(x, 3, axis=-1), ops.pad(x, ((0, 0), (1, 2), (0, 3))),
                     ops.pad(x, ((0, 0), (1, 2), (0, 0)), mode="reflect"), ops.flip(x, axis=1),
                     ops.roll(x, 2, axis=1), ops.swapaxes(x, 1, 2), ops.moveaxis(x, 1, -1), ops.take(x, ids, axis=1),
                     ops.take(x, np.array([0, 2]), axis=1), ops.zeros_like(x) + ops.ones_like(b),
                     ops.broadcast_to(a[:, None], (3, 4, 6)), ops.triu(x), ops.diagonal(x, axis1=1, axis2=2)],
        "neural": [ops.relu(x), ops.softmax(x), ops.softmax(x, axis=1), ops.log_softmax(x), ops.sigmoid(x), ops.tanh(x),
                   ops.gelu(x), ops.gelu(x, approximate=False), ops.leaky_relu(x, 0.3), ops.elu(x), ops.silu(x),
                   ops.softplus(x), ops.hard_sigmoid(x), ops.relu6(x), ops.one_hot(ids, 5),
                   ops.einsum("bij,bkj->bik", x, b), ops.einsum("bij,bkj,bj->bik", x, b, a),
                   ops.tensordot(x, array(6, 2), axes=1), ops.dot(x, array(6, 2)), *ops.top_k(x, 2),
                   *ops.moments(x, axes=[1]), ops.conv(grid, array(2, 2, 6, 3), padding="same"),
                   ops.conv(x, array(2, 6, 3), strides=2), ops.max_pool(x, 2), ops.average_pool(grid, 2),
                   ops.image.resize(grid, (3, 5)),
                   L.Dense(3, name="last")(ops.mean(x, axis=1)) * ops.sum(a, axis=-1, keepdims=True)],
    }
    wide = L.Dense(6, name="wide")(x)
    # MobileNetV3's hard swish, ConvNeXt's and InceptionResNetV2's residual blocks
    models["scaled"] = [L.Multiply()([x, L.ReLU(6.0)(x + 3.0) * (1.0 / 6.0)]), x + LayerScale(0.1, 6)(wide),
                        CustomScaleLayer(0.17)([b, wide])]
    if hasattr(ops, "rms_normalization"):
        models["neural"] += [ops.normalize(x), ops.normalize(x, axis=1, order=1), ops.rms_normalization(x),
                             ops.layer_normalization(x, gamma=array(6), beta=array(6)), x[..., 0:1], ops.stop_gradient(x),
                             ops.where(x > 1, float("-inf"), x), ops.slice_update(x, (0, 1, 2), array(1, 2, 2))]
    if VERSION == "3.15.1":
        holes, p = ops.where(x > 1, float("nan"), x), ops.softmax(x)
        models["newer"] = [ops.fmax(holes, b), ops.fmin(b, holes), ops.ldexp(x, ops.cast(ids, "int32")[:, :, None]),
                           ops.signbit(x), ops.nanvar(holes, axis=1), ops.nanstd(holes, axis=(1, 2), keepdims=True),
                           ops.nancumsum(holes, axis=1), ops.nancumprod(holes, axis=2), ops.trapezoid(x, dx=0.5, axis=1),
                           ops.dstack([x, b]), ops.binary_crossentropy(ops.cast(ids, "float32"), ops.sigmoid(x[:, :, 0])),
                           ops.binary_crossentropy(p, x, from_logits=True), ops.categorical_crossentropy(p, p * 2.0),
                           ops.categorical_crossentropy(p, x, from_logits=True, axis=1),
                           ops.sparse_categorical_crossentropy(ids, p),
                           ops.sparse_categorical_crossentropy(ids, x, from_logits=True)]
    return models


def tf_models(x, b, a, ids):
    """Models by name for tf.keras."""
    K = keras.backend
    grid = tf.reshape(x, (-1, 2, 2, 6))
    models = {
        "few": [1 - x, K.mean(x[:, 1:3], axis=1), keras.layers.Dense(2, name="dense")(tf.nn.relu(a)) ** 2,
                *tf.split(b, 2, axis=1)],
        "arithmetic": [(1 - x) * b / 2.0 + x**2, tf.subtract(b, y=x) - 3.0, abs(-x), x // 2 + x % 2, 2.0**x,
                       tf.maximum(x, 0.0) + tf.minimum(b, x), tf.where(x > 0, x, 0.5), tf.clip_by_value(x, -1, 1),
                       tf.where(tf.logical_and(x > 0, b < 1), x, b), x + array(6), tf.subtract(array(6), x),
                       tf.add_n([x, b, x]), tf.cast(ids, "float32"), tf.cast(tf.equal(ids, 2), tf.float32),
                       tf.matmul(x, array(6, 3)), tf.matmul(x, b, transpose_b=True)],
        "movement": [x[:, 1:3, ::2], x[:, -1], x[..., 0:1], x[:, None, :, 0], x[:, ::-1], tf.concat([x, b], axis=1),
                     tf.stack([x, b], axis=-1), *tf.split(x, 2, axis=1), *tf.split(x, [1, 3], axis=1),
                     *tf.unstack(x, axis=1), tf.gather(x, np.array([0, 2]), axis=1), tf.tile(a[:, None], [1, 4, 1]),
                     tf.pad(x, [[0, 0], [1, 2], [0, 0]], constant_values=2.0), tf.reshape(x, (-1, 3, 8)),
                     tf.reshape(x, (tf.shape(x)[0], 24)), tf.transpose(x, (0, 2, 1)),
                     tf.squeeze(tf.expand_dims(x, 1), axis=[1]), tf.zeros_like(x) + x, tf.reverse(x, [1]),
                     tf.roll(x, 1, 1)],
        "neural": [tf.nn.relu(x), tf.nn.leaky_relu(x), tf.nn.softmax(x), tf.sigmoid(x), tf.nn.elu(x),
                   tf.reduce_mean(x, axis=1, keepdims=True), tf.reduce_max(x, axis=-1), tf.reduce_sum(x) * b,
                   K.permute_dimensions(K.square(x), (0, 2, 1)), K.dot(x, K.constant(array(6, 2))),
                   tf.math.l2_normalize(x, axis=-1), tf.argmax(x, axis=-1), *tf.math.top_k(x, 2), tf.one_hot(ids, 7),
                   tf.cumsum(x, axis=1), tf.image.resize(grid, (4, 4)), tf.nn.depth_to_space(grid[..., :4], 2),
                   tf.nn.conv1d(x, array(2, 6, 3), 1, "SAME"),
                   keras.layers.Dense(3, name="last")(K.mean(x, axis=1)) * tf.identity(3.0 * K.max(a, -1, True))],
    }
    more = [tf.atan2(x, b), tf.nn.bias_add(x, array(6)), tf.math.rint(x), tf.slice(x, [0, 1, 2], [-1, 2, -1]),
            tf.reshape(x, [tf.shape(x)[0], -1]), tf.reshape(x, tf.stack([tf.shape(x)[0], 2, -1])),
            tf.nn.conv2d(grid, array(2, 2, 6, 3), 1, "SAME"), tf.nn.swish(x)]
    if not tf.__version__.startswith("2.3"):  # there, most of these are several ops
        more += [K.batch_flatten(x), tf.norm(x, axis=-1), tf.argsort(x, axis=1), tf.linalg.matrix_transpose(x),
                 tf.linalg.trace(grid), tf.image.flip_left_right(grid), tf.image.flip_up_down(grid),
                 tf.image.transpose(grid), K.conv2d(grid, K.constant(array(2, 2, 6, 3)), padding="same"),
                 K.pool2d(grid, (2, 2)), K.pool2d(grid, (2, 1), pool_mode="avg"), K.cast_to_floatx(ids)]
    models["more"] = more
    return models


def write_safetensors(path, arrays):
    """The arrays as a .safetensors file."""
    names = {"float32": "F32", "int32": "I32", "bool": "BOOL"}
    header, data = {}, b""
    for name, value in sorted(arrays.items()):
        value = np.asarray(value)
        if value.dtype == np.int64:
            value = value.astype("int32")
        header[name] = {"dtype": names[str(value.dtype)], "shape": list(value.shape),
                        "data_offsets": [len(data), len(data) + value.nbytes]}
        data += np.ascontiguousarray(value).tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    rng = np.random.RandomState(3)
    data = [rng.normal(0, 1, (3, 4, 6)).astype("float32"), rng.normal(0, 1, (3, 4, 6)).astype("float32"),
            rng.normal(0, 1, (3, 6)).astype("float32"), rng.randint(0, 4, (3, 4)).astype("int32")]
    symbols = [keras.Input((4, 6), name="x"), keras.Input((4, 6), name="b"), keras.Input((6,), name="a"),
               keras.Input((4,), dtype="int32", name="ids")]
    numbers = {f"x/{i}": value for i, value in enumerate(data, 1)}
    is_tf = VERSION.startswith("tf")
    archive = zipfile.ZipFile(os.path.join(FOLDER, f"models_{VERSION}.zip"), "w")
    for name, outputs in (tf_models if is_tf else keras3_models)(*symbols).items():
        model = keras.Model(symbols, outputs, name=name)
        model.set_weights([array(*w.shape) for w in model.get_weights()])
        for i, y in enumerate(model(data), 1):
            numbers[f"{name}/y/{i}"] = y.numpy()
        for i, w in enumerate(model.get_weights(), 1):
            numbers[f"{name}/w/{i}"] = w
        if name != "few":
            archive.writestr(zipfile.ZipInfo(name + ".json"), model.to_json(), zipfile.ZIP_DEFLATED)
            continue
        model.save(os.path.join(FOLDER, f"few_{VERSION}.h5"))
        if not is_tf:
            model.save(os.path.join(FOLDER, f"few_{VERSION}.keras"))
    archive.close()
    if VERSION in ("3.15.1", "tf2.15.1"):
        write_safetensors(os.path.join(FOLDER, f"expected_{'tf' if is_tf else 3}.safetensors"), numbers)


if __name__ == "__main__":
    main()
