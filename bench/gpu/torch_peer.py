"""What PyTorch reaches on this GPU: a plain copy, the products of a Llama-3.1-8B layer, attention.

Times are medians of CUDA events; inputs rotate through more memory than the second-level cache holds.
Exits with 77 where there is no PyTorch or no GPU.
"""

import statistics
import sys

try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)
if not torch.cuda.is_available():
    print("PyTorch finds no GPU")
    sys.exit(77)

HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM = 4096, 14336, 32, 8, 128
ROTATION = 4


def median_ms(work, repeats=20):
    for i in range(ROTATION):
        work(i)
    times = []
    for i in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work(i % ROTATION)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def measure_copy():
    source, target = (torch.empty(1 << 30, device="cuda", dtype=torch.uint8) for _ in range(2))
    return 2 * (1 << 30) / median_ms(lambda i: target.copy_(source)) / 1e6


def measure_products(copy_rate):
    for tokens in (1, 8, 64, 512):
        for rows, cols in ((6144, HIDDEN), (HIDDEN, HIDDEN), (2 * FFN, HIDDEN), (HIDDEN, FFN)):
            weights = [random(rows, cols) for _ in range(ROTATION)]
            x = random(tokens, cols)
            ms = median_ms(lambda i: torch.matmul(x, weights[i].T))
            rate = rows * cols * 2 / ms / 1e6
            tflops = 2 * tokens * rows * cols / ms / 1e9
            share = 100 * rate / copy_rate
            print(f"matmul {tokens} x [{rows}, {cols}]: {ms * 1e3:.1f} us, {rate:.0f} GB/s "
                  f"({share:.0f}% of copy), {tflops:.1f} TFLOP/s")


def measure_attention(copy_rate):
    for batch, length in ((1, 8192), (8, 8192), (64, 2048), (1, 131072)):
        q = random(batch, HEADS, 1, HEAD_DIM)
        k, v = (random(batch, KV_HEADS, length, HEAD_DIM) for _ in range(2))
        attention = torch.nn.functional.scaled_dot_product_attention
        ms = median_ms(lambda i: attention(q, k, v, enable_gqa=True))
        rate = 2 * k.numel() * 2 / ms / 1e6
        share = 100 * rate / copy_rate
        print(f"SDPA decode, batch {batch}, {length} tokens: {ms * 1e3:.1f} us, {rate:.0f} GB/s "
              f"({share:.0f}% of copy)")


def main():
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}")
    copy_rate = measure_copy()
    print(f"copy: {copy_rate:.0f} GB/s")
    measure_products(copy_rate)
    measure_attention(copy_rate)


main()
