"""Trains the demo model on one CPU thread; resumes from its checkpoint when there is one.

python train.py --data build/demo-model --tokenizer models/demo/tokenizer.json --steps 9600
"""

import argparse
import math
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn import functional as F

from batches import Batch, Document, batches, collate, load
from model import Config, Llama

TOKENS_PER_BATCH = 1024
BATCHES_PER_STEP = 3
WARMUP_STEPS = 100
FINAL_RATE = 0.03


class Walk:
    """An endless, seeded sequence of batches. Any step can be computed directly, so a run can resume."""

    def __init__(self, documents: list[Document], seed: int):
        self.documents, self.seed = documents, seed
        self.orders: dict[int, list[list[int]]] = {}

    def at(self, step: int) -> list[Batch]:
        return [
            collate(self.documents, self._chosen(step * BATCHES_PER_STEP + i))
            for i in range(BATCHES_PER_STEP)
        ]

    def _chosen(self, index: int) -> list[int]:
        epoch = 0
        while index >= len(order := self._order(epoch)):
            index, epoch = index - len(order), epoch + 1
        return order[index]

    def _order(self, epoch: int) -> list[list[int]]:
        if epoch not in self.orders:
            self.orders[epoch] = batches(self.documents, TOKENS_PER_BATCH, [self.seed, epoch])
        return self.orders[epoch]


def loss_of(model: Llama, batch: Batch) -> tuple[torch.Tensor, int]:
    """Returns the summed cross-entropy of the tokens in the loss, and their number."""
    ids, learn = torch.from_numpy(batch.ids), torch.from_numpy(batch.learn)[:, 1:]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model.logits(model.hidden(ids[:, :-1])[learn])
    return F.cross_entropy(logits.float(), ids[:, 1:][learn], reduction="sum"), int(learn.sum())


@torch.no_grad()
def held_out_loss(model: Llama, documents: list[Document]) -> float:
    parts = [
        loss_of(model, collate(documents, chosen))
        for chosen in batches(documents, TOKENS_PER_BATCH, [0])
    ]
    return sum(loss.item() for loss, _ in parts) / sum(count for _, count in parts)


def rate(step: int, steps: int) -> float:
    """The learning rate as a share of its peak: warm-up, constant, a cosine over the second half.

    The first half does not depend on `steps`, so a run may be resumed there with another length.
    """
    if step < WARMUP_STEPS:
        return (step + 1) / WARMUP_STEPS
    progress = max(0.0, 2 * step / steps - 1)
    return FINAL_RATE + (1 - FINAL_RATE) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def optimizers_of(model: Llama, peak: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices that write, AdamW for the embedding, the norms, queries and keys.

    With batches this small, Muon's even steps leave attention flat: queries and keys need
    directions that grow faster than the rest.
    """
    written = ("v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    named = list(model.named_parameters())
    matrices = [p for name, p in named if any(part in name for part in written)]
    rest = [p for name, p in named if not any(part in name for part in written)]
    return [
        torch.optim.Muon(matrices, lr=peak, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=peak, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("build/demo-model"))
    parser.add_argument("--tokenizer", type=Path, default=Path("models/demo/tokenizer.json"))
    parser.add_argument("--checkpoint", type=Path, default=Path("build/demo-model/checkpoint.pt"))
    parser.add_argument("--steps", type=int, default=9600)
    parser.add_argument("--stop-at", type=int, help="stop early, leaving the schedule as it is")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report-every", type=int, default=500)
    for name in (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
    ):
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=getattr(Config, name))
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    tokenizer = Tokenizer.from_file(str(options.tokenizer))
    shape = {
        key: value for key, value in vars(options).items() if key in Config.__dataclass_fields__
    }
    config = Config(vocab_size=tokenizer.get_vocab_size(), **shape)
    model = Llama(config)
    optimizers = optimizers_of(model, options.rate)
    first = 0
    if options.checkpoint.exists():
        saved = torch.load(options.checkpoint)
        model.load_state_dict(saved["model"])
        for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        first = saved["step"]
    documents = load(options.data / "train.jsonl", tokenizer, config.max_position_embeddings)
    held_out = load(options.data / "held_out.jsonl", tokenizer, config.max_position_embeddings)
    walk = Walk(documents, options.seed)
    size = sum(len(document.ids) for document in documents)
    print(
        f"{sum(p.numel() for p in model.parameters()):,} parameters, {size:,} tokens of text",
        flush=True,
    )

    started, running, seen = time.monotonic(), [], 0
    last = min(options.steps, options.stop_at or options.steps)
    for step in range(first, last):
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = options.rate * rate(step, options.steps)
        parts = walk.at(step)
        count = sum(int(part.learn[:, 1:].sum()) for part in parts)
        total = 0.0
        for part in parts:
            loss = loss_of(model, part)[0] / count
            loss.backward()
            total, seen = total + loss.item(), seen + part.ids.size
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        running.append(total)
        if (step + 1) % options.report_every == 0 or step + 1 == last:
            speed = seen / (time.monotonic() - started)
            print(
                f"step {step + 1}  train {np.mean(running):.4f}  held-out"
                f" {held_out_loss(model, held_out):.4f}  {speed:.0f} tokens/s "
                f" {(time.monotonic() - started) / 60:.1f} min",
                flush=True,
            )
            running = []
            state = {
                "model": model.state_dict(),
                "optimizers": [optimizer.state_dict() for optimizer in optimizers],
                "step": step + 1,
                "config": asdict(config),
            }
            partial = options.checkpoint.with_suffix(".partial")
            torch.save(state, partial)
            partial.replace(options.checkpoint)


if __name__ == "__main__":
    main()
