"""Writes packed_vectors.json: small packed matrices and the numbers that torch makes of them, by what the
writers of each format publish, or the gguf package. Run once, with both: python3 packed_vectors.py
"""

import base64
import json
import pathlib

import gguf
import numpy
import torch

random = torch.Generator().manual_seed(1)
ROWS, COLS, GROUP = 16, 64, 32
GROUPS = COLS // GROUP


def raw(tensor):
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return base64.b64encode(data).decode()


def scales(*shape):
    return torch.rand(shape, generator=random) * 0.01 + 0.001


def integers(high, *shape):
    return torch.randint(0, high, shape, generator=random, dtype=torch.int64)


def words(nibbles, order=range(8)):
    """Eight neighbours of the last dimension in a word, `order[i]` in nibble i."""
    eights = nibbles.reshape(*nibbles.shape[:-1], -1, 8)
    word = sum(eights[..., column] << (4 * i) for i, column in enumerate(order))
    return (word & 0xFFFFFFFF).to(torch.uint32).view(torch.int32)


def f8(name, scale, group_rows, group_cols):
    # Numbers of all sizes; every code but the two NaN in the first rows.
    codes = integers(127, ROWS, COLS) + 128 * integers(2, ROWS, COLS)
    codes[:4] = torch.arange(256).reshape(4, COLS) & ~1
    codes[4:8] = (torch.arange(256).reshape(4, COLS) | 1).clamp(max=253)
    codes[codes == 127] = 126
    codes = codes.to(torch.uint8)
    wide = scale.repeat_interleave(group_rows, 0).repeat_interleave(group_cols, 1)
    values = codes.view(torch.float8_e4m3fn).float() * wide[:ROWS, :COLS].float()
    return dict(name=name, packing="f8_e4m3", type="FP8", group_rows=group_rows,
                group_cols=group_cols, scale_type={torch.float32: "F32", torch.bfloat16: "BF16"}[scale.dtype],
                codes=raw(codes), scales=raw(scale), values=raw(values))


def int8():
    codes, scale = integers(256, ROWS, COLS).to(torch.uint8).view(torch.int8), scales(ROWS, 1).half()
    return dict(name="integers of 8 bits", packing="int8", type="Q8_0", group_rows=1, group_cols=COLS,
                scale_type="F16", codes=raw(codes), scales=raw(scale), values=raw(codes.float() * scale.float()))


def int4():
    codes, scale = integers(16, ROWS, COLS), scales(ROWS, GROUPS).half()
    values = (codes - 8).float() * scale.float().repeat_interleave(GROUP, 1)
    return dict(name="compressed-tensors", packing="int4", type="Q4_0", group_rows=1, group_cols=GROUP,
                scale_type="F16", codes=raw(words(codes)), scales=raw(scale), values=raw(values))


def columns(name, packing, is_ordered=True, zero=None, order=range(8)):
    codes, scale = integers(16, COLS, ROWS), scales(GROUPS, ROWS).half()
    zeros = integers(15, GROUPS, ROWS) if zero is None else torch.full((GROUPS, ROWS), zero)
    group = torch.arange(COLS) // GROUP
    if not is_ordered:
        group = group[torch.randperm(COLS, generator=random)]
    less = 1 if packing == "gptq" else 0
    values = (codes - (zeros + less)[group]).float() * scale[group].float()
    packed = words(codes.T.contiguous()).T if packing == "gptq" else words(codes, order)
    return dict(name=name, packing=packing, type="Q5_0" if zero is None else "Q4_1", group_rows=1,
                group_cols=GROUP, scale_type="F16", codes=raw(packed), scales=raw(scale),
                zeros=raw(words(zeros, order)), groups=raw(group.to(torch.int32)) if packing == "gptq" else None,
                values=raw(values.T))


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6] + [-0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def nvfp4(name, packing, scale):
    codes, block_scales = integers(16, ROWS, COLS), integers(127, ROWS, COLS // 16).to(torch.uint8)
    factors = block_scales.view(torch.float8_e4m3fn).float() * (scale if packing == "nvfp4" else 1 / scale)
    pairs = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)
    return dict(name=name, packing=packing, type="FP4", group_rows=ROWS, group_cols=COLS, scale_type="F32",
                codes=raw(pairs), scales=raw(scale), block_scales=raw(block_scales),
                values=raw(E2M1[codes] * factors.repeat_interleave(16, 1)))


def nvfp4_blocks():
    blocks = integers(256, ROWS, COLS // 64 * 36).to(torch.uint8)
    blocks[:, :4] &= 127
    blocks[0, :4] = torch.tensor([127, 126, 1, 0])
    scale = scales(2).bfloat16().float()  # exact products, as forge multiplies in another order
    plain = gguf.quants.dequantize(blocks.numpy(), gguf.GGMLQuantizationType.NVFP4).astype(numpy.float32)
    return dict(name="NVFP4 in blocks of GGUF", packing="nvfp4_blocks", type="FP4", group_rows=ROWS // 2,
                group_cols=COLS, scale_type="F32", codes=raw(blocks), scales=raw(scale),
                values=raw(torch.from_numpy(plain) * scale.repeat_interleave(ROWS // 2)[:, None]))


MATRICES = [
    f8("one scale", scales(1, 1), ROWS, COLS),
    f8("a scale a row", scales(ROWS, 1).bfloat16(), 1, COLS),
    f8("blocks", scales(2, GROUPS), 12, GROUP),
    f8("powers of two", 2.0 ** -integers(8, 2, 1).float(), 8, COLS),
    int4(),
    columns("GPTQ", "gptq"),
    columns("GPTQ without zeros", "gptq", zero=7),
    columns("GPTQ in an order of its own", "gptq", is_ordered=False),
    columns("AWQ", "awq", order=[0, 2, 4, 6, 1, 3, 5, 7]),
    int8(),
    nvfp4("NVFP4", "nvfp4", torch.tensor([0.0123])),
    nvfp4("NVFP4 divided by its scale", "nvfp4_divided", torch.tensor([64.0])),
    nvfp4_blocks(),
]

path = pathlib.Path(__file__).with_name("packed_vectors.json")
path.write_text(json.dumps({"made_with": f"torch {torch.__version__}", "rows": ROWS, "cols": COLS,
                            "matrices": MATRICES}, indent=1) + "\n")
