"""Writes lua/mgpu/text/bert_tables.lua: what BertNormalizer and BertPreTokenizer of the package tokenizers do with each
character. tokenizers 0.23.3.

    python make_bert_tables.py   # in an environment with this version
"""
import os
import textwrap

from tokenizers import __version__, normalizers, pre_tokenizers

TARGET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lua", "mgpu", "text", "bert_tables.lua")
HEADER = '''--- What BERT's tokenizer does with the characters of Unicode: which are removed, punctuation, or Chinese; what remains
--- without accents; small letters. Written by tests/golden/make_bert_tables.py from tokenizers %s.
--
-- Numbers are hexadecimal. Ranges are those of characters.lua. In a map (bare, small) each run is the distance of its
-- first character from the last one of the run before, the step to the next one, how many follow, and the distance
-- (signed) to the character that takes its place. ..._parts: the characters with several in their place, as "a=b,c".
-- Syllables of Hangul, which become their letters by a formula, are left out.
local M = {}
'''
WIDTH = 118


def normalizer(**on):
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**off, **on}).normalize_str


def changed(fn):
    codes = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    return {c: t for c in codes if (t := fn(chr(c))) != chr(c)}


def in_ranges(codes):
    out, last = [], 0
    for c in sorted(codes):
        if out and c == last + 1:
            out[-1][1] += 1
        else:
            out.append([c - last, 0])
        last = c
    return " ".join("%x %x" % tuple(r) for r in out)


def in_runs(mapping):
    """Runs of characters at distance 1 or 2 whose targets are equally far away."""
    codes, out, last, i = sorted(mapping), [], 0, 0
    while i < len(codes):
        best = 1, 1
        for step in 1, 2:
            n = 1
            while i + n < len(codes) and codes[i + n] == codes[i] + step * n \
                    and mapping[codes[i + n]] - codes[i + n] == mapping[codes[i]] - codes[i]:
                n += 1
            best = max(best, (n, step))
        n, step = best
        out.append("%x %x %x %x" % (codes[i] - last, step, n - 1, mapping[codes[i]] - codes[i]))
        last = codes[i + n - 1]
        i += n
    return " ".join(out)


def in_parts(mapping):
    return " ".join("%x=%s" % (c, ",".join("%x" % ord(p) for p in t)) for c, t in sorted(mapping.items()))


def field(name, text):
    return "\nM.%s = [[\n%s]]\n" % (name, textwrap.fill(text, WIDTH))


def main():
    pieces = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    bare = {c: t for c, t in changed(normalizer(strip_accents=True)).items() if not 0xAC00 <= c <= 0xD7A3}
    small = changed(normalizer(lowercase=True))
    text = HEADER % __version__
    text += field("removed", in_ranges(c for c, t in changed(normalizer(clean_text=True)).items() if t == ""))
    text += field("chinese", in_ranges(changed(normalizer(handle_chinese_chars=True))))
    text += field("punctuation", in_ranges(c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF
                                           and len(pieces("a%sb" % chr(c))) == 3))
    text += field("marks", in_ranges(c for c, t in bare.items() if t == ""))
    text += field("bare", in_runs({c: ord(t) for c, t in bare.items() if len(t) == 1}))
    text += field("bare_parts", in_parts({c: t for c, t in bare.items() if len(t) > 1}))
    text += field("small", in_runs({c: ord(t) for c, t in small.items() if len(t) == 1}))
    text += field("small_parts", in_parts({c: t for c, t in small.items() if len(t) > 1}))
    with open(TARGET, "w") as f:
        f.write(text + "\nreturn M\n")


main()
