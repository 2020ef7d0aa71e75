"""Writes gpt2/: the weights of a small random GPT-2 of Hugging Face, and what it computes from them.

Versions: transformers 5.24.0, torch 2.15.0, safetensors.

    python tests/golden/make_gpt2.py     # in the root of the repository

model.safetensors is the file that save_pretrained writes; expected.safetensors holds `ids` {2, 9}, the `logits` that
GPT2LMHeadModel gives for them (of the same float32 weights, computed in float64), and `greedy`, the ids that it
generates from the first row.
"""

import os
import tempfile

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpt2")


def main():
    torch.manual_seed(7)
    config = GPT2Config(vocab_size=31, n_positions=24, n_embd=12, n_layer=2, n_head=3, initializer_range=0.4,
                        bos_token_id=0, eos_token_id=None)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():  # biases begin as 0, scales as 1
            if name.endswith("bias") or ".ln_" in name:
                weight.add_(0.3 * torch.randn_like(weight))
    os.makedirs(FOLDER, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        model.save_pretrained(folder)
        os.replace(os.path.join(folder, "model.safetensors"), os.path.join(FOLDER, "model.safetensors"))
    ids = torch.randint(0, 31, (2, 9))
    model.double()
    with torch.no_grad():
        logits = model(ids).logits
        greedy = model.generate(ids[:1], attention_mask=torch.ones_like(ids[:1]), max_new_tokens=12, do_sample=False)
    save_file({"ids": ids.int(), "logits": logits.float(), "greedy": greedy[0].int()},
              os.path.join(FOLDER, "expected.safetensors"))
    print(logits.abs().max(), greedy)


if __name__ == "__main__":
    main()
