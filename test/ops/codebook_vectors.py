"""Writes codebook_vectors.json: blocks of the codebook formats with the weights that ggml's own Python
package reads from them. Run once, with numpy and gguf 0.17 or later: python3 codebook_vectors.py

The blocks of a type are few, but between them name every entry of the codebook; every other field is
random, the scales are 1. The weights are checked as a whole by their SHA-256, and the first eight by value.
"""

import base64
import hashlib
import json
import pathlib

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

ONE = np.array([0x00, 0x3C], dtype=np.uint8)  # 1 as an f16
random = np.random.default_rng(1)


def put(array: np.ndarray, at: int, shift: int, width: int, bits: int) -> None:
    """Replaces `width` bits of an element from bit `shift` on."""
    array[at] = int(array[at]) & ~(((1 << width) - 1) << shift) | int(bits) << shift


def blocks_of(name: str, entries: int, weights_per_entry: int) -> np.ndarray:
    """Blocks of 256 weights whose indices count through the codebook."""
    size = GGML_QUANT_SIZES[GGMLQuantizationType[name]][1]
    per_block = 256 // weights_per_entry
    blocks = random.integers(0, 256, (entries // per_block, size), dtype=np.uint8)
    for b, block in enumerate(blocks):
        index = b * per_block + np.arange(per_block)
        low, high = index & 0xFF, index >> 8
        if name == "IQ1_M":
            block[0:32] = low
            for k in range(32):
                put(block, 32 + k // 2, 4 * (k % 2), 3, high[k])
            for word, nibble in enumerate([0x0, 0x0, 0xC, 0x3]):  # 1 as an f16, a nibble a word
                put(block, 49 + 2 * word, 4, 4, nibble)
            continue
        block[0:2] = ONE
        if name == "IQ1_S":
            block[2:34] = low
            for k in range(32):
                put(block[34:50].view("<u2"), k // 4, 3 * (k % 4), 3, high[k])
        elif name == "IQ2_XXS":
            for k in range(32):
                block[2 + 8 * (k // 4) + k % 4] = low[k]
        elif name == "IQ2_XS":
            for k in range(32):
                put(block[2:66].view("<u2"), k, 0, 9, index[k])
        elif name == "IQ2_S":
            block[2:34] = low
            for k in range(32):
                put(block, 66 + k // 4, 2 * (k % 4), 2, high[k])
        elif name == "IQ3_XXS":
            block[2:66] = low
        elif name == "IQ3_S":
            block[2:66] = low
            for g in range(64):
                put(block, 66 + g // 8, g % 8, 1, high[g])
    return blocks


vectors = {}
for name, entries, weights_per_entry in [
    ("IQ1_S", 2048, 8),
    ("IQ1_M", 2048, 8),
    ("IQ2_XXS", 256, 8),
    ("IQ2_XS", 512, 8),
    ("IQ2_S", 1024, 8),
    ("IQ3_XXS", 256, 4),
    ("IQ3_S", 512, 4),
]:
    blocks = blocks_of(name, entries, weights_per_entry)
    weights = dequantize(blocks, GGMLQuantizationType[name]).astype("<f4")
    vectors[name] = {
        "blocks": base64.b64encode(blocks.tobytes()).decode(),
        "first": weights.ravel()[:8].tolist(),
        "sha256": hashlib.sha256(weights.tobytes()).hexdigest(),
    }

path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(vectors, indent=1) + "\n")
