"""Writes Python values as Lua source: the cases of a golden set, as the module `return { ... }`.

Floats are written with the fewest digits that give back the same double. Every case begins a line,
and long cases are wrapped, so that a changed case is a changed line.
"""

import re
import textwrap

WIDTH = 118
FIXED_SPACE = "\0"  # a space at which a line must not be broken


def _key(key):
    return key if re.fullmatch(r"[A-Za-z_]\w*", key) else f'["{key}"]'


def _scalar(value):
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"%s"' % text.replace(" ", FIXED_SPACE)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


def _flat(value, outermost=True):
    """A value as one line. Fixed spaces keep `key = value` and short tables together."""
    if isinstance(value, dict):
        items = [_key(k) + " = ".replace(" ", FIXED_SPACE) + _flat(v, False) for k, v in value.items()]
    elif isinstance(value, (list, tuple)):
        items = [_flat(v, False) for v in value]
    else:
        return _scalar(value)
    if not items:
        return "{}"
    space = " " if outermost or sum(map(len, items)) > 80 else FIXED_SPACE
    return "{" + FIXED_SPACE + ("," + space).join(items) + FIXED_SPACE + "}"


def _wrapped(text, indent):
    """The text as lines of at most WIDTH columns, the second and later ones indented further."""
    lines = textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ",
                          break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(FIXED_SPACE, " ") + "\n"


def _field(key, value):
    """A field of the module; a list of cases takes at least one line for each."""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        rows = "".join(_wrapped(_flat(item) + ",", "    ") for item in value)
        return f"  {_key(key)} = {{\n{rows}  }},\n"
    return _wrapped(f"{_key(key)} = ".replace(" ", FIXED_SPACE) + _flat(value) + ",", "  ")


def write(path, comment, fields):
    """Writes a Lua module that returns the fields, below a comment of one or more paragraphs."""
    lines = []
    for paragraph in comment.split("\n\n"):
        lines += [""] + textwrap.wrap(paragraph, 97, break_on_hyphens=False)
    head = "".join("-- " + line + "\n" if line else "--\n" for line in lines[1:])
    body = "".join(_field(key, value) for key, value in fields.items())
    with open(path, "w", encoding="ascii") as file:
        file.write(head + "return {\n" + body + "}\n")
