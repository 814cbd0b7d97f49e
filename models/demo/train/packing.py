"""Documents to rows: token ids, which of them to learn, and which document each belongs to."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from train_tokenizer import BOS, EOS, TURN_END, TURN_START

OPEN_ROWS = 64


@dataclass
class Rows:
    """Arrays [rows, length]. A document never crosses a row; document 0 is padding."""

    ids: np.ndarray
    learn: np.ndarray
    document: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


class Encoder:
    """Turns documents into (ids, learn): text is learnt whole, a conversation only where the assistant speaks."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.bos, self.eos, self.start, self.end = (tokenizer.token_to_id(t) for t in (BOS, EOS, TURN_START, TURN_END))
        self.newline = self._encode("\n")

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def encode(self, document: dict) -> tuple[list[int], list[bool]]:
        if "text" in document:
            ids = [self.bos, *self._encode(document["text"]), self.eos]
            return ids, [True] * len(ids)
        ids, learn = [self.bos], [False]
        for role, text in document["turns"]:
            head = [self.start, *self._encode(f"{role}\n")]
            body = [*self._encode(text), self.end]
            spoken = role == "assistant"
            ids += head + body + self.newline
            learn += [False] * len(head) + [spoken] * len(body) + [False] * len(self.newline)
        return [*ids, self.eos], [*learn, False]


def pack(encoded: list[tuple[list[int], list[bool]]], length: int) -> Rows:
    """First fit into the rows still open; a row closes when it is the fullest of too many."""
    closed: list[list[tuple[list[int], list[bool]]]] = []
    open_rows: list[tuple[int, list]] = []
    for ids, learn in encoded:
        ids, learn = ids[:length], learn[:length]
        at = next((i for i, (used, _) in enumerate(open_rows) if used + len(ids) <= length), None)
        if at is None:
            if len(open_rows) == OPEN_ROWS:
                fullest = max(range(OPEN_ROWS), key=lambda i: open_rows[i][0])
                closed.append(open_rows.pop(fullest)[1])
            open_rows.append((len(ids), [(ids, learn)]))
        else:
            used, content = open_rows[at]
            content.append((ids, learn))
            open_rows[at] = (used + len(ids), content)
    closed += [content for _, content in open_rows]
    rows = Rows(
        np.zeros((len(closed), length), np.uint16), np.zeros((len(closed), length), bool), np.zeros((len(closed), length), np.uint8)
    )
    for row, content in enumerate(closed):
        at = 0
        for number, (ids, learn) in enumerate(content, 1):
            span = slice(at, at + len(ids))
            rows.ids[row, span], rows.learn[row, span], rows.document[row, span] = ids, learn, number
            at += len(ids)
    return rows


def load_rows(corpus: Path, tokenizer: Tokenizer, lengths: tuple[int, ...]) -> list[Rows]:
    """Packs each document into the shortest row length that holds it (one longer than all is cut)."""
    encoder = Encoder(tokenizer)
    groups: list[list] = [[] for _ in lengths]
    with corpus.open(encoding="utf-8") as file:
        for line in file:
            ids, learn = encoder.encode(json.loads(line))
            group = next((i for i, length in enumerate(lengths) if len(ids) <= length), len(lengths) - 1)
            groups[group].append((ids, learn))
    return [pack(group, length) for group, length in zip(groups, lengths)]
