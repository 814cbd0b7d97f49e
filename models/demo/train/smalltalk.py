"""Greetings, the identity of the model, feelings, facts the user gave before, and "I do not know"."""

import random

import knowledge
import words as w
from grammar import Scene
from knowledge import Pair
from tables import columns, mapping, sections

TALK = sections("smalltalk")
UNKNOWN = sections("unknown")
SAY_FEELING = (
    "[I am {mood}|I feel {mood}|I am so {mood}|I am {mood} today|I feel {mood} today"
    "|I am very {mood}][.|.|!|]"
)
MODEL_NAME = "the small demo model of forge"


def _one_of(scene: Scene, title: str) -> Pair:
    """Expands every pair of a section of data/smalltalk.txt and draws one."""
    pairs = [(scene.say(said), scene.say(answer)) for said, answer in columns(TALK[title])]
    return scene.rng.choice(pairs)


def greeting(rng: random.Random) -> Pair:
    return _one_of(Scene(rng), "greetings")


def identity(rng: random.Random, name: str | None = None) -> Pair:
    """Questions about the model's identity: its own, or the name from a system message."""
    scene = Scene(rng, {"me": name or MODEL_NAME})
    scene["called"] = "[I am {me}.|My name is {me}.]" if name else "I am {me}."
    if name:
        scene["no_human"] = "I am {me}. I am a computer program."
    else:
        scene["no_human"] = "No, I am {me}. [I am a computer program.|I only know words.]"
    return _one_of(scene, "identity")


def remark(rng: random.Random) -> Pair:
    """Statements by the user that are not questions."""
    place = rng.choice(w.PLACES)
    scene = Scene(rng, {"toplace": place.toward})
    scene["animal"], scene["thing"] = rng.choice(w.STORY_ANIMALS).name, rng.choice(w.TOYS)
    scene["name"], scene["meal"] = rng.choice(w.PEOPLE), rng.choice(w.MEALS)
    return _one_of(scene, "remarks")


def feeling(rng: random.Random) -> Pair:
    answers = mapping(TALK["feelings"])
    mood = rng.choice(list(answers))
    scene = Scene(rng, {"mood": mood})
    return scene.say(SAY_FEELING), scene.say(answers[mood])


def unknown(rng: random.Random) -> Pair:
    """A question outside the training text."""
    scene = Scene(rng, {"topic": rng.choice(UNKNOWN["topics"])})
    scene["person"] = f"{rng.choice(w.PEOPLE)} {_surname(rng)}"
    scene["madeup"] = w.invented_name(rng).lower() + rng.choice(["", "ing", "tion", "ium", "ity"])
    scene["title"] = f"The {rng.choice(w.COLOURS).capitalize()} {w.invented_name(rng)}"
    scene["country"] = rng.choice(knowledge.CAPITALS)[0]
    scene["big"], scene["big2"] = str(rng.randint(23, 9999)), str(rng.randint(23, 9999))
    scene["year"], scene["word"] = str(rng.randint(1200, 2025)), rng.choice(w.THINGS)
    scene["thing"] = rng.choice(UNKNOWN["things"])
    return scene.say(rng.choice(UNKNOWN["questions"])), rng.choice(UNKNOWN["answers"])


def _surname(rng: random.Random) -> str:
    invented = [w.invented_name(rng), w.invented_name(rng) + "son"]
    return rng.choice(["Smith", "Miller", "Brown", "Lee", *invented])


def memory(rng: random.Random) -> list[Pair]:
    """The user says something about themselves and asks for it later."""
    scene = Scene(rng)
    scene["name"] = w.invented_name(rng) if rng.random() < 0.5 else rng.choice(w.PEOPLE)
    scene["animal"] = rng.choice(w.LISTS["pets"])
    scene["colour"], scene["city"] = rng.choice(w.COLOURS), rng.choice(w.CITIES)
    scene["pet"], scene["age"] = rng.choice(w.PETS), str(rng.randint(5, 80))
    food = rng.choice(w.MEALS)
    scene["food"], scene["food_is"] = food, "are" if food.endswith("s") else "is"
    told = columns(TALK["memory"])
    chosen = rng.sample(told, rng.randint(1, 3))
    asked = rng.sample(chosen, rng.randint(1, len(chosen)))
    between = [
        rng.choice([greeting, identity, knowledge.any_question])(rng)
        for _ in range(rng.choice([0, 0, 1, 2]))
    ]
    first = [(scene.say(said), scene.say(answer)) for said, answer, _, _ in chosen]
    later = [(scene.say(question), scene.say(answer)) for _, _, question, answer in asked]
    return first + between + later
