"""Trains the demo model on one CPU thread; resumes from its checkpoint when there is one.

    python train.py --data build/demo-model --tokenizer models/demo/tokenizer.json --steps 8000
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

from model import Config, Llama
from packing import Rows, load_rows

ROW_LENGTHS = (512, 1024)
TOKENS_PER_STEP = 4096
WARMUP_STEPS = 200
FINAL_RATE = 0.03


class Batches:
    """An endless, seeded walk over the rows: every batch holds TOKENS_PER_STEP tokens of one row length."""

    def __init__(self, groups: list[Rows], seed: int):
        self.groups, self.seed = groups, seed
        self.per_epoch = sum(len(rows) // self._rows(rows) for rows in groups)

    @staticmethod
    def _rows(rows: Rows) -> int:
        return TOKENS_PER_STEP // rows.ids.shape[1]

    def epoch(self, number: int) -> list[tuple[int, np.ndarray]]:
        rng = np.random.default_rng([self.seed, number])
        batches = []
        for group, rows in enumerate(self.groups):
            size, order = self._rows(rows), rng.permutation(len(rows))
            batches += [(group, order[at : at + size]) for at in range(0, len(rows) - size + 1, size)]
        rng.shuffle(batches)
        return batches

    def at(self, step: int) -> "tuple[Rows, np.ndarray]":
        number, index = divmod(step, self.per_epoch)
        if index == 0 or not hasattr(self, "_current") or self._number != number:
            self._current, self._number = self.epoch(number), number
        group, chosen = self._current[index]
        return self.groups[group], chosen


def loss_of(model: Llama, rows: Rows, chosen: np.ndarray) -> tuple[torch.Tensor, int]:
    """The summed cross-entropy of the learnt tokens, and how many they are."""
    ids = torch.from_numpy(rows.ids[chosen].astype(np.int64))
    document = torch.from_numpy(rows.document[chosen].astype(np.int64))
    learn = torch.from_numpy(rows.learn[chosen])[:, 1:] & (document[:, 1:] == document[:, :-1])
    same = document[:, None, :-1, None] == document[:, None, None, :-1]
    mask = same & torch.ones(same.shape[-2:], dtype=torch.bool).tril()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.hidden(ids[:, :-1], mask)[learn]
        logits = model.logits(hidden)
    return F.cross_entropy(logits.float(), ids[:, 1:][learn], reduction="sum"), int(learn.sum())


@torch.no_grad()
def held_out_loss(model: Llama, groups: list[Rows]) -> float:
    total, count = 0.0, 0
    for rows in groups:
        for chosen in np.array_split(np.arange(len(rows)), max(1, len(rows) // 8)):
            loss, tokens = loss_of(model, rows, chosen)
            total, count = total + loss.item(), count + tokens
    return total / count


def rate(step: int, steps: int) -> float:
    """The learning rate as a share of its peak: linear warm-up, then a cosine."""
    if step < WARMUP_STEPS:
        return (step + 1) / WARMUP_STEPS
    progress = (step - WARMUP_STEPS) / max(1, steps - WARMUP_STEPS)
    return FINAL_RATE + (1 - FINAL_RATE) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def optimizers(model: Llama, peak: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the embedding and the norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    rest = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=peak, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=peak, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("build/demo-model"))
    parser.add_argument("--tokenizer", type=Path, default=Path("models/demo/tokenizer.json"))
    parser.add_argument("--checkpoint", type=Path, default=Path("build/demo-model/checkpoint.pt"))
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--stop-at", type=int, help="stop early, leaving the schedule as it is")
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report-every", type=int, default=250)
    for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"):
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=getattr(Config, name))
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    tokenizer = Tokenizer.from_file(str(options.tokenizer))
    shape = {key: value for key, value in vars(options).items() if key in Config.__dataclass_fields__}
    config = Config(vocab_size=tokenizer.get_vocab_size(), **shape)
    model = Llama(config)
    optims = optimizers(model, options.rate)
    first = 0
    if options.checkpoint.exists():
        saved = torch.load(options.checkpoint)
        model.load_state_dict(saved["model"])
        for optim, state in zip(optims, saved["optimizers"]):
            optim.load_state_dict(state)
        first = saved["step"]
    batches = Batches(load_rows(options.data / "train.jsonl", tokenizer, ROW_LENGTHS), options.seed)
    held_out = load_rows(options.data / "held_out.jsonl", tokenizer, ROW_LENGTHS)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {batches.per_epoch} steps an epoch", flush=True)

    started, running = time.monotonic(), []
    last = min(options.steps, options.stop_at or options.steps)
    for step in range(first, last):
        for optim in optims:
            for group in optim.param_groups:
                group["lr"] = options.rate * rate(step, options.steps)
        loss, count = loss_of(model, *batches.at(step))
        mean = loss / count
        mean.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optim in optims:
            optim.step()
            optim.zero_grad()
        running.append(mean.item())
        if (step + 1) % options.report_every == 0 or step + 1 == last:
            speed = (step + 1 - first) * TOKENS_PER_STEP / (time.monotonic() - started)
            print(
                f"step {step + 1}  train {np.mean(running):.4f}  held-out {held_out_loss(model, held_out):.4f}  "
                f"{speed:.0f} tokens/s  {(time.monotonic() - started) / 60:.1f} min",
                flush=True,
            )
            running = []
            state = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optims], "step": step + 1, "config": asdict(config)}
            partial = options.checkpoint.with_suffix(".partial")
            torch.save(state, partial)
            partial.replace(options.checkpoint)


if __name__ == "__main__":
    main()
