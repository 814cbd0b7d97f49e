"""Trains the demo model's layer for multi-token prediction on one CPU thread, the rest frozen.

The layer has DeepSeek-V3's layout (arXiv:2412.19437): from the embedding of a token and the state
of the one before it after the last norm, zeros before the first, it predicts the next token. It
learns the model's own distributions, and, for chains of drafts, from its own states in place of the
model's.

python draft.py --data build/demo-model --model models/demo --steps 700
"""

import argparse
import json
import math
import struct
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional as F

from batches import load
from export import write_safetensors
from model import Config, Layer, Llama, RMSNorm, rotate
from train import Walk, rate

DEPTH_WEIGHTS = (1.0, 0.5)


class Draft(nn.Module):
    """The layer, with the names of the checkpoint layout."""

    def __init__(self, config: Config):
        super().__init__()
        size = config.hidden_size
        self.config = config
        self.enorm = RMSNorm(size, config.rms_norm_eps)
        self.hnorm = RMSNorm(size, config.rms_norm_eps)
        self.eh_proj = nn.Linear(2 * size, size, bias=False)
        self.layer = Layer(config)
        self.norm = RMSNorm(size, config.rms_norm_eps)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)

    def forward(
        self,
        model: Llama,
        hidden: torch.Tensor,
        ids: torch.Tensor,
        rows: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> torch.Tensor:
        """Returns the states that predict tokens, from tokens and the states before them.

        `rows` are the keys and values of the chain's earlier drafts, [batch, heads, length,
        head_dim]; those of this one are added. A row of the first draft sees all rows of that draft
        up to its own, a later one those up to its chain's and the rows of its chain.
        """
        c, attention, depth = self.config, self.layer.self_attn, len(rows)
        batch, length, _ = hidden.shape
        pair = torch.cat((self.enorm(model.embed_tokens(ids)), self.hnorm(hidden)), -1)
        x = self.eh_proj(pair)
        normed = self.layer.input_layernorm(x)

        def split(projected: torch.Tensor, heads: int) -> torch.Tensor:
            return projected.view(batch, length, heads, c.head_dim).transpose(1, 2)

        cos, sin = model.cos[depth : depth + length], model.sin[depth : depth + length]
        groups = attention.heads // attention.kv_heads
        q = rotate(split(attention.q_proj(normed), attention.heads), cos, sin) * c.head_dim**-0.5
        k = rotate(split(attention.k_proj(normed), attention.kv_heads), cos, sin)
        k = k.repeat_interleave(groups, 1)
        v = split(attention.v_proj(normed), attention.kv_heads).repeat_interleave(groups, 1)
        rows.append((k, v))
        first_k, first_v = (part[:, :, :length] for part in rows[0])
        hidden_rows = torch.full((length, length), -math.inf, dtype=q.dtype).triu(1)
        scores = [q @ first_k.transpose(2, 3) + hidden_rows]
        chain = [(k[:, :, :length], v[:, :, :length]) for k, v in rows[1:]]
        scores += [(q * k).sum(-1, keepdim=True) for k, _ in chain]
        weights = torch.cat(scores, -1).softmax(-1)
        mixed = weights[..., :length] @ first_v
        for i, (_, v) in enumerate(chain):
            mixed = mixed + weights[..., length + i, None] * v
        x = x + attention.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
        return self.norm(x + self.layer.mlp(self.layer.post_attention_layernorm(x)))


def losses(model: Llama, draft: Draft, ids: torch.Tensor, learn: torch.Tensor):
    """Returns, for each draft of a chain, the summed cross-entropy with the model's distribution,
    the summed probability that a token drawn from both alike agrees, and the number of tokens."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            hidden = model.hidden(ids[:, :-1])
        states, rows = F.pad(hidden, (0, 0, 1, 0)), []
        for depth in range(len(DEPTH_WEIGHTS)):
            # Row t has the token t + depth, and predicts the next one.
            count = hidden.shape[1] - depth
            states = draft(model, states[:, :count], ids[:, depth : depth + count], rows)
            wanted = learn[:, 1 + depth : 1 + depth + count]
            with torch.no_grad():
                aims = hidden[:, depth:][wanted]
                target = model.logits(aims).float().softmax(-1)
            guess = model.logits(states[wanted]).float().log_softmax(-1)
            agreed = torch.minimum(guess.detach().exp(), target).sum()
            yield -(target * guess).sum(), agreed, int(wanted.sum())


def read_model(folder: Path) -> tuple[Llama, dict]:
    """Returns a model of a Hugging Face folder without its layer for drafts, and its tensors."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    data = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + at for at in entry["data_offsets"])
        values = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float16)
        tensors[name] = values.view(entry["shape"])
    shape = {key: value for key, value in config.items() if key in Config.__dataclass_fields__}
    model = Llama(Config(**shape))
    own = f"model.layers.{config['num_hidden_layers']}."
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(own)}
    model.load_state_dict({name.removeprefix("model."): t for name, t in tensors.items()})
    return model.requires_grad_(False).eval(), tensors


def write_model(folder: Path, model_tensors: dict, draft: Draft) -> None:
    """Adds the layer to a folder, after the model's own layers."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["num_nextn_predict_layers"] = 1
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    prefix = f"model.layers.{config['num_hidden_layers']}."
    own = {}
    for name, tensor in draft.state_dict().items():
        inner = f"shared_head.{name}" if name.startswith("norm.") else name.removeprefix("layer.")
        own[prefix + inner] = tensor
    write_safetensors(folder / "model.safetensors", {**model_tensors, **own})


@torch.no_grad()
def acceptance(model: Llama, draft: Draft, walk: Walk) -> list[float]:
    """Returns the mean probability of each draft of a chain to agree, if all before it do."""
    totals = [[0.0, 0] for _ in DEPTH_WEIGHTS]
    for step in range(4):
        for part in walk.at(step):
            results = losses(model, draft, torch.from_numpy(part.ids), torch.from_numpy(part.learn))
            for total, (_, agreed, count) in zip(totals, results, strict=True):
                total[0] += agreed.item()
                total[1] += count
    return [agreed / count for agreed, count in totals]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("build/demo-model"))
    parser.add_argument("--model", type=Path, default=Path("models/demo"), help="changed in place")
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--documents", type=int, default=12_000)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report-every", type=int, default=50)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    model, tensors = read_model(options.model)
    draft = Draft(model.config)
    matrices = [p for p in draft.parameters() if p.dim() == 2]
    norms = [p for p in draft.parameters() if p.dim() == 1]
    peak = options.rate
    optimizers = [
        torch.optim.Muon(matrices, lr=peak, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(norms, lr=peak, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]
    longest = model.config.max_position_embeddings
    texts = load(options.data / "train.jsonl", tokenizer, longest, options.documents)
    unseen = load(options.data / "held_out.jsonl", tokenizer, longest)
    walk, held_out = Walk(texts, options.seed), Walk(unseen, options.seed)
    print(f"{sum(p.numel() for p in draft.parameters()):,} parameters", flush=True)

    started, seen = time.monotonic(), 0
    for step in range(options.steps):
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = peak * rate(step, options.steps)
        for part in walk.at(step):
            seen += part.ids.size
            results = losses(model, draft, torch.from_numpy(part.ids), torch.from_numpy(part.learn))
            weighted = zip(DEPTH_WEIGHTS, results, strict=True)
            sum(weight * loss / max(1, n) for weight, (loss, _, n) in weighted).backward()
        torch.nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if (step + 1) % options.report_every == 0 or step + 1 == options.steps:
            minutes = (time.monotonic() - started) / 60
            rates = " ".join(f"{value:.3f}" for value in acceptance(model, draft, held_out))
            report = f"step {step + 1}  accepted {rates}  {seen} tokens  {minutes:.1f} min"
            print(report, flush=True)
            write_model(options.model, tensors, draft)


if __name__ == "__main__":
    main()
