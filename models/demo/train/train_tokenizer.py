"""Trains the byte-level BPE tokenizer and writes tokenizer.json and tokenizer_config.json.

python train_tokenizer.py --corpus build/demo-model/train.jsonl --out models/demo
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)

BOS, EOS, TURN_START, TURN_END = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|im_start|>",
    "<|im_end|>",
)
SPECIAL = [BOS, EOS, TURN_START, TURN_END]
# Words take their leading space, digits stand alone (so that sums line up), line ends stay together.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def texts(corpus: Path, limit: int) -> Iterator[str]:
    with corpus.open(encoding="utf-8") as file:
        for line in itertools.islice(file, limit):
            document = json.loads(line)
            if "text" in document:
                yield document["text"]
            for role, text in document.get("turns", []):
                yield f"{role}\n"
                yield text


def train(corpus: Path, vocab_size: int, limit: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(corpus, limit), trainer)
    bos = (BOS, tokenizer.token_to_id(BOS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[bos]
    )
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, default=Path("build/demo-model/train.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("models/demo"))
    parser.add_argument("--vocab-size", type=int, default=2048)
    parser.add_argument(
        "--documents", type=int, default=60_000, help="documents to learn merges from"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer = train(options.corpus, options.vocab_size, options.documents)
    tokenizer.save(str(options.out / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": TURN_END,
        "add_bos_token": True,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1024,
        "chat_template": CHAT_TEMPLATE,
    }
    (options.out / "tokenizer_config.json").write_text(
        json.dumps(config, indent=2) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
