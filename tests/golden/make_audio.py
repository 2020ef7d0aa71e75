"""Writes audio/expected.safetensors: what keras.ops and the audio layers of Keras 3.15.1 make of signals.

    python tests/golden/make_audio.py     in an environment with keras 3.15.1, tensorflow-cpu 2.21 and scipy

signal {2, 300} is the input; channels {2, 120, 2} that of STFTSpectrogram. tests/lua/nn/audio_spec.lua lists the same
options by the same names. odd_NAME and even_NAME are scipy's windows: 7 numbers, and 12 of a periodic one.
"""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
from keras import layers, ops
from safetensors.numpy import save_file
from scipy.signal import get_window

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "audio")

MEL = {
    "mel_plain": {"fft_length": 64, "sequence_stride": 32, "num_mel_bins": 8, "sampling_rate": 8000},
    "mel_options": {"fft_length": 32, "sequence_stride": 20, "sequence_length": 24, "window": "hamming",
                    "sampling_rate": 4000, "num_mel_bins": 5, "min_freq": 100.0, "max_freq": 1500.0,
                    "power_to_db": False, "mag_exp": 1.0},
    "mel_decibels": {"fft_length": 32, "sequence_stride": 16, "num_mel_bins": 4, "top_db": 20.0, "min_power": 1e-3,
                     "ref_power": 2.0, "window": None},
}
STFT = {"stft_" + mode: {"mode": mode, "frame_length": 16} for mode in
        ("log", "magnitude", "psd", "real", "imag", "angle", "stft")}
STFT.update({
    "stft_options": {"mode": "magnitude", "frame_length": 12, "frame_step": 5, "fft_length": 20, "window": "hamming",
                     "periodic": True, "scaling": "spectrum", "padding": "same"},
    "stft_image": {"mode": "psd", "frame_length": 16, "expand_dims": True, "scaling": None},
    "stft_plain": {"mode": "real", "frame_length": 16, "window": None},
})


WINDOWS = ["bartlett", "barthann", "blackman", "blackmanharris", "bohman", "boxcar", "cosine", "exponential", "flattop",
           "hamming", "hann", "lanczos", "nuttall", "parzen", "triang", "tukey"]


def main():
    t = np.arange(300)
    signal = np.stack([np.sin(t * 0.3) + 0.5 * np.sin(t * 1.1), np.cos(t * t * 0.004)]).astype("float32")
    channels = np.ascontiguousarray(signal[:, :240].reshape(2, 120, 2))
    out = {"signal": signal, "channels": channels}
    for name, length in (("rfft", None), ("rfft_padded", 320), ("rfft_cut", 99)):
        out[name] = np.stack(ops.rfft(signal, length), axis=-2)
    for name, options in (("stft", {}), ("stft_uncentered", {"center": False, "window": "hamming"}),
                          ("stft_rectangle", {"window": None})):
        real, imaginary = ops.stft(signal, 24, 10, 32, **options)
        out["ops_" + name] = np.stack([real, imaginary], axis=-2)
        out["ops_i" + name] = np.array(ops.istft((real, imaginary), 24, 10, 32, **options))
    out["ops_istft_length"] = np.array(ops.istft(ops.stft(signal, 24, 10, 32), 24, 10, 32, length=250))
    for name, options in MEL.items():
        out[name] = np.array(layers.MelSpectrogram(**options)(signal))
    for name, options in STFT.items():
        out[name] = np.array(layers.STFTSpectrogram(**options)(channels))
    for name in WINDOWS:
        out["odd_" + name] = get_window(name, 7, False)
        out["even_" + name] = get_window(name, 12, True)
    out = {name: np.ascontiguousarray(values, dtype="float32") for name, values in out.items()}
    os.makedirs(FOLDER, exist_ok=True)
    save_file(out, os.path.join(FOLDER, "expected.safetensors"), metadata={"keras": keras.__version__})
    for suffix, layer, options, values in (
            ("mel", layers.MelSpectrogram, MEL["mel_options"], signal),
            ("stft", layers.STFTSpectrogram, STFT["stft_options"], channels)):
        inputs = keras.Input(values.shape[1:])
        keras.Model(inputs, layer(**options)(inputs)).save(os.path.join(FOLDER, suffix + ".keras"))


main()
