"""Writes tokenizers/: a small byte-level BPE tokenizer, in both forms of files, and what it encodes. tokenizers 0.23.3.

    python make_tokenizers.py   # in an environment with this version
"""
import json
import os

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers")
LINES = ["the cat sat on the mat, and the dog didn't", "We've 123 cats; they'll eat 45 mice", "l'\u00e9t\u00e9 \u00e0 Paris",
         "\u0434\u043e\u0431\u0440\u044b\u0439 \u0434\u0435\u043d\u044c", "\u4eca\u65e5\u306f\u4e16\u754c"] * 4
CASES = ["", " ", "a", "the cat", "  the   cat  ", "\n\nthe\tcat\r\n", "didn't I'll WE'VE it'S", "abc123def 4.5%",
         "l'\u00e9t\u00e9 \u00e0 Paris\u2026", "\u4eca\u65e5\u306f \u4e16\u754c\u3002 \u0434\u0435\u043d\u044c", "x\u00b2 \u00bd \u0663 \u2167",
         "a\u00a0b\u2003c \u3000 d", "the<|endoftext|>cat<|endoftext|>", "\U0001f600 \U0001d400 \U00010330", "e\u0301 \u0300",
         "snake_case --> x++ ''''s", "\x00\x1c\x7f\x85 \u200b"]


def main():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=330, special_tokens=["<|endoftext|>"],
                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    os.makedirs(os.path.join(HERE, "gpt2"), exist_ok=True)
    tok.save(os.path.join(HERE, "byte_level.json"))
    tok.model.save(os.path.join(HERE, "gpt2"))
    with open(os.path.join(HERE, "cases.json"), "w") as f:
        json.dump([{"text": t, "ids": tok.encode(t).ids} for t in CASES], f)


main()
