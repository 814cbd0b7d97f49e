"""libflash_attn through ctypes, on PyTorch's tensors and current stream."""

import ctypes

import torch

CAUSAL, FORCE_SM80, EARLY_KEYS = 1, 2, 8
Q8_0, E4M3 = 1, 2
MASK_F32 = 1
FUNCTIONS = ("fwd", "varlen_fwd", "decode")
TYPES = {
    "u32": ctypes.c_uint32,
    "i32": ctypes.c_int32,
    "f32": ctypes.c_float,
    "i64": ctypes.c_int64,
    "pointer": ctypes.c_void_p,
}


class Q8Pages:
    """Pages of keys or values of Q8_0 on a device: of each page and head, the numbers of its rows
    and then their factors."""

    def __init__(self, pages, page, heads, dim, device="cuda"):
        each = page * dim * 17 // 16
        self.memory = torch.zeros(pages * heads * each, dtype=torch.int8, device=device)
        blocks = self.memory.view(pages, heads, each)
        self.factors = blocks[..., page * dim:].view(torch.float16).view(
            pages, heads, page, dim // 32)
        # [page, row, head, dim]
        self.numbers = blocks[..., :page * dim].view(pages, heads, page, dim).transpose(1, 2)

    def values(self, page, rows):
        """The first rows of a page as floats, [row, head, dim]."""
        numbers = self.numbers[page, :rows].double()
        factors = self.factors[page, :, :rows].transpose(0, 1).double()
        return numbers * factors.repeat_interleave(32, -1)


class FlashAttention:
    """`fields` are the names and types of flash_attn_params, as ffi/flash_attn.ts lists them."""

    def __init__(self, path, fields, version):
        self.library = ctypes.CDLL(path)
        self.library.flash_attn_status_text.restype = ctypes.c_char_p
        self.version = version
        names = [(name, TYPES[kind]) for name, kind in fields]
        self.params = type("Params", (ctypes.Structure,), {"_fields_": names})
        self.workspace = None

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.library.flash_attn_status_text(status).decode())

    def prepare(self, function, q, k, v, out, **options):
        """A call that can be repeated. Tensors are [batch, row, head, dim] or packed [row, head, dim];
        with pages, k and v are [page, row, head, dim]."""
        p = self.params()
        p.version = self.version
        p.dtype = 0 if out.dtype == torch.float16 else 1
        p.kv_dtype = E4M3 if q.dtype == torch.float8_e4m3fn else 0
        p.n_heads, p.head_dim = q.shape[-2], q.shape[-1]
        p.n_kv_heads = k.shape[-2]
        p.scale = q.shape[-1] ** -0.5
        p.window_left = p.window_right = -1
        for name, tensor in (("q", q), ("k", k), ("v", v), ("out", out)):
            setattr(p, name, tensor.data_ptr())
            setattr(p, f"{name}_head_stride", tensor.stride(-2))
            setattr(p, f"{name}_row_stride", tensor.stride(-3))
            setattr(p, f"{name}_batch_stride", tensor.stride(0) if tensor.dim() == 4 else 0)
        if q.dim() == 4:
            p.batch, p.seqlen_q = q.shape[0], q.shape[1]
        if k.dim() == 4:
            p.seqlen_k = k.shape[1]
        keep = [q, k, v, out]
        for name, value in options.items():
            if isinstance(value, torch.Tensor):
                keep.append(value)
                value = value.data_ptr()
            setattr(p, name, value)
        self.attach_workspace(function, p)
        call = getattr(self.library, f"flash_attn_{function}")

        def run():
            p.stream = torch.cuda.current_stream().cuda_stream
            self.check(call(ctypes.byref(p)))

        run.keep = keep
        return run

    def attach_workspace(self, function, p):
        size = ctypes.c_uint64()
        number = FUNCTIONS.index(function)
        self.check(
            self.library.flash_attn_workspace_size(number, ctypes.byref(p), ctypes.byref(size)))
        if self.workspace is None or self.workspace.numel() < size.value:
            self.workspace = torch.empty(max(size.value, 16), dtype=torch.uint8, device="cuda")
        p.workspace = self.workspace.data_ptr()
        p.workspace_size = size.value
