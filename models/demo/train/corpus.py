"""Writes the training corpus: one JSON document a line, {"text": …} or {"turns": [[role, text], …]}.

    python corpus.py --out build/demo-model --documents 300000
"""

import argparse
import json
import random
from pathlib import Path

import chat
import knowledge
import records
import stories
import words as w
from grammar import Scene

HELD_OUT = 1000


def prose(rng: random.Random) -> str:
    """A few plain sentences that are no story."""
    roll = rng.random()
    if roll < 0.35:
        animals = rng.sample(w.ANIMALS, rng.randint(1, 3))
        return "\n".join(knowledge.describe(rng, animal) for animal in animals)
    if roll < 0.6:
        pairs = [knowledge.any_question(rng) for _ in range(rng.randint(2, 4))]
        return "\n".join(f"Question: {question}\nAnswer: {answer}" for question, answer in pairs)
    if roll < 0.7:
        return chat.poem(rng)[1]
    return note(rng)


def note(rng: random.Random) -> str:
    """A short note, letter or diary page."""
    place = rng.choice(w.PLACES)
    scene = Scene(rng, {
        "writer": rng.choice(w.GIRLS + w.BOYS), "reader": rng.choice(w.GIRLS + w.BOYS), "day": rng.choice(w.DAYS),
        "place": place[0], "inplace": place[1], "thing": rng.choice(w.TOYS + w.TREASURES), "colour": rng.choice(w.COLOURS),
        "animal": rng.choice(w.STORY_ANIMALS).name, "meal": rng.choice(w.MEALS), "elder": rng.choice(w.ELDERS),
        "weather": "[sunny|rainy|windy|cold|warm|cloudy]", "mood": rng.choice(w.MOODS), "hobby": rng.choice(w.HOBBIES),
    })
    scene["seen"] = (
        "[I saw {a:animal} {inplace}.|We were {inplace}, and it was {weather}.|I found {a:colour} {thing} {inplace}.|My {elder} cooked {meal}.|"
        "In the afternoon I liked {hobby} most.|We played {inplace} until it was dark.]"
    )
    return scene.say(rng.choice([
        "Dear {reader}, how are you? I am well. {seen} {seen} [Please write soon.|Please come and visit me.|I miss you.] [Your friend|Yours|Love], {writer}",
        "Today is {day}. It is {weather} today. {seen} {seen} I am [very|so] {mood}.",
        "On {day}, {writer} went [to the market|to see {reader}] with {his} {elder}. [It was {weather}.|The day was {weather}.] {writer} bought {meal} and {a:colour} {thing}.",
        "The {place} is a [quiet|beautiful|busy] place. [Many animals live near it.|Children play there.|It is nice when it is {weather}.] [People go there every {day}.|You can often see {a:animal} there.]",
    ]).replace("{his} {elder}", "a friend"))


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/demo-model"))
    parser.add_argument("--documents", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, count, seed in (("held_out", HELD_OUT, options.seed + 1_000_000), ("train", options.documents, options.seed)):
        rng = random.Random(seed)
        with (options.out / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for _ in range(count):
                file.write(json.dumps(document(rng)) + "\n")


if __name__ == "__main__":
    main()
