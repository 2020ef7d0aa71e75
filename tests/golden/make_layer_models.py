"""Small models of many layers, for tests/lua/nn/layer_models_spec.lua.

    python make_layer_models.py         writes layer_models/NAME_VERSION.{keras,h5} beside this file

To be run with keras 3.15.1 on tensorflow-cpu 2.21.0 and with tensorflow-cpu 2.15 (its keras 2.15), which skips the
models and layers that it does not have. VERSION is "3.15" or "2.15". With the name of a folder of files that
build/mgpulua has written (tests/lua/nn/layer_models_spec.lua, MGPU_KEEP) it loads these and compares instead.

expected_VERSION.safetensors has for each model NAME its inputs NAME/x/1, ..., the predictions NAME/y/1, ..., and after
three steps of SGD with learning rate 0.05 on the sum of the outputs' mean squares the weights NAME/after/1, ... .
"""

import os
import sys
import zipfile
from importlib.metadata import version

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np

import tensor_file

if version("keras") < "3":
    import tensorflow
    k = tensorflow.keras
else:
    import keras as k

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "layer_models")
L = k.layers
NEW = version("keras") >= "3"
VERSION = "3.15" if NEW else "2.15"


def attention():
    """Masks, causal masks, masks by name, scores, several axes. Each masked tensor is read once: Keras 3's attention
    takes the mask away from its value."""
    x = k.Input((4, 6), name="x")
    mask = k.Input((4, 4), dtype="bool", name="mask")
    m = L.Masking(name="masking")(x)
    a = L.MultiHeadAttention(2, 3, name="heads")(x, m, attention_mask=mask, use_causal_mask=True)
    b, scores = L.MultiHeadAttention(2, 3, value_dim=2, output_shape=(5,), use_bias=False, name="scores")(
        a, x, key=L.Masking(name="key_masking")(x), return_attention_scores=True)
    c = L.Attention(use_scale=True, name="dot")([a, x], use_causal_mask=True)
    d = L.Attention(score_mode="concat", name="concat")([L.Masking(name="query_masking")(x), x, a])
    e = L.AdditiveAttention(name="additive")([c, d, x])
    f = L.MultiHeadAttention(2, 2, attention_axes=(2,), name="axes")(*[L.Reshape((2, 2, 6), name="grid")(e)] * 2)
    g = L.EinsumDense("abcd,de->abce", (2, 2, 3), bias_axes="ce", activation="tanh", name="einsum")(f)
    flat = [L.Flatten(name="flat")(b), L.Flatten(name="flat_scores")(scores)]  # masks of Keras 2.15 end here
    return k.Model([x, mask], flat + [g], name="attention")


def query_groups():
    """What Keras 3 has besides."""
    x = k.Input((5, 4), name="x")
    a = L.GroupQueryAttention(3, 4, 2, use_gate=True, name="groups")(x, x, use_causal_mask=True)
    b = L.MultiHeadAttention(2, 3, use_gate=True, sliding_window=2, name="window")(a, x, x, use_causal_mask=True)
    words = L.ReversibleEmbedding(7, 4, logit_soft_cap=2.0, name="words")
    apart = L.ReversibleEmbedding(7, 4, tie_weights=False, name="apart")
    ids = k.Input((5,), dtype="int32", name="ids")
    c = L.Add(name="sum")([words(ids), apart(ids), b])
    return k.Model([x, ids], [words(c, reverse=True), apart(c, reverse=True)], name="query_groups")


def norms():
    """Normalization of samples, repeated vectors, the smallest of tensors; layers that only act in training."""
    x = k.Input((6,), name="x")
    a = L.GroupNormalization(3, name="groups")(x)
    b = L.UnitNormalization(name="unit")(x)
    c = L.Minimum(name="smallest")([a, b])
    d = L.Reshape((4, 3, 2), name="grid")(L.RepeatVector(4, name="repeat")(c))
    e = L.GroupNormalization(-1, axis=2, center=False, epsilon=0.01, name="instances")(d)
    f = L.UnitNormalization(axis=(1, 3), name="unit_axes")(L.Activation("tanh", name="tanh")(e))
    outputs = [f]
    if NEW:
        outputs.append(L.RMSNormalization(name="rms")(f))
        outputs.append(L.RMSNormalization(axis=(-2, -1), epsilon=0.1, name="rms_axes")(e))
    return k.Model(x, outputs, name="norms")


def wrappers():
    """Layers around layers."""
    x = k.Input((3, 4), name="x")
    a = L.TimeDistributed(L.Dense(4, activation="tanh", name="dense"), name="steps")(x)
    b = a
    if NEW:  # Keras 2 joins the steps
        b = L.TimeDistributed(L.BatchNormalization(momentum=0.5, name="norm"), name="norms")(a)
    c = L.SpectralNormalization(L.Dense(3, name="dense2"), power_iterations=2, name="spectral")(b)
    return k.Model(x, [c, L.SpectralNormalization(L.Conv1D(2, 2, name="conv"), name="spectral_conv")(c)],
                   name="wrappers")


def sequences():
    """Convolutions, padding, cropping and repeating of sequences; dropout of channels, which predict leaves out."""
    x = k.Input((7, 3), name="x")
    a = L.ZeroPadding1D((1, 2), name="pad")(L.Cropping1D((1, 0), name="crop")(x))
    b = L.Conv1DTranspose(4, 3, strides=2, padding="same", activation="tanh", name="up")(a)
    c = L.DepthwiseConv1D(3, strides=2, depth_multiplier=2, padding="same", name="depthwise")(b)
    d = L.SeparableConv1D(3, 2, depth_multiplier=2, dilation_rate=2, name="separable")(c)
    e = L.Conv1DTranspose(2, 4, strides=3, output_padding=1, use_bias=False, name="wide")(d)
    f = L.Conv1DTranspose(2, 3, name="valid")(L.UpSampling1D(2, name="repeat")(d))
    return k.Model(x, [e, L.Cropping1D(2, name="middle")(f)], name="sequences")


def volumes():
    """Convolutions, pools, padding, cropping and repeating of volumes."""
    x = k.Input((4, 5, 3, 2), name="x")
    a = L.Conv3D(4, (2, 3, 2), padding="same", activation="tanh", name="conv")(x)
    b = L.ZeroPadding3D(((1, 0), (0, 1), (1, 1)), name="pad")(a)
    c = L.Conv3D(4, (3, 2, 2), strides=(2, 1, 2), name="strides")(b)
    d = L.MaxPooling3D((2, 3, 1), strides=1, padding="same", name="max")(c)
    e = L.AveragePooling3D((1, 2, 2), strides=(1, 1, 1), padding="same", name="average")(d)
    f = L.Conv3DTranspose(3, (2, 3, 2), strides=2, padding="same", name="up")(e)
    g = L.Conv3DTranspose(2, 2, strides=(1, 2, 3), name="wide")(L.Cropping3D((0, 2, 1), name="crop")(f))
    h = L.UpSampling3D((1, 2, 1), name="repeat")(L.Conv3D(2, 2, strides=(1, 2, 1), padding="same", name="halves")(a))
    outputs = [L.GlobalAveragePooling3D(name="means")(g), L.GlobalMaxPooling3D(keepdims=True, name="largest")(h)]
    return k.Model(x, outputs, name="volumes")


def adaptive():
    """Pools whose outputs have a given size."""
    x = k.Input((5, 7, 3, 2), name="x")
    a = L.AdaptiveAveragePooling3D((2, 4, 3), name="means3")(L.Dense(2, name="dense")(x))
    c = L.Reshape((8, 3, 2), name="image")(a)
    d = L.AdaptiveMaxPooling2D((3, 2), name="max2")(L.AdaptiveAveragePooling2D((5, 3), name="means2")(c))
    e = L.Reshape((6, 2), name="steps")(d)
    f = L.AdaptiveMaxPooling1D(3, name="max1")(L.AdaptiveAveragePooling1D(4, name="means1")(e))
    return k.Model(x, [f, L.AdaptiveMaxPooling3D(2, name="max3")(a)], name="adaptive")


def renorm():
    """Batch renormalization, with and without limits."""
    x = k.Input((4,), name="x")
    limits = {"rmin": 0.5, "rmax": 1.5, "dmax": 0.3}
    a = L.BatchNormalization(renorm=True, renorm_momentum=0.8, momentum=0.7, name="free")(x)
    b = L.BatchNormalization(renorm=True, renorm_clipping=limits, scale=False, name="limited")(L.Dense(3, name="d")(a))
    return k.Model(x, L.BatchNormalization(synchronized=True, name="synchronized")(b), name="renorm")


def images():
    """Layers that prepare images. Those that draw do nothing in training either, or feed no weights."""
    x = k.Input((6, 5, 3), name="x")
    norm = L.Normalization(name="norm")
    norm.adapt(np.random.default_rng(5).uniform(size=(7, 6, 5, 3)).astype("float32"))
    a = L.Pipeline([L.Rescaling(0.5, name="half"), norm, L.Dense(3, name="colors")], name="pipeline")(x)
    b = L.Resizing(7, 4, interpolation="lanczos3", antialias=True, name="small")(a)
    c = L.RandomPerspective(factor=0, scale=0.5, fill_value=1.0, name="perspective")(b)
    d = L.RandomElasticTransform(factor=0.0, scale=(0.2, 0.4), fill_mode="mirror", name="elastic")(c)
    e = L.RandomGaussianBlur(factor=0.0, kernel_size=(5, 3), sigma=0.5, value_range=(-100, 100), name="blur")(d)
    f = L.Conv2D(2, 3, activation="tanh", name="conv")(e)
    g = L.UpSampling2D((2, 1), interpolation="lanczos5", name="large")(f)
    h = L.AugMix(num_chains=2, chain_depth=1, factor=0.1, alpha=2.0, all_ops=False, name="mix")(x)
    clahe = L.ContrastLimitedAdaptiveHistogramEqualization(value_range=(-2, 2), tile_grid_size=(2, 3), name="clahe")
    return k.Model(x, [L.MaxNumBoundingBoxes(4, fill_value=-2, name="boxes")(g), h, clahe(x)], name="images")


MODELS = {"sequences": (sequences, True), "volumes": (volumes, True), "adaptive": (adaptive, NEW),
          "norms": (norms, True), "wrappers": (wrappers, True), "attention": (attention, True),
          "query_groups": (query_groups, NEW), "renorm": (renorm, NEW), "images": (images, NEW)}


H5 = ["attention", "query_groups"]  # of these .h5 too; these files are large


def compress(path):
    """Writes the archive again, smaller."""
    with zipfile.ZipFile(path) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def randomized(model, seed):
    rng = np.random.default_rng(seed)
    for w in model.weights:
        if "float" in str(w.dtype):
            low, high = (0.2, 1.0) if any(part in w.name for part in ("variance", "gamma", "stddev")) else (-0.6, 0.6)
            w.assign(rng.uniform(low, high, w.shape).astype("float32"))
    for layer in model._flatten_layers():
        if isinstance(layer, L.Normalization):
            layer.finalize_state()  # it computes with copies of its weights


def data(model, rows=3):
    """Numbers for the inputs: floats, small whole numbers, or flags."""
    rng = np.random.default_rng(7)
    arrays = []
    for x in model.inputs:
        shape, dtype = (rows,) + tuple(x.shape[1:]), str(getattr(x.dtype, "name", x.dtype))
        if dtype == "bool":
            values = rng.uniform(size=shape) < 0.5
            values[:, :, 0] = True  # every query sees a key
        elif "int" in dtype:
            values = rng.integers(0, 4, shape).astype(dtype)
        else:
            values = rng.normal(size=shape).astype(dtype)
            if model.name == "attention":
                values[1, 3:] = 0  # masked
        arrays.append(values)
    return arrays


def as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def predictions(model, x):
    return as_list(model.predict(x if len(x) > 1 else x[0], verbose=0))


def stored(values):
    arrays = [np.asarray(v) for v in values]
    return {str(i): a.astype("int32") if a.dtype == bool else a for i, a in enumerate(arrays, 1)}


def trained(model, x):
    """The weights after three steps."""
    y = predictions(model, x)
    zeros = [np.zeros_like(v) for v in y]
    model.compile(optimizer=k.optimizers.SGD(0.05), loss=["mse"] * len(y) if len(y) > 1 else "mse",
                  run_eagerly=True)  # a layer of Keras 2.15 needs it
    for _ in range(3):
        model.train_on_batch(x if len(x) > 1 else x[0], zeros if len(y) > 1 else zeros[0])
    return [np.asarray(w) for w in model.trainable_weights + model.non_trainable_weights
            if "seed" not in w.name]


def main():
    os.makedirs(HERE, exist_ok=True)
    expected = {}
    for number, (name, (make, wanted)) in enumerate(MODELS.items()):
        if not wanted:
            continue
        k.backend.clear_session()
        model = make()
        randomized(model, number)
        x = data(model)
        path = os.path.join(HERE, f"{name}_{VERSION}")
        model.save(path + ".keras")
        compress(path + ".keras")
        if name in H5:
            model.save(path + ".h5")
        expected[name] = {"x": stored(x), "y": stored(predictions(model, x)), "after": stored(trained(model, x))}
        print(name)
    numbers = {}
    tensor_file.split(expected, numbers)
    tensor_file.write(os.path.join(HERE, f"expected_{VERSION}.safetensors"), numbers,
                      {"origin": f"Keras {version('keras')}", "writer": "tests/golden/make_layer_models.py"})


def compare(folder):
    """Loads the files that build/mgpulua wrote and compares their predictions."""
    for file in sorted(os.listdir(folder)):
        name = file.split("_" + VERSION)[0]
        if name not in MODELS or (not NEW and not file.endswith(".h5")):
            continue
        # .h5 has the form of Keras 2, where Keras 3 cannot read calls with several tensors; Keras 2.15 cannot read
        # a SpectralNormalization from .h5, 3.15 neither write nor read a Normalization in a Pipeline there
        if file.endswith(".h5") and name in (["attention", "query_groups", "images"] if NEW else ["wrappers"]):
            continue
        ours = k.models.load_model(os.path.join(folder, file), compile=False)
        theirs = k.models.load_model(os.path.join(HERE, f"{name}_{VERSION}.keras"), compile=False)
        x = data(theirs)
        worst = max(np.abs(a - b).max() for a, b in zip(predictions(ours, x), predictions(theirs, x)))
        print(file, worst)
        assert worst < 2e-5, file


if __name__ == "__main__":
    compare(sys.argv[1]) if len(sys.argv) > 1 else main()
