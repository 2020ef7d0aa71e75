"""Writes the models of tests/golden/onnx_models/: small random models of other programs as .onnx files, and in NAME.npz
their inputs (x0, x1, ...) and what these programs compute for them (y0, y1, ...). onnx_reading_spec.lua reads them.

    python -m venv ~/torch && ~/torch/bin/pip install torch==2.15.0 onnx==1.23.2 onnxscript==0.7.2 \\
        scikit-learn==1.9.1 skl2onnx==1.20.0
    ~/torch/bin/python tests/golden/make_onnx_models.py torch sklearn
    python3.11 -m venv ~/tf && ~/tf/bin/pip install tensorflow-cpu==2.15.1 tf2onnx==1.17.0 'onnx<1.17'
    ~/tf/bin/python tests/golden/make_onnx_models.py tensorflow

NAME_old.onnx and NAME_new.onnx are one model of PyTorch by the exporter that traces TorchScript and by the one of
torch.export, or one of TensorFlow in opsets 13 and 18. The files of torch.export are shortened (see shorten), and its
"mlp" has its weights in another file.
"""
import os
import sys
import warnings

import numpy as np

warnings.filterwarnings("ignore")
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx_models")


def path(name):
    return os.path.join(FOLDER, name)


def save_data(name, xs, ys):
    data = {f"x{i}": np.asarray(x) for i, x in enumerate(xs)}
    data.update({f"y{i}": np.asarray(y) for i, y in enumerate(ys)})
    np.savez(path(name + ".npz"), **data)


# ---- PyTorch ------------------------------------------------------------------------------------


def torch_models():
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, channels, filters, stride):
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(channels, filters, 3, stride, 1, bias=False), nn.BatchNorm2d(filters))
            self.second = nn.Sequential(nn.Conv2d(filters, filters, 3, 1, 1, bias=False), nn.BatchNorm2d(filters))
            self.short = nn.Conv2d(channels, filters, 1, stride) if stride != 1 else nn.Identity()

        def forward(self, x):
            return torch.relu(self.second(torch.relu(self.first(x))) + self.short(x))

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 4, 5, 2, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
            self.blocks = nn.Sequential(Block(4, 4, 1), Block(4, 6, 2))
            self.out = nn.Linear(6, 5)

        def forward(self, x):
            y = nn.functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1)
            return self.out(torch.flatten(y, 1))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.places = nn.Embedding(20, 8), nn.Parameter(torch.randn(1, 12, 8))
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
            self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

        def forward(self, x):
            return self.layers(self.embedding(x) + self.places[:, : x.shape[1]]).mean(1)

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True)
            self.gru, self.rnn = nn.GRU(10, 3, batch_first=True), nn.RNN(3, 4, batch_first=True)

        def forward(self, x):
            y, state = self.gru(self.lstm(x)[0])
            return self.rnn(y)[0], state.transpose(0, 1)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(8, 24)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(x).reshape(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y.transpose(1, 2).reshape(b, t, c)

    class Movement(nn.Module):
        def forward(self, x):
            a = torch.cat([x[:, ::2], x[:, 1::2]], 1)
            b, c = a.chunk(2, -1)
            d = torch.where(b > c, b * 2, c - 1)
            e = torch.einsum("bij,bkj->bik", d, d).cumsum(1).clamp(-3, 3)
            return e, torch.topk(d, 2, -1)[0], d.argmax(-1), nn.functional.pad(d, (1, 2), value=0.5)

    images = nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1), nn.Hardswish(), nn.Conv2d(4, 4, 3, 1, 1, groups=4), nn.ReLU6(), nn.Conv2d(4, 6, 1),
        nn.PReLU(6), nn.Upsample(scale_factor=2, mode="bilinear"), nn.ConvTranspose2d(6, 6, 3, 2, 1, 1),
        nn.GroupNorm(3, 6), nn.SiLU(), nn.InstanceNorm2d(6, affine=True), nn.AvgPool2d(2), nn.GELU())
    sequences = nn.Sequential(
        nn.Conv1d(4, 6, 3, padding=2, dilation=2), nn.BatchNorm1d(6), nn.LeakyReLU(), nn.MaxPool1d(2),
        nn.Conv1d(6, 3, 3))
    mlp = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3), nn.ELU(), nn.Softmax(1))
    torch.manual_seed(0)
    return {
        "resnet": (ResNet(), torch.randn(2, 3, 17, 21), {0: "b", 2: "h", 3: "w"}),
        "images": (images, torch.randn(2, 3, 8, 8), {0: "b"}),
        "sequences": (sequences, torch.randn(2, 4, 12), {0: "b"}),
        "encoder": (Encoder(), torch.randint(0, 20, (2, 7)), {0: "b", 1: "t"}),
        "recurrent": (Recurrent(), torch.randn(2, 5, 4), {0: "b", 1: "t"}),
        "attention": (Attention(), torch.randn(2, 5, 8), {0: "b", 1: "t"}),
        "movement": (Movement(), torch.randn(2, 4, 8), {0: "b"}),
        "mlp": (mlp, torch.randn(3, 6), {0: "b"}),
    }


def shorten(name, external):
    """Takes the notes off a file, which say which lines of Python made a node; or moves its weights to another one."""
    import onnx

    model = onnx.load(path(name))
    del model.graph.value_info[:]
    for message in [model, model.graph, *model.graph.node, *model.graph.input, *model.graph.output,
                    *model.graph.initializer]:
        del message.metadata_props[:]
        message.doc_string = ""
    onnx.save(model, path(name), save_as_external_data=external is not None, location=external, size_threshold=0)


def export_torch():
    import torch

    torch.set_num_threads(1)
    for name, (model, x, axes) in torch_models().items():
        model.eval()
        for part in model.modules():
            if isinstance(part, (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)):
                part.running_mean.normal_()
                part.running_var.uniform_(0.5, 2)
        with torch.no_grad():
            y = model(x)
        save_data(name, [x], [y] if torch.is_tensor(y) else y)
        torch.onnx.export(model, (x,), path(name + "_old.onnx"), input_names=["x"], dynamic_axes={"x": axes},
                          dynamo=False, opset_version=17)
        dims = {axis: torch.export.Dim(label) for axis, label in axes.items()}
        torch.onnx.export(model, (x,), path(name + "_new.onnx"), input_names=["x"], dynamic_shapes=(dims,),
                          dynamo=True, external_data=False, verbose=False)
        shorten(name + "_new.onnx", external="mlp.weights" if name == "mlp" else None)


# ---- scikit-learn -------------------------------------------------------------------------------


def export_sklearn():
    from skl2onnx import to_onnx
    from sklearn.datasets import load_iris
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
    from sklearn.tree import DecisionTreeRegressor

    x, classes = load_iris(return_X_y=True)
    x, two, y = x.astype(np.float32), (classes == 1).astype(int), x[:, :1] - x[:, 2:3]
    models = {
        "forest": RandomForestClassifier(4, max_depth=4, random_state=0).fit(x, classes),
        "boosted_two": GradientBoostingClassifier(n_estimators=5, random_state=0).fit(x, two),
        "tree": DecisionTreeRegressor(max_depth=4, random_state=0).fit(x, np.concatenate([y, 2 * y], 1)),
        "linear": LinearRegression().fit(x, y[:, 0]),
        "ridge": Ridge().fit(x, np.concatenate([y, 2 * y], 1)),
        "logistic": LogisticRegression().fit(x, classes),
        "logistic_two": LogisticRegression().fit(x, two),
        "scaled": make_pipeline(StandardScaler(), LogisticRegression()).fit(x, classes),
        "normalized": make_pipeline(MinMaxScaler(), Normalizer(), MLPClassifier((5,), max_iter=50, random_state=0))
        .fit(x, classes),
        "mlp_two": MLPClassifier((5,), max_iter=50, random_state=0).fit(x, two),
        "mlp_regressor": MLPRegressor(hidden_layer_sizes=(5,), max_iter=50, random_state=0).fit(x, y[:, 0]),
    }
    for name, model in models.items():
        is_classifier = hasattr(model, "classes_")
        options = {"options": {"zipmap": False}} if is_classifier and name != "logistic" else {}
        with open(path("sklearn_" + name + ".onnx"), "wb") as file:
            file.write(to_onnx(model, x[:1], **options).SerializeToString())
        rows = x[::10]
        ys = [model.predict(rows)]
        if is_classifier:
            ys.append(model.predict_proba(rows).astype(np.float32))
        elif ys[0].ndim == 1:
            ys[0] = ys[0][:, None]
        save_data("sklearn_" + name, [rows], [y.astype(np.float32) if y.dtype == np.float64 else y for y in ys])


# ---- TensorFlow ---------------------------------------------------------------------------------


def keras_models(keras):
    layers = keras.layers
    a, b = keras.Input((4,)), keras.Input((4,))
    two = keras.Model([a, b], [layers.Dense(3)(a * b), layers.Concatenate()([a, b])])
    x = keras.Input((5, 8))
    h = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    attention = keras.Model(x, layers.GlobalAveragePooling1D()(h + layers.Dense(8, activation="gelu")(h)))
    return {
        "convolutions": keras.Sequential([
            layers.Input((12, 12, 3)), layers.Conv2D(4, 3, 2, padding="same"), layers.BatchNormalization(),
            layers.ReLU(6.0), layers.DepthwiseConv2D(3, padding="same"), layers.SeparableConv2D(5, 3),
            layers.UpSampling2D(2, interpolation="bilinear"), layers.Conv2DTranspose(4, 3, 2, padding="same"),
            layers.AveragePooling2D(2), layers.MaxPooling2D(2), layers.Flatten(), layers.Dense(3)]),
        "recurrent": keras.Sequential([
            layers.Input((6, 4)), layers.Bidirectional(layers.LSTM(3, return_sequences=True)), layers.GRU(4),
            layers.Dense(2)]),
        "causal": keras.Sequential([
            layers.Input((10, 3)), layers.Conv1D(4, 3, padding="causal", activation="elu"), layers.MaxPooling1D(),
            layers.LayerNormalization(), layers.GlobalMaxPooling1D()]),
        "attention": attention,
        "two": two,
    }


def export_tensorflow():
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    import tensorflow as tf
    import tf2onnx

    tf.keras.utils.set_random_seed(0)
    for name, model in keras_models(tf.keras).items():
        xs = [np.random.randn(3, *x.shape[1:]).astype(np.float32) for x in model.inputs]
        ys = model(xs if len(xs) > 1 else xs[0], training=False)
        save_data("keras_" + name, xs, ys if isinstance(ys, list) else [ys])
        for opset, label in ((13, "old"), (18, "new")):
            tf2onnx.convert.from_keras(model, opset=opset, output_path=path(f"keras_{name}_{label}.onnx"))


if __name__ == "__main__":
    os.makedirs(FOLDER, exist_ok=True)
    programs = {"torch": export_torch, "sklearn": export_sklearn, "tensorflow": export_tensorflow}
    for program in sys.argv[1:] or sys.exit(__doc__):
        programs[program]()
