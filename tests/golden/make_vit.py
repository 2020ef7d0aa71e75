"""Writes vit/: the weights of a small random vision transformer of Hugging Face, and what it computes from them.

Versions: transformers 5.24.0, torch 2.15.0, safetensors.

    python tests/golden/make_vit.py     # in the root of the repository

model.safetensors has the names of google/vit-base-patch16-224 (newer versions of transformers may use other names
inside); expected.safetensors holds `images` {2, 32, 40, 3}, and what ViTForImageClassification gives for them (of the
same float32 weights, computed in float64): the `logits`, and `tokens`, its last hidden state behind the last
normalization.
"""

import os
import tempfile

import torch
from safetensors.torch import save_file
from transformers import ViTConfig, ViTForImageClassification

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vit")


def main():
    torch.manual_seed(7)
    config = ViTConfig(image_size=(32, 40), patch_size=8, hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
                       intermediate_size=24, num_labels=5, initializer_range=0.4)
    model = ViTForImageClassification(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():  # biases begin as 0, scales as 1
            if name.endswith("bias") or "layernorm" in name:
                weight.add_(0.3 * torch.randn_like(weight))
    os.makedirs(FOLDER, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        model.save_pretrained(folder)
        os.replace(os.path.join(folder, "model.safetensors"), os.path.join(FOLDER, "model.safetensors"))
    images = torch.randn(2, 3, 32, 40)
    model.double()
    with torch.no_grad():
        logits = model(images.double()).logits
        tokens = model.vit(images.double()).last_hidden_state
    save_file({"images": images.permute(0, 2, 3, 1).contiguous(), "logits": logits.float(), "tokens": tokens.float()},
              os.path.join(FOLDER, "expected.safetensors"))
    print(logits.abs().max(), tokens.abs().max(), sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    main()
