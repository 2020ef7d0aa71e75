"""Writes Python values as Lua source: golden files are Lua modules `return { ... }`.

Numbers keep 17 digits, so doubles come back bit for bit. Arrays are flattened row-major.
"""

import re
import textwrap

import numpy as np


def _number(value):
    value = float(value)
    if not np.isfinite(value):
        raise ValueError("a golden value is not finite")
    return "%.17g" % value


def _lines(items, indent):
    """Comma-separated items, broken at 100 columns."""
    lines, line = [], ""
    for item in items:
        if line and len(indent) + len(line) + len(item) + 2 > 100:
            lines.append(line)
            line = ""
        line += (" " if line else "") + item + ","
    return "\n".join(indent + text for text in lines + [line])


def _key(key):
    if isinstance(key, str) and re.fullmatch(r"[A-Za-z_]\w*", key):
        return key
    return "[%s]" % to_lua(key)


def _scalar(value):
    if isinstance(value, str):
        return '"%s"' % value.replace("\\", "\\\\").replace('"', '\\"')
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    return _number(value)


def to_lua(value, indent=""):
    """Lua source for a dict, list, array or scalar."""
    inner = indent + "  "
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, np.ndarray) and value.ndim:
        value = value.ravel().tolist()
    if isinstance(value, dict):
        items = [f"{_key(k)} = {to_lua(v, inner)}" for k, v in value.items()]
    elif isinstance(value, (list, tuple)):
        items = [to_lua(v, inner) for v in value]
    else:
        return _scalar(value)
    short = "{ " + ", ".join(items) + " }"
    if not items:
        return "{}"
    if "\n" not in short and len(short) + len(indent) < 80:
        return short
    if all("\n" not in item and len(item) < 30 for item in items):
        return "{\n" + _lines(items, inner) + "\n" + indent + "}"
    return "{\n" + "".join(f"{inner}{item},\n" for item in items) + indent + "}"


def write(path, comment, value):
    """A golden file: the comment (origin, format), then the table."""
    lines = []
    for paragraph in comment.split("\n\n"):
        lines += [""] + textwrap.wrap(paragraph, 97)
    head = "".join("-- " + line + "\n" if line else "--\n" for line in lines[1:])
    with open(path, "w", encoding="ascii") as file:
        file.write(head + "return " + to_lua(value) + "\n")
