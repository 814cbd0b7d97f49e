"""Writes a training checkpoint as a Hugging Face folder: configurations and F16 weights.

python export.py --checkpoint build/demo-model/checkpoint.pt --out models/demo
"""

import argparse
import json
import struct
from pathlib import Path

import torch
from tokenizers import Tokenizer

from train_tokenizer import BOS, EOS, TURN_END


def write_safetensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Writes an 8-byte header length, a JSON header padded to 8 bytes, then the F16 tensors in order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * 2
        header[name] = {
            "dtype": "F16",
            "shape": list(tensor.shape),
            "data_offsets": [at, at + size],
        }
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.to(torch.float16).contiguous().numpy().tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, default=Path("build/demo-model/checkpoint.pt"))
    parser.add_argument(
        "--out", type=Path, default=Path("models/demo"), help="must hold tokenizer.json"
    )
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--top-p", type=float, default=0.9)
    parser.add_argument("--top-k", type=int, default=40)
    options = parser.parse_args()

    saved = torch.load(options.checkpoint)
    tokenizer = Tokenizer.from_file(str(options.out / "tokenizer.json"))
    bos, eos, turn_end = (tokenizer.token_to_id(token) for token in (BOS, EOS, TURN_END))
    ends = [turn_end, eos]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **saved["config"],
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "initializer_range": 0.02,
        "torch_dtype": "float16",
        "use_cache": True,
        "bos_token_id": bos,
        "eos_token_id": ends,
    }
    generation = {
        "bos_token_id": bos,
        "eos_token_id": ends,
        "do_sample": True,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "top_k": options.top_k,
    }
    for name, content in (("config.json", config), ("generation_config.json", generation)):
        (options.out / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    weights = {f"model.{name}": tensor for name, tensor in saved["model"].items()}
    write_safetensors(options.out / "model.safetensors", weights)


if __name__ == "__main__":
    main()
