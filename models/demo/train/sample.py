"""Prints samples of a checkpoint: continuations, chat turns, JSON, and a conversation that goes on.

python sample.py --checkpoint build/demo-model/checkpoint.pt --temperature 0.6
"""

import argparse
from pathlib import Path

import torch
from tokenizers import Tokenizer

from model import Config, Llama
from train_tokenizer import BOS, EOS, TURN_END, TURN_START

CONTINUATIONS = [
    "Once upon a time",
    "One day, a little fox",
    "There was",
    "In a small village",
    "Mia had a red kite",
    '{"name": "',
]
CHATS = [
    ["Once upon a time"],
    ["Hello"],
    ["Who are you?", "What can you do?"],
    ["Tell me a story about a fox.", "Who is the story about?", "Give me the facts as JSON."],
    ["Write a short story about a dragon and a mouse.", "Where does it happen?"],
    ["What colour is the sky?", "Why is the sky blue?"],
    ["Name three animals.", "What sound does a cow make?", "How many legs does a spider have?"],
    ["What is 3 + 4?", "7 - 2", "What is two plus two?"],
    ["What is the capital of France?", "And what is the theory of relativity?"],
    ["My name is Orlin.", "I have a dog called Rex.", "What is my name?", "What is my dog called?"],
    ["Give me a person as JSON with the keys name, age and city."],
    ["List three colours as a JSON array."],
    ["Is this happy or sad? Tom lost his dog and cried."],
    ["Write a poem about the sea."],
    ["Explain recursion to a programmer."],
    ["Tell me a joke."],
]


def load(checkpoint: Path) -> Llama:
    saved = torch.load(checkpoint)
    model = Llama(Config(**saved["config"]))
    model.load_state_dict(saved["model"])
    return model.eval()


@torch.no_grad()
def complete(
    model: Llama,
    tokenizer: Tokenizer,
    ids: list[int],
    temperature: float,
    top_p: float,
    generator: torch.Generator,
    limit: int = 256,
) -> list[int]:
    """Generates ids up to a stop token. Temperature 0 is greedy."""
    stops = {tokenizer.token_to_id(EOS), tokenizer.token_to_id(TURN_END)}
    made: list[int] = []
    while len(made) < limit:
        logits = model.logits(model.hidden(torch.tensor([ids + made]))[0, -1])
        if temperature == 0:
            token = int(logits.argmax())
        else:
            probabilities, order = (logits / temperature).softmax(-1).sort(descending=True)
            keep = probabilities.cumsum(-1) - probabilities < top_p
            token = int(order[torch.multinomial(probabilities * keep, 1, generator=generator)])
        if token in stops:
            break
        made.append(token)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, default=Path("build/demo-model/checkpoint.pt"))
    parser.add_argument("--tokenizer", type=Path, default=Path("models/demo/tokenizer.json"))
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--top-p", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load(options.checkpoint)
    tokenizer = Tokenizer.from_file(str(options.tokenizer))
    generator = torch.Generator().manual_seed(options.seed)

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    def answer(ids: list[int]) -> list[int]:
        return complete(model, tokenizer, ids, options.temperature, options.top_p, generator)

    for prompt in CONTINUATIONS:
        print(f"[{prompt}]{tokenizer.decode(answer(encode(BOS + prompt)))}\n")
    for questions in CHATS:
        ids = encode(BOS)
        for question in questions:
            ids += encode(f"{TURN_START}user\n{question}{TURN_END}\n{TURN_START}assistant\n")
            made = answer(ids)
            print(f"> {question}\n{tokenizer.decode(made)}")
            ids += made + encode(f"{TURN_END}\n")
        print()


if __name__ == "__main__":
    main()
