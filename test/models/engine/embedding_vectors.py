"""Writes embedding_vectors.json: the embeddings that transformers computes for a few tokens with
the tiny models of ../../../shared/models. Needs torch and transformers:

    python3 embedding_vectors.py
"""

import json
import pathlib

import torch
from transformers import AutoModel

MODELS = pathlib.Path(__file__).parents[4] / "shared" / "models" / "tiny"
TOKENS = [5, 9, 13, 77, 3, 21, 8, 30, 41, 22, 17, 60]


def vectors(name):
    model = AutoModel.from_pretrained(MODELS / name, dtype=torch.float32).eval()
    with torch.no_grad():
        hidden = model(input_ids=torch.tensor([TOKENS])).last_hidden_state[0]
    pooled = {"last": hidden[-1], "mean": hidden.mean(0), "cls": hidden[0]}
    return {way: [round(value, 6) for value in vector.tolist()] for way, vector in pooled.items()}


names = ["qwen3", "qwen2", "mistral", "gemma3_text", "qwen3_5_text", "qwen3_moe", "starcoder2"]
result = {"tokens": TOKENS, "models": {name: vectors(name) for name in names}}
out = pathlib.Path(__file__).with_name("embedding_vectors.json")
out.write_text(json.dumps(result) + "\n")
