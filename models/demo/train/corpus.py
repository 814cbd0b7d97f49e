"""Writes the training corpus, a JSON document a line: {"text": …} or {"turns": [[role, text], …]}.

python corpus.py --out build/demo-model --documents 100000
"""

import argparse
import json
import random
from pathlib import Path

import chat
import knowledge
import poems
import records
import stories
import words as w
from grammar import Scene
from tables import sections

HELD_OUT = 1000
NOTES = sections("notes")


def prose(rng: random.Random) -> str:
    """A few plain sentences without a story."""
    roll = rng.random()
    if roll < 0.35:
        animals = rng.sample(w.ANIMALS, rng.randint(1, 3))
        return "\n".join(knowledge.describe(rng, animal) for animal in animals)
    if roll < 0.6:
        pairs = [knowledge.any_question(rng) for _ in range(rng.randint(2, 4))]
        return "\n".join(f"Question: {question}\nAnswer: {answer}" for question, answer in pairs)
    if roll < 0.7:
        return poems.poem(rng)[1]
    return note(rng)


def note(rng: random.Random) -> str:
    """A short note, letter or diary page."""
    place = rng.choice(w.PLACES)
    scene = Scene(rng, {"place": place.name, "inplace": place.inside})
    scene["writer"], scene["writer2"] = rng.choice(w.PEOPLE), rng.choice(w.PEOPLE)
    scene["reader"], scene["day"] = rng.choice(w.PEOPLE), rng.choice(w.DAYS)
    scene["thing"], scene["colour"] = rng.choice(w.THINGS), rng.choice(w.COLOURS)
    scene["animal"], scene["meal"] = rng.choice(w.STORY_ANIMALS).name, rng.choice(w.MEALS)
    scene["elder"], scene["mood"] = rng.choice(w.ELDERS), rng.choice(w.MOODS)
    scene["hobby"] = rng.choice(w.HOBBIES)
    scene["weather"] = "[sunny|rainy|windy|cold|warm|cloudy]"
    scene["seen"], scene["then"] = rng.sample(NOTES["seen"], 2)
    return scene.say(rng.choice(NOTES["notes"]))


def document(rng: random.Random) -> dict:
    roll = rng.random()
    if roll < 0.22:
        return {"text": stories.tell(rng).text}
    if roll < 0.32:
        return {"text": prose(rng)}
    if roll < 0.38:
        return {"text": records.loose_record(rng)}
    return {"turns": chat.conversation(rng)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("build/demo-model"))
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    parts = [
        ("held_out", HELD_OUT, options.seed + 1_000_000),
        ("train", options.documents, options.seed),
    ]
    for name, count, seed in parts:
        rng = random.Random(seed)
        with (options.out / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for _ in range(count):
                file.write(json.dumps(document(rng)) + "\n")


if __name__ == "__main__":
    main()
