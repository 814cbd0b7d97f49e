"""Turns documents into batches of token ids, with a mask of the ids that count in the loss."""

import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from train_tokenizer import BOS, EOS, TURN_END, TURN_START

CHUNK = 4096
LENGTH_STEP = 16


@dataclass
class Document:
    ids: np.ndarray
    learn: np.ndarray


@dataclass
class Batch:
    """Returns arrays [documents, length]. Padding is last and has no loss, so it needs no mask."""

    ids: np.ndarray
    learn: np.ndarray


class Encoder:
    """All of a text counts in the loss; of a conversation only the assistant's turns do."""

    def __init__(self, tokenizer: Tokenizer, longest: int):
        self.tokenizer, self.longest = tokenizer, longest
        self.bos, self.eos, self.start, self.end = (
            tokenizer.token_to_id(t) for t in (BOS, EOS, TURN_START, TURN_END)
        )
        self.newline = self._encode("\n")

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def encode(self, document: dict) -> Document:
        if "text" in document:
            ids = [self.bos, *self._encode(document["text"]), self.eos]
            learn = [True] * len(ids)
        else:
            ids, learn = [self.bos], [False]
            for role, text in document["turns"]:
                head = [self.start, *self._encode(f"{role}\n")]
                body = [*self._encode(text), self.end]
                ids += head + body + self.newline
                learn += (
                    [False] * len(head)
                    + [role == "assistant"] * len(body)
                    + [False] * len(self.newline)
                )
        return Document(
            np.array(ids[: self.longest], np.uint16), np.array(learn[: self.longest], bool)
        )


def load(
    corpus: Path, tokenizer: Tokenizer, longest: int, most: int | None = None
) -> list[Document]:
    encoder = Encoder(tokenizer, longest)
    with corpus.open(encoding="utf-8") as file:
        return [encoder.encode(json.loads(line)) for line in islice(file, most)]


def batches(documents: list[Document], tokens: int, seed: list[int]) -> list[list[int]]:
    """Groups documents of similar length into batches of at most `tokens` ids, in a seeded order."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(documents))
    groups: list[list[int]] = []
    for at in range(0, len(order), CHUNK):
        chunk = sorted(order[at : at + CHUNK], key=lambda i: len(documents[i].ids))
        group: list[int] = []
        for index in chunk:
            if group and (len(group) + 1) * _padded(len(documents[index].ids)) > tokens:
                groups.append(group)
                group = []
            group.append(int(index))
        groups.append(group)
    rng.shuffle(groups)
    return groups


def _padded(length: int) -> int:
    return -(-length // LENGTH_STEP) * LENGTH_STEP


def collate(documents: list[Document], chosen: list[int]) -> Batch:
    length = _padded(max(len(documents[i].ids) for i in chosen))
    ids = np.zeros((len(chosen), length), np.int64)
    learn = np.zeros((len(chosen), length), bool)
    for row, index in enumerate(chosen):
        size = len(documents[index].ids)
        ids[row, :size], learn[row, :size] = documents[index].ids, documents[index].learn
    return Batch(ids, learn)
