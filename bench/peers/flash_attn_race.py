"""Checks libflash_attn on a GPU, then times it against PyTorch's FlashAttention-2 and cuDNN.

Reads {"library", "fields", "version"} from stdin as JSON and prints one JSON object a line. Run by
bench/flash_attn.ts.
"""

import json
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from flash_attn_checks import cumulative, run_checks
from flash_attn_library import (CAUSAL, EARLY_KEYS, FORCE_SM80, MASK_F32, Q8_0, FlashAttention,
                                Q8Pages)
from torch_timing import say, seconds

TOKENS = 16384
REPEATS = 9
# As in bench/gpu_model/flash_model.ts.
VARLEN = (1024, 128, 4096, 512, 8192, 256, 2048, 128)
PAGED = (4096,) * 4
PAGE = 16


def time_or_none(calls):
    """Time of a call; None if a peer does not support the shape."""
    try:
        return seconds(calls, REPEATS)
    except RuntimeError as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        torch.cuda.synchronize()
        return None


def limits():
    """Rates of a plain copy and of a large product."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy = seconds([lambda: target.copy_(source)] * 4, REPEATS)
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = seconds([lambda: a @ b] * 4, REPEATS)
    say(kind="limits", device=torch.cuda.get_device_name(), copy_gb_s=2 * 2**30 / copy / 1e9,
        matmul_tflop_s=2 * 8192**3 / product / 1e12)


def torch_calls(sets, backend, causal, gqa):
    def call(q, k, v):
        def run():
            with sdpa_kernel(backend):
                scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=gqa)

        return run

    return [call(*(x.transpose(1, 2) for x in tensors[:3])) for tensors in sets]


def race_forward(flash, dtype, dim, length, causal):
    batch, heads = max(1, TOKENS // length), 2048 // dim
    e4m3 = dtype == torch.float8_e4m3fn
    types = (dtype,) * 3 + (torch.bfloat16 if e4m3 else dtype,)
    sets = [[torch.randn(batch, length, heads, dim, device="cuda").to(one) for one in types]
            for _ in range(3)]
    flags = CAUSAL if causal else 0
    flops = 4 * batch * heads * length * length * dim / (2 if causal else 1)

    def ours(extra):
        return [flash.prepare("fwd", *tensors, flags=flags | extra) for tensors in sets]

    def peer(backend):
        return None if e4m3 else time_or_none(torch_calls(sets, backend, causal, False))

    times = {
        "ours": time_or_none(ours(0)),
        "ours_sm80": None if e4m3 else time_or_none(ours(FORCE_SM80)),
        "fa2": peer(SDPBackend.FLASH_ATTENTION),
        "cudnn": peer(SDPBackend.CUDNN_ATTENTION),
    }
    say_forward(dtype, dim, length, causal, "", flops, times)


def say_forward(dtype, dim, length, causal, layout, flops, times):
    say(kind="forward", dtype=str(dtype)[6:], head_dim=dim, length=length, causal=causal,
        layout=layout, flops=flops,
        tflop_s={name: t and flops / t / 1e12 for name, t in times.items()})


def race_packed(flash, dtype, dim, lengths, layout):
    """Causal prefill of packed sequences, whose keys are packed too, or in pages."""
    heads, total, longest = 2048 // dim, sum(lengths), max(lengths)
    starts = cumulative(lengths)
    keys = dict(cu_seqlens_k=starts, total_k=total)
    if layout == "pages":
        wide = longest // PAGE
        table = torch.randperm(len(lengths) * wide, device="cuda").to(torch.int32)
        keys = dict(block_table=table, block_table_stride=wide, page_size=PAGE,
                    seqlens_k=torch.tensor(lengths, dtype=torch.int32, device="cuda"))

    def tensors():
        q, k, v = (torch.randn(total, heads, dim, device="cuda").to(dtype) for _ in range(3))
        if layout == "pages":
            k, v = (x.view(-1, PAGE, heads, dim) for x in (k, v))
        return q, k, v, torch.empty_like(q)

    sets = [tensors() for _ in range(3)]
    flops = 2 * heads * dim * sum(length**2 for length in lengths)

    def ours(extra):
        return [flash.prepare("varlen_fwd", *some, batch=len(lengths), seqlen_q=longest,
                              seqlen_k=longest, total_q=total, cu_seqlens_q=starts,
                              flags=CAUSAL | extra, **keys) for some in sets]

    times = {"ours": time_or_none(ours(0)), "ours_sm80": time_or_none(ours(FORCE_SM80)),
             "fa2": None, "cudnn": None}
    say_forward(dtype, dim, longest, True, layout, flops, times)


def race_masked(flash, dim, length):
    """Prefill with a mask of F32 that heads share; of BF16 for the peers, which take no other."""
    batch, heads, dtype = max(1, TOKENS // length), 2048 // dim, torch.bfloat16
    sets = [[torch.randn(batch, length, heads, dim, device="cuda").to(dtype) for _ in range(4)]
            for _ in range(3)]
    mask = torch.randn(length, length, device="cuda")
    mask.masked_fill_(torch.rand_like(mask) < 0.5, float("-inf"))
    rounded = mask.to(dtype)
    flops = 4 * batch * heads * length * length * dim
    ours = [flash.prepare("fwd", *some, mask=mask, mask_type=MASK_F32, mask_row_stride=length,
                          mask_key_stride=1) for some in sets]

    def peer(backend):
        def call(q, k, v):
            def run():
                with sdpa_kernel(backend):
                    scaled_dot_product_attention(q, k, v, attn_mask=rounded)

            return run

        return time_or_none([call(*(x.transpose(1, 2) for x in some[:3])) for some in sets])

    times = {"ours": time_or_none(ours), "ours_sm80": None,
             "fa2": peer(SDPBackend.EFFICIENT_ATTENTION), "cudnn": peer(SDPBackend.CUDNN_ATTENTION)}
    say_forward(dtype, dim, length, False, "mask", flops, times)


def race_decode(flash, length, batch, kv_heads, page=PAGE, dim=128):
    heads = 8 * kv_heads
    bytes_each = batch * length * kv_heads * dim * 2 * 2
    free = torch.cuda.mem_get_info()[0]
    if 3 * bytes_each > free:
        return
    # Different data for every call, so that L2 holds none of it.
    n_sets = max(1, min(8, (1 << 28) // bytes_each, int(free // (3 * bytes_each))))
    dtype = torch.bfloat16
    wide = (length + page - 1) // page
    lengths = torch.full((batch,), length, dtype=torch.int32, device="cuda")
    calls, contiguous = [], []
    for _ in range(n_sets):
        q = torch.randn(batch, 1, heads, dim, device="cuda").to(dtype)
        k, v = (torch.randn(batch * wide, page, kv_heads, dim, device="cuda", dtype=dtype)
                for _ in range(2))
        table = torch.randperm(batch * wide, device="cuda").to(torch.int32).view(batch, wide)
        calls.append(flash.prepare("decode", q, k, v, torch.empty_like(q), batch=batch, seqlen_q=1,
                                   seqlen_k=length, seqlens_k=lengths, block_table=table,
                                   block_table_stride=wide, page_size=page,
                                   flags=CAUSAL | EARLY_KEYS))
        shape = (batch, wide * page, kv_heads, dim)
        contiguous.append([q, k.view(shape)[:, :length], v.view(shape)[:, :length]])
    times = {
        "ours": time_or_none(calls),
        "fa2": time_or_none(torch_calls(contiguous, SDPBackend.FLASH_ATTENTION, False, True)),
        "cudnn": time_or_none(torch_calls(contiguous, SDPBackend.CUDNN_ATTENTION, False, True)),
    }
    say(kind="decode", type="BF16", length=length, batch=batch, kv_heads=kv_heads,
        gb_s={name: t and bytes_each / t / 1e9 for name, t in times.items()},
        microseconds={name: t and t * 1e6 for name, t in times.items()})


def race_decode_q8(flash, length, batch, kv_heads, page=PAGE, dim=128):
    """Like race_decode, with pages of Q8_0; the peers have none."""
    heads = 8 * kv_heads
    bytes_each = batch * length * kv_heads * dim * 2 * 17 // 16
    free = torch.cuda.mem_get_info()[0]
    if 3 * bytes_each > free:
        return
    n_sets = max(1, min(8, (1 << 28) // bytes_each, int(free // (3 * bytes_each))))
    wide = (length + page - 1) // page
    lengths = torch.full((batch,), length, dtype=torch.int32, device="cuda")
    calls = []
    for _ in range(n_sets):
        q = torch.randn(batch, 1, heads, dim, device="cuda").to(torch.float16)
        caches = [Q8Pages(batch * wide, page, kv_heads, dim) for _ in range(2)]
        for cache in caches:
            cache.memory.random_(-128, 128)
            cache.factors.fill_(1 / 64)
        table = torch.randperm(batch * wide, device="cuda").to(torch.int32).view(batch, wide)
        calls.append(flash.prepare("decode", q, *(cache.numbers for cache in caches),
                                   torch.empty_like(q), batch=batch, seqlen_q=1, seqlen_k=length,
                                   seqlens_k=lengths, block_table=table, block_table_stride=wide,
                                   page_size=page, kv_dtype=Q8_0, k_scales=caches[0].factors,
                                   v_scales=caches[1].factors, flags=CAUSAL | EARLY_KEYS))
    time = time_or_none(calls)
    nothing = dict(fa2=None, cudnn=None)
    say(kind="decode", type="Q8_0", length=length, batch=batch, kv_heads=kv_heads,
        gb_s=dict(ours=time and bytes_each / time / 1e9, **nothing),
        microseconds=dict(ours=time and time * 1e6, **nothing))


def main():
    task = json.load(sys.stdin)
    flash = FlashAttention(task["library"], task["fields"], task["version"])
    flash.check(flash.library.flash_attn_device_status())
    run_checks(flash, lambda name, error, float_error: say(
        kind="check", name=name, error=error, float_error=float_error))
    limits()
    for dim in (64, 96, 128, 192, 256):
        race_packed(flash, torch.bfloat16, dim, VARLEN, "varlen")
        race_packed(flash, torch.bfloat16, dim, PAGED, "pages")
        for length in (2048, 16384):
            race_masked(flash, dim, length)
        common = dim in (64, 128)
        for causal in (True, False):
            for dtype in (torch.bfloat16, torch.float16) if common else (torch.bfloat16,):
                for length in (512, 1024, 2048, 4096, 8192, 16384):
                    race_forward(flash, dtype, dim, length, causal)
            race_forward(flash, torch.bfloat16, dim, 131072, causal)
        if dim != 96 and torch.cuda.get_device_capability()[0] == 9:
            for length in (4096, 16384):
                race_forward(flash, torch.float8_e4m3fn, dim, length, True)
    for batch in (1, 8, 64):
        for kv_heads in (8, 4, 2, 1):
            for length in (1024, 8192, 32768, 131072):
                race_decode(flash, length, batch, kv_heads)
                race_decode_q8(flash, length, batch, kv_heads)


main()
