"""Writes tokenizers/bert/ and tokenizers/cased/: small WordPiece tokenizers, and what they encode and decode. tokenizers
0.23.3.

    python make_word_pieces.py   # in an environment with this version
"""
import json
import os

from tokenizers import BertWordPieceTokenizer, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers")
LINES = ["the cat sat on the mat, and the dog didn't play", "we've 123 cats; they'll be playing with 45 mice",
         "l'\u00e9t\u00e9 \u00e0 Paris", "\u0434\u043e\u0431\u0440\u044b\u0439 \u0434\u0435\u043d\u044c",
         "\u4eca\u65e5\u306f\u4e16\u754c", "\ud55c\uad6d\uc5b4", "\u0130stanbul \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2"] * 4
CASES = ["", " ", "a", "The cat", "  the   CATS  ", "\n\nthe\tcat\r\n", "didn't I'll WE'VE it'S", "abc123def 4.5%",
         "L'\u00c9T\u00c9 \u00e0 Paris\u2026", "\u4eca\u65e5\u306f \u4e16\u754c\u3002 \u0434\u0435\u043d\u044c\u0401",
         "a\u00a0b\u2003c \u3000 d", "the [MASK] cat[SEP]dog [MASK]", "\U0001f600 \U0001d400 \uf900\u00bd", "e\u0301 \u0300x\u0327\u0301",
         "snake_case --> x++ ''''s", "\x00\x1c\x7f\x85 th\u200be \ufffd", "\u0130stanbul \u03a3\u0399\u03a3\u03a5\u03a6\u039f\u03a3",
         "\ud55c\uad6d\uc5b4 \u0958\u09cb\u1e9b\u0323 \ufb01\u212b", "play" * 30, "playing-plays!the", "the\x0bcat\x0cdog\x85mat"]
PAIRS = [("the cat", "and the dog"), ("", "mice"), ("the [SEP]", "")]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def normalizer(options):
    return normalizers.BertNormalizer(**options)


def recorded(tok):
    cases = []
    for text in CASES:
        ids = tok.encode(text).ids
        cases.append({"text": text, "ids": ids, "plain": tok.encode(text, add_special_tokens=False).ids,
                      "decoded": tok.decode(ids), "whole": tok.decode(ids, skip_special_tokens=False)})
    pairs = []
    for a, b in PAIRS:
        made = tok.encode(a, b)
        pairs.append({"text": a, "pair": b, "ids": made.ids, "types": made.type_ids})
    return {"cases": cases, "pairs": pairs}


def trained(options):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizer(options)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    tok.train_from_iterator(LINES, trainers.WordPieceTrainer(vocab_size=160, special_tokens=SPECIAL, show_progress=False))
    return tok


def main():
    out = {}
    bert = trained({})
    os.makedirs(os.path.join(HERE, "bert"), exist_ok=True)
    os.makedirs(os.path.join(HERE, "cased"), exist_ok=True)
    vocabulary = sorted(bert.get_vocab().items(), key=lambda item: item[1])
    for folder in "bert", "cased":
        with open(os.path.join(HERE, folder, "vocab.txt"), "w") as f:
            f.write("".join(token + "\n" for token, _ in vocabulary))
    bert.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, bert.token_to_id(token)) for token in ("[CLS]", "[SEP]")])
    bert.save(os.path.join(HERE, "bert.json"))
    out["bert.json"] = recorded(bert)
    path = os.path.join(HERE, "bert", "vocab.txt")
    out["bert"] = recorded(BertWordPieceTokenizer(path))
    cased = {"lowercase": False, "strip_accents": None, "handle_chinese_chars": False}
    with open(os.path.join(HERE, "cased", "tokenizer_config.json"), "w") as f:
        json.dump({"do_lower_case": False, "strip_accents": None, "tokenize_chinese_chars": False}, f)
    out["cased"] = recorded(BertWordPieceTokenizer(path, **cased))
    for name, options in {"accents.json": {"lowercase": True, "strip_accents": False, "clean_text": False},
                          "bare.json": {"lowercase": False, "strip_accents": True}}.items():
        tok = trained(options)
        tok.decoder = decoders.WordPiece(cleanup=False)
        tok.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        tok.save(os.path.join(HERE, name))
        out[name] = recorded(tok)
    with open(os.path.join(HERE, "word_pieces.json"), "w") as f:
        json.dump(out, f)


main()
