"""Writes categories/*.keras: models of layers whose vocabularies are assets of the file. keras 3.15.1, tensorflow-cpu
2.21.0.

    python make_vocabularies.py   # in an environment with these versions
"""
import os

import keras
import numpy as np

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "categories")
L = keras.layers

text = L.TextVectorization(output_mode="tf_idf", name="text")
text.adapt(["a b a", "b c", "d\u00e9,d"])
keras.Sequential([text]).save(os.path.join(HERE, "text.keras"))
numbers = L.IntegerLookup(name="numbers")
numbers.adapt(np.array([[5, 7], [7, -9]]))
keras.Sequential([numbers]).save(os.path.join(HERE, "numbers.keras"))
padded = L.TextVectorization(output_mode="tf_idf", max_tokens=9, pad_to_max_tokens=True, name="padded")
padded.adapt(["a b a", "b c"])
keras.Sequential([padded]).save(os.path.join(HERE, "padded.keras"))
keras.Sequential([keras.Input((1,), dtype="string"), L.TextVectorization(vocabulary=["a"])]).save(
    os.path.join(HERE, "texts.keras"))
keras.Sequential([keras.Input((1,), dtype="int64"), L.IntegerLookup(vocabulary=[3])]).save(
    os.path.join(HERE, "whole.keras"))
print(text.get_vocabulary(), text(["a b b z"]).numpy().tolist(), numbers.get_vocabulary(),
      padded(["a b b z"]).numpy().tolist())
