"""A Llama in plain PyTorch: RMSNorm, half-split RoPE, grouped queries, SwiGLU, tied embeddings.

The modules carry the names of the Hugging Face checkpoint layout, so exporting is copying.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    vocab_size: int = 2048
    hidden_size: int = 192
    intermediate_size: int = 448
    num_hidden_layers: int = 4
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    head_dim: int = 32
    max_position_embeddings: int = 1024
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5


def rope_tables(config: Config, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, each [length, head_dim], with the second half repeating the first."""
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(length, dtype=torch.float32), config.rope_theta**-steps)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotates x [batch, heads, length, head_dim]; pairs are (i, i + head_dim / 2)."""
    left, right = x.chunk(2, dim=-1)
    return x * cos.to(x.dtype) + torch.cat((-right, left), dim=-1) * sin.to(x.dtype)


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        batch, length, _ = x.shape

        def split(projected: torch.Tensor, heads: int) -> torch.Tensor:
            return projected.view(batch, length, heads, self.head_dim).transpose(1, 2)

        q = rotate(split(self.q_proj(x), self.heads), cos, sin)
        k = rotate(split(self.k_proj(x), self.kv_heads), cos, sin)
        v = split(self.v_proj(x), self.kv_heads)
        groups = self.heads // self.kv_heads
        k, v = (
            k.repeat_interleave(groups, 1).flatten(0, 1),
            v.repeat_interleave(groups, 1).flatten(0, 1),
        )
        # Written out: for heads this narrow the fused CPU kernel was three times slower.
        scores = torch.baddbmm(bias, q.flatten(0, 1) * self.head_dim**-0.5, k.transpose(1, 2))
        mixed = torch.bmm(scores.softmax(-1), v).unflatten(0, (batch, self.heads))
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class MLP(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, bias)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        cos, sin = rope_tables(config, config.max_position_embeddings)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.apply(self._initialise)

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, Attention):
            nn.init.normal_(module.o_proj.weight, std=0.02 / math.sqrt(2 * len(self.layers)))
        if isinstance(module, MLP):
            nn.init.normal_(module.down_proj.weight, std=0.02 / math.sqrt(2 * len(self.layers)))

    def hidden(self, ids: torch.Tensor) -> torch.Tensor:
        """ids [batch, length] to the normed last states [batch, length, hidden_size]."""
        length = ids.shape[1]
        x = self.embed_tokens(ids)
        kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        bias = torch.full((1, length, length), -math.inf, dtype=kind).triu(1)
        for layer in self.layers:
            x = layer(x, self.cos[:length], self.sin[:length], bias)
        return self.norm(x)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """States [..., hidden_size] to logits [..., vocab_size], through the tied embedding."""
        return F.linear(hidden, self.embed_tokens.weight)
