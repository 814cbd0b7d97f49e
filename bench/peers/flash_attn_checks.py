"""libflash_attn against PyTorch in float64, on the GPU."""

import torch

from flash_attn_library import EARLY_KEYS, Q8_0, Q8Pages


def reference(q, k, v, dtype, causal=False, left=-1, right=-1, softcap=0.0, sinks=None):
    """Attention of one sequence, [row, head, dim], in `dtype`."""
    q, k, v = (x.to(dtype).transpose(0, 1) for x in (q, k, v))
    group = q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    positions = torch.arange(q.shape[1], device=q.device) + k.shape[1] - q.shape[1]
    ahead = torch.arange(k.shape[1], device=q.device)[None] - positions[:, None]
    right = 0 if causal else right
    hidden = torch.zeros_like(ahead, dtype=torch.bool)
    if left >= 0:
        hidden |= ahead < -left
    if right >= 0:
        hidden |= ahead > right
    scores = scores.masked_fill(hidden[None], float("-inf"))
    if sinks is not None:
        column = sinks.to(dtype)[:, None, None].expand(-1, scores.shape[1], 1)
        scores = torch.cat([scores, column], -1)
    weights = torch.softmax(scores, -1)[..., : k.shape[1]]
    # A row without visible keys is zero.
    return (weights.nan_to_num(0.0) @ v).transpose(0, 1)


def errors(out, parts, q_starts, options, dtype):
    """The largest errors of `out` and of a float32 computation rounded to `dtype`."""
    error = float_error = 0.0
    for (q, k, v), start in zip(parts, q_starts):
        if q.shape[0] == 0:
            continue
        exact = reference(q, k, v, torch.float64, **options)
        plain = reference(q, k, v, torch.float32, **options).to(dtype)
        ours = out[start : start + q.shape[0]].double()
        # NaN counts as the largest error.
        difference = (ours - exact).abs().nan_to_num(float("inf")).max().item()
        error = max(error, difference)
        float_error = max(float_error, (plain.double() - exact).abs().max().item())
    return error, float_error


def cumulative(lengths):
    sums = [0]
    for length in lengths:
        sums.append(sums[-1] + length)
    return torch.tensor(sums, dtype=torch.int32, device="cuda")


def random_parts(q_lengths, k_lengths, heads, kv_heads, dim, dtype):
    def tensor(rows, n):
        return torch.randn(rows, n, dim, device="cuda").to(dtype)

    return [(tensor(q, heads), tensor(k, kv_heads), tensor(k, kv_heads))
            for q, k in zip(q_lengths, k_lengths)]


def check_varlen(flash, dtype, dim, q_lengths, k_lengths, heads, kv_heads, flags, options):
    parts = random_parts(q_lengths, k_lengths, heads, kv_heads, dim, dtype)
    q, k, v = (torch.cat(list(x)) for x in zip(*parts))
    out = torch.full_like(q, float("nan"))
    cu_q, cu_k = cumulative(q_lengths), cumulative(k_lengths)
    flash.prepare("varlen_fwd", q, k, v, out, batch=len(parts), seqlen_q=max(q_lengths),
                  seqlen_k=max(k_lengths), total_q=len(q), total_k=len(k), cu_seqlens_q=cu_q,
                  cu_seqlens_k=cu_k, flags=flags, **native(options))()
    return errors(out, parts, cu_q.tolist(), options, dtype)


def check_paged(flash, function, dtype, dim, q_lengths, k_lengths, heads, kv_heads, page, flags,
                options):
    parts = random_parts(q_lengths, k_lengths, heads, kv_heads, dim, dtype)
    wide = (max(k_lengths) + page - 1) // page
    order = torch.randperm(wide * len(parts), device="cuda").to(torch.int32)
    table = order.view(len(parts), wide)
    pages = [torch.full((wide * len(parts), page, kv_heads, dim), float("nan"), device="cuda",
                        dtype=dtype) for _ in range(2)]
    for (_, k, v), row in zip(parts, table.tolist()):
        for cache, rows in zip(pages, (k, v)):
            for i in range(0, len(rows), page):
                piece = rows[i : i + page]
                cache[row[i // page], : len(piece)] = piece
    q = torch.cat([part[0] for part in parts])
    out = torch.full_like(q, float("nan"))
    cu_q = cumulative(q_lengths)
    lengths = torch.tensor(k_lengths, dtype=torch.int32, device="cuda")
    flash.prepare(function, q, *pages, out, batch=len(parts), seqlen_q=max(q_lengths),
                  seqlen_k=max(k_lengths), total_q=len(q), cu_seqlens_q=cu_q, seqlens_k=lengths,
                  block_table=table, block_table_stride=wide, page_size=page, flags=flags,
                  **native(options))()
    return errors(out, parts, cu_q.tolist(), options, dtype)


def check_q8(flash, dim, q_lengths, k_lengths, heads, kv_heads, page, flags, options):
    """Decoding with pages of Q8_0."""
    dtype, device = torch.float16, "cuda"
    wide = (max(k_lengths) + page - 1) // page
    table = torch.randperm(wide * len(q_lengths), device=device).to(torch.int32).view(-1, wide)
    caches = [Q8Pages(table.numel(), page, kv_heads, dim) for _ in range(2)]
    for cache in caches:
        cache.numbers.copy_(torch.randint(-128, 128, cache.numbers.shape, device=device))
        # Of powers of two, no product of a factor is rounded to float16.
        exponents = torch.randint(-9, -5, cache.factors.shape, device=device)
        cache.factors.copy_(torch.pow(2.0, exponents))
    parts = []
    for rows, keys, row in zip(q_lengths, k_lengths, table.tolist()):
        k, v = (torch.cat([cache.values(row[i // page], min(page, keys - i))
                           for i in range(0, keys, page)]) for cache in caches)
        parts.append((torch.randn(rows, heads, dim, device=device).to(dtype), k, v))
    q = torch.cat([part[0] for part in parts])
    out = torch.full_like(q, float("nan"))
    cu_q = cumulative(q_lengths)
    flash.prepare("decode", q, *(cache.numbers for cache in caches), out, batch=len(parts),
                  seqlen_q=max(q_lengths), seqlen_k=max(k_lengths), total_q=len(q),
                  cu_seqlens_q=cu_q, seqlens_k=torch.tensor(k_lengths, dtype=torch.int32,
                                                            device=device),
                  block_table=table, block_table_stride=wide, page_size=page, kv_dtype=Q8_0,
                  k_scales=caches[0].factors, v_scales=caches[1].factors,
                  flags=flags | EARLY_KEYS, **native(options))()
    return errors(out, parts, cu_q.tolist(), options, dtype)


def native(options):
    """Returns the options as fields of flash_attn_params."""
    fields = {}
    for name, value in options.items():
        if name in ("left", "right"):
            fields[f"window_{name}"] = value
        elif name != "causal":
            fields[name] = value
    return fields


def run_checks(flash, report):
    """Every head_dim and type, with and without each option; SM80's kernels too."""
    torch.manual_seed(1)
    sinks = torch.randn(8, device="cuda")
    variants = [{}, {"causal": True}, {"causal": True, "left": 100}, {"left": 70, "right": 9},
                {"causal": True, "softcap": 20.0}, {"causal": True, "sinks": sinks}]
    for dtype in (torch.float16, torch.bfloat16):
        for dim in (64, 96, 128, 192, 256):
            for options in variants:
                causal = 1 if options.get("causal") else 0
                label = f"{str(dtype)[6:]} {dim} {','.join(options) or 'plain'}"
                for path, force in (("", 0), (" sm80", 2)):
                    result = check_varlen(flash, dtype, dim, [300, 1, 0, 513], [300, 700, 5, 1025],
                                          8, 2, causal | force, options)
                    report(f"varlen{path} {label}", *result)
                    result = check_paged(flash, "varlen_fwd", dtype, dim, [200, 33], [200, 999], 8,
                                         2, 16, causal | force, options)
                    report(f"paged{path} {label}", *result)
                result = check_paged(flash, "decode", dtype, dim, [1, 16, 3], [1, 4000, 9000], 8, 2,
                                     16, causal, options)
                report(f"decode {label}", *result)
                if dtype == torch.float16:
                    result = check_q8(flash, dim, [1, 16, 3], [1, 4000, 9000], 8, 2, 16, causal,
                                      options)
                    report(f"decode q8_0 {label}", *result)
