"""Writes tests/golden/csv/: CSV files, and in expected.npz what pandas and Python's csv module read from them.
tests/lua/data/csv_golden_spec.lua compares.

    ~/golden/bin/pip install pandas && ~/golden/bin/python tests/golden/make_csv.py
"""

import csv
import pathlib
import sys

import numpy as np
import pandas as pd

FOLDER = pathlib.Path(__file__).parent / "csv"
SPECIES = ["virginica", "setosa", "Versicolor", "été"]


def flowers(expected):
    """Measurements and the name of a class, as pandas writes them."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.normal(3, 1, (40, 3)).round(2), columns=["length", "width", "height"])
    table["petals"] = rng.integers(3, 9, 40)
    table["species"] = rng.choice(SPECIES, 40)
    path = FOLDER / "flowers.csv"
    table.to_csv(path, index=False)
    table = pd.read_csv(path)
    expected["flowers_x"] = table.drop(columns="species").to_numpy("float32")
    expected["flowers_y"] = np.unique(table["species"].to_numpy("str"), return_inverse=True)[1].astype("int32")


def quotes(expected):
    """Texts with everything that must be quoted; the cells as bytes, each ended by a zero byte."""
    cells = ['plain', 'comma, space', 'say "hi"', '""', 'two\nlines', 'CR\r\nLF', ' spaces ', '', '#', "a;b\tc", 'ü€😀']
    rows = [[cells[(i * k + k) % len(cells)] for k in (1, 2, 5)] for i in range(22)]
    path = FOLDER / "quotes.csv"
    with open(path, "w", newline="", encoding="utf-8-sig") as f:
        csv.writer(f).writerows([["a", "b,b", 'c"c']] + rows)
    with open(path, newline="", encoding="utf-8-sig") as f:
        read = list(csv.reader(f))
    assert read[1:] == rows
    text = "".join(cell + "\0" for row in rows for cell in row)
    expected["quotes"] = np.frombuffer(text.encode(), "uint8")


def numbers(expected):
    """Doubles in several spellings, which Python reads as the nearest ones."""
    rng = np.random.default_rng(2)
    values = rng.normal(size=120) * 10.0 ** rng.integers(-30, 30, 120)
    forms = ["%r", "%.3g", "%.25e", "%+.1f", "%.17g", " %G "]
    texts = [forms[i % len(forms)] % float(v) for i, v in enumerate(values)]
    (FOLDER / "numbers.csv").write_text("".join(f"{i},{t}\n" for i, t in enumerate(texts)))
    expected["numbers_float64"] = np.array([float(t) for t in texts])
    expected["numbers_float32"] = np.array([float(t) for t in texts]).astype("float32")


def european(expected):
    """Semicolons, comments, lines to skip, spaces and missing values."""
    path = FOLDER / "european.csv"
    path.write_text("Report 2026\n\nage; 'town'; income\n# people\n31; 'Aix; Sud'; 1200.5\n;Bonn;?\n\n 7 ; 'x''y' ;12\n")
    table = pd.read_csv(path, sep=";", quotechar="'", skiprows=2, comment="#", skipinitialspace=True, na_values="?")
    table = table.fillna({"age": -1, "income": 0.5})
    expected["european_age"] = table["age"].to_numpy("int32")
    expected["european_income"] = table["income"].to_numpy("float32")
    towns = "".join(t.strip() + "\0" for t in table["town"])
    expected["european_town"] = np.frombuffer(towns.encode(), "uint8")


def main():
    FOLDER.mkdir(exist_ok=True)
    expected = {}
    for make in (flowers, quotes, numbers, european):
        make(expected)
    np.savez(FOLDER / "expected.npz", **expected)
    print(f"pandas {pd.__version__}, NumPy {np.__version__}, Python {sys.version.split()[0]}")


main()
