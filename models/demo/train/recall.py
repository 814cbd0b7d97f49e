"""Questions that contain their answer, from which a small model learns to copy from the context."""

import random

import words as w
from grammar import article
from knowledge import Pair

ASK_AGAIN = "Repeat this list: ", "Repeat: ", "Say this again: ", "Copy this: ", "Repeat after me: "
NOUNS = w.TOYS + w.TREASURES + w.MEALS + w.COLOURS + [animal.name for animal in w.ANIMALS]


def repeat_list(rng: random.Random) -> Pair:
    """A list to say again, word for word."""
    separator = rng.choice([", ", ", ", " "])
    text = separator.join(_some_words(rng, rng.randint(3, 24)))
    return rng.choice(ASK_AGAIN) + text, text


def _some_words(rng: random.Random, count: int) -> list[str]:
    draws = [
        lambda: rng.choice(NOUNS),
        lambda: rng.choice(w.PEOPLE),
        lambda: w.invented_name(rng),
        lambda: str(rng.randint(0, 999)),
    ]
    kinds = rng.choice([draws, draws[:1], draws[1:3], draws[2:3], draws[3:]])
    return [rng.choice(kinds)() for _ in range(count)]


def look_up(rng: random.Random) -> Pair:
    """Several people or things with one property each, and a question about one of them."""
    count = rng.randint(2, 7)
    names = rng.sample(w.PEOPLE, count)
    if rng.random() < 0.5:
        names = list(dict.fromkeys(w.invented_name(rng) for _ in names))
    style, at = rng.randrange(4), rng.randrange(len(names))
    if style == 0:
        numbers = [str(rng.randint(1, 99)) for _ in names]
        rows = ", ".join(f"{name}: {number}" for name, number in zip(names, numbers))
        return f"{rows}. What number does {names[at]} have?", f"{names[at]} has {numbers[at]}."
    things = rng.sample(w.TOYS, len(names))
    if style == 1:
        rows = " ".join(f"{name} has {article(thing)}." for name, thing in zip(names, things))
        question, answer = rng.choice(
            [
                (f"What does {names[at]} have?", f"{names[at]} has {article(things[at])}."),
                (f"Who has the {things[at]}?", f"{names[at]} has the {things[at]}."),
            ]
        )
    elif style == 2:
        places = [place.inside for place in rng.sample(w.PLACES, len(names))]
        rows = " ".join(f"{name} is {place}." for name, place in zip(names, places))
        question = rng.choice([f"Where is {names[at]}?", f"Who is {places[at]}?"])
        answer = f"{names[at]} is {places[at]}."
    else:
        colours = [rng.choice(w.COLOURS) for _ in names]
        rows = " ".join(f"The {thing} is {colour}." for thing, colour in zip(things, colours))
        question = f"What colour is the {things[at]}?"
        answer = f"The {things[at]} is {colours[at]}."
    return f"{rows} {question}", answer
