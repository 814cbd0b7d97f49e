"""What PyTorch reaches on this GPU: copies, matrix products, attention, and a compiled decode step.

Prints one JSON object a line, of the kinds in lines.ts, under the names that forge's own parts use.
`--emulated` does the smallest of everything on the CPU. Exits with 77 where there is no PyTorch, or no
GPU for it.
"""

import sys

try:
    import torch
    from torch.nn.functional import scaled_dot_product_attention
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)

import torch_timing
from torch_timing import say

EMULATED = "--emulated" in sys.argv[1:]
DEVICE = "cpu" if EMULATED else "cuda"
DTYPE = torch.bfloat16

# Llama-3.1-8B and Llama-3.2-1B; the last number is the layers.
SHAPES = {
    "llama-3.1-8b": dict(hidden=4096, ffn=14336, heads=32, kv_heads=8, dim=128, layers=32),
    "llama-3.2-1b": dict(hidden=2048, ffn=8192, heads=32, kv_heads=8, dim=64, layers=16),
}
SMALLEST = {"smallest": dict(hidden=64, ffn=128, heads=2, kv_heads=1, dim=32, layers=2)}
VOCABULARY = 320 if EMULATED else 128256
# Bytes of inputs that a measurement cycles through, more than the L2 cache holds.
ROTATION = 1 if EMULATED else 512 << 20
REPEATS = 3 if EMULATED else 20


def seconds(calls):
    if EMULATED:
        for call in calls:
            call()
        return 1.0
    return torch_timing.seconds(calls, REPEATS)


def say_speed(group, name, time, **fields):
    say(kind="speed", group=group, name=name, by="PyTorch", microseconds=time * 1e6, **fields)


def random(*shape):
    return torch.randn(*shape, device=DEVICE, dtype=DTYPE)


def copies_of(bytes_each):
    return max(2, min(64, ROTATION // bytes_each))


def measure_limits():
    size = 1024 if EMULATED else 8192
    source = torch.randint(0, 255, (size * size * 16,), device=DEVICE, dtype=torch.uint8)
    target = torch.empty_like(source)
    copy = seconds([lambda: target.copy_(source)] * 4)
    a, b = random(size, size), random(size, size)
    product = seconds([lambda: a @ b] * 4)
    say(kind="limit", name="copy GB/s", value=2 * source.numel() / copy / 1e9)
    say(kind="limit", name="matrix TFLOP/s", value=2 * size**3 / product / 1e12)


def measure_products():
    shapes = [(32, 256)] if EMULATED else [(6144, 4096), (4096, 4096), (28672, 4096),
                                           (4096, 14336), (128256, 4096)]
    for rows, cols in shapes:
        weights = [random(rows, cols) for _ in range(copies_of(rows * cols * 2))]
        for tokens in (1, 17) if EMULATED else (1, 8, 16, 64, 512):
            x = random(tokens, cols)
            time = seconds([lambda w=w: torch.matmul(x, w.T) for w in weights])
            say_speed("product", f"BF16 [{rows}, {cols}] x {tokens}", time,
                      teraflops=2 * tokens * rows * cols / time / 1e12)


def measure_decode_attention():
    heads, kv_heads, dim = 32, 8, 128
    cases = [(2, 40)] if EMULATED else [
        (batch, length) for batch in (1, 8, 64) for length in (128, 1024, 8192, 32768, 131072)]
    for batch, length in cases:
        bytes_each = batch * length * kv_heads * dim * 4
        if not EMULATED and bytes_each > torch.cuda.mem_get_info()[0] // 3:
            continue
        sets = []
        for _ in range(copies_of(bytes_each) if bytes_each < ROTATION else 1):
            q = random(batch, heads, 1, dim)
            # The layout of a cache: [batch, position, head, dim].
            k, v = (random(batch, length, kv_heads, dim).transpose(1, 2) for _ in range(2))
            sets.append((q, k, v))

        def call(q, k, v):
            return lambda: scaled_dot_product_attention(q, k, v, enable_gqa=True)

        time = seconds([call(*tensors) for tensors in sets])
        say_speed("decode attention", f"F16 {batch} x {length}", time,
                  gbPerSecond=bytes_each / time / 1e9)
        del sets


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def norm(x, weight):
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, 1e-5)


def layer(x, weights, cache, cos, sin, position, shape):
    """One decoder layer for one new token of each sequence, with a cache of fixed length."""
    batch, heads, kv_heads, dim = x.shape[0], shape["heads"], shape["kv_heads"], shape["dim"]
    qkv = norm(x, weights["norm"]) @ weights["qkv"].T
    q, k, v = qkv.split([heads * dim, kv_heads * dim, kv_heads * dim], -1)
    q = rotate(q.view(batch, heads, 1, dim), cos, sin)
    cache[0].index_copy_(2, position, rotate(k.view(batch, kv_heads, 1, dim), cos, sin))
    cache[1].index_copy_(2, position, v.view(batch, kv_heads, 1, dim))
    attended = scaled_dot_product_attention(q, cache[0], cache[1], enable_gqa=True)
    x = x + attended.reshape(batch, heads * dim) @ weights["out"].T
    gate, up = (norm(x, weights["norm"]) @ weights["up"].T).chunk(2, -1)
    return x + (torch.nn.functional.silu(gate) * up) @ weights["down"].T


def measure_decode_step(name, shape, batches, depth):
    hidden, ffn, dim = shape["hidden"], shape["ffn"], shape["dim"]
    wide = (shape["heads"] + 2 * shape["kv_heads"]) * dim
    layers = [{
        "norm": torch.ones(hidden, device=DEVICE, dtype=DTYPE),
        "qkv": random(wide, hidden) * 0.02,
        "out": random(hidden, shape["heads"] * dim) * 0.02,
        "up": random(2 * ffn, hidden) * 0.02,
        "down": random(hidden, ffn) * 0.02,
    } for _ in range(shape["layers"])]
    head = random(VOCABULARY, hidden) * 0.02
    compiled = torch.compile(layer, dynamic=False, backend="eager" if EMULATED else "inductor")
    for batch in batches:
        caches = [torch.randn(2, batch, shape["kv_heads"], depth, dim, device=DEVICE, dtype=DTYPE)
                  for _ in layers]
        position = torch.tensor([depth - 1], device=DEVICE)
        cos, sin = random(dim // 2), random(dim // 2)
        x = random(batch, hidden)

        def step():
            y = x
            for weights, cache in zip(layers, caches):
                y = compiled(y, weights, cache, cos, sin, position, shape)
            return (norm(y, layers[0]["norm"]) @ head.T).argmax(-1)

        with torch.no_grad():
            step()
            time = seconds([step])
        say_speed("decode step", f"{name}:BF16, {batch} x {depth}", time)
        del caches


def main():
    if not EMULATED and not torch.cuda.is_available():
        print("PyTorch finds no GPU")
        sys.exit(77)
    name = DEVICE if EMULATED else torch.cuda.get_device_name()
    say(kind="note", text=f"PyTorch {torch.__version__} on {name}")
    measure_limits()
    measure_products()
    measure_decode_attention()
    for model, shape in (SMALLEST if EMULATED else SHAPES).items():
        small = model != "llama-3.1-8b"
        measure_decode_step(model, shape, [1] if small else [1, 8, 64], 3 if EMULATED else 512)


main()
