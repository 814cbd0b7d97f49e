"""JSON: records asked for by name or by keys, facts of stories, lists, in several spellings."""

import json
import random
from collections.abc import Callable

import words as w
from grammar import Scene, article, listing
from stories import Story

Value = str | int | float | bool | None | list | dict
PEOPLE = w.GIRLS + w.BOYS


def _date(rng: random.Random) -> str:
    return f"{rng.randint(1990, 2026)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def _colours(rng: random.Random) -> list:
    return rng.sample(w.COLOURS, rng.randint(2, 3))


FIELDS: dict[str, Callable[[random.Random], Value]] = {
    "name": lambda r: r.choice(PEOPLE),
    "first_name": lambda r: r.choice(PEOPLE),
    "age": lambda r: r.randint(3, 80),
    "city": lambda r: r.choice(w.CITIES),
    "country": lambda r: r.choice("France Germany Italy Spain England Japan Norway Austria Ireland Greece".split()),
    "job": lambda r: r.choice(w.JOBS),
    "animal": lambda r: r.choice(w.ANIMALS).name,
    "pet": lambda r: r.choice("dog cat rabbit hen parrot mouse horse turtle".split()),
    "colour": lambda r: r.choice(w.COLOURS),
    "color": lambda r: r.choice(w.COLOURS),
    "place": lambda r: r.choice(w.PLACE_NAMES),
    "object": lambda r: f"{r.choice(w.COLOURS)} {r.choice(w.TOYS)}",
    "food": lambda r: r.choice(w.MEALS + w.FOODS),
    "mood": lambda r: r.choice("happy sad proud tired calm excited glad angry".split()),
    "hobby": lambda r: r.choice(w.HOBBIES),
    "hobbies": lambda r: r.sample(w.HOBBIES, r.randint(2, 3)),
    "trait": lambda r: r.choice(w.TRAITS),
    "likes": lambda r: r.sample(w.MEALS + w.FOODS, r.randint(2, 3)),
    "friends": lambda r: r.sample(PEOPLE, r.randint(1, 3)),
    "colours": _colours,
    "tags": lambda r: r.sample("new old small big fun quiet bright warm cold useful".split(), 2),
    "happy": lambda r: r.random() < 0.7,
    "active": lambda r: r.random() < 0.6,
    "can_swim": lambda r: r.random() < 0.5,
    "can_fly": lambda r: r.random() < 0.4,
    "legs": lambda r: r.choice([2, 4, 4, 6, 8]),
    "count": lambda r: r.randint(1, 20),
    "number": lambda r: r.randint(1, 100),
    "id": lambda r: r.randint(1, 999),
    "price": lambda r: r.choice([r.randint(1, 50), round(r.uniform(1, 30), 2), r.randint(1, 20) + 0.5]),
    "height": lambda r: round(r.uniform(0.5, 2.0), 2),
    "score": lambda r: r.choice([r.randint(1, 10), round(r.uniform(0, 1), 2)]),
    "date": _date,
    "birthday": _date,
    "day": lambda r: r.choice(w.DAYS),
    "month": lambda r: r.choice(w.MONTHS),
    "time": lambda r: f"{r.randint(0, 23):02}:{r.choice(['00', '15', '30', '45'])}",
    "email": lambda r: f"{r.choice(PEOPLE).lower()}@example.com",
    "phone": lambda r: f"555-{r.randint(0, 9999):04}",
    "title": lambda r: f"The {r.choice(w.COLOURS).capitalize()} {r.choice(w.TOYS + w.TREASURES).capitalize()}",
    "author": lambda r: r.choice(PEOPLE),
    "year": lambda r: r.randint(1950, 2026),
    "weather": lambda r: r.choice("sunny rainy windy cloudy snowy foggy".split()),
    "temperature": lambda r: r.randint(-5, 32),
    "answer": lambda r: r.choice(["yes", "no"]),
    "description": lambda r: f"{article(r.choice(w.TRAITS))} {r.choice(w.STORY_ANIMALS).name} {_near(r)}".capitalize(),
    "address": lambda r: {"street": f"{r.choice(w.COLOURS).capitalize()} Street {r.randint(1, 60)}", "city": r.choice(w.CITIES)},
    "nickname": lambda r: r.choice([None, r.choice(w.PET_BOYS + w.PET_GIRLS)]),
}


def _near(rng: random.Random) -> str:
    return f"who lives near the {rng.choice(w.PLACE_NAMES)}"


# what a record is called, and the keys it usually has
KINDS = {
    "person|character|user": "name age city job hobby happy email likes address friends trait birthday",
    "pet|animal": "name animal age colour legs food can_swim mood can_fly",
    "book|story": "title author year price tags colour",
    "place|city": "place city country weather temperature",
    "thing|product|toy": "id object colour price count tags",
    "day|event": "title date time place weather mood",
    "child|hero": "name age pet mood colour food place trait hobbies",
}


def record(rng: random.Random, keys: list[str]) -> dict[str, Value]:
    return {key: FIELDS[key](rng) for key in keys}


def spelled(rng: random.Random, value: Value, style: str | None = None) -> str:
    """One of the usual spellings: one line, compact, or indented by two."""
    style = style or rng.choice(["line"] * 6 + ["compact", "indented"])
    if style == "compact":
        return json.dumps(value, separators=(",", ":"))
    return json.dumps(value, indent=2 if style == "indented" else None)


def _styled(rng: random.Random, question: str) -> tuple[str, str]:
    roll = rng.random()
    if roll < 0.8:
        return question, "line"
    if roll < 0.9:
        return question.rstrip(".") + rng.choice([", compact.", " without spaces."]), "compact"
    return question.rstrip(".") + rng.choice([", indented.", ", pretty-printed."]), "indented"


def record_request(rng: random.Random) -> tuple[str, str]:
    """Asks for a kind of record, or for named keys."""
    names, usual = rng.choice(list(KINDS.items()))
    usual_keys = usual.split()
    scene = Scene(rng)
    scene["what"] = f"[{names}]"
    if rng.random() < 0.4:
        keys = usual_keys[: rng.randint(3, 5)]
        question = scene.say("[Give me|Write|Make|Create|Invent|Show me] {a:what} [as JSON|as a JSON object|in JSON].")
    else:
        pool = usual_keys if rng.random() < 0.5 else list(FIELDS)
        keys = rng.sample(pool, min(len(pool), rng.randint(1, 5)))
        scene["keys"] = listing(keys) if rng.random() < 0.7 else ", ".join(keys)
        question = scene.say(
            "[[Give me|Write|Make|Create] {a:what} as JSON with the keys {keys}.|Give me a JSON object with {keys}.|"
            "Return JSON with the keys {keys}.|Describe {a:what} as JSON with {keys}.|JSON with the keys {keys}.|"
            "Make up {a:what}. Answer in JSON with the keys {keys}.]"
        )
    question, style = _styled(rng, question)
    return question, spelled(rng, record(rng, keys), style)


def list_request(rng: random.Random) -> tuple[str, str]:
    """Asks for a JSON array of strings, numbers or records."""
    scene = Scene(rng)
    count = rng.randint(2, 5)
    kind = rng.randrange(4)
    items: list[Value]
    if kind == 0:
        what, pool = rng.choice([("animals", [a.name for a in w.ANIMALS]), ("colours", w.COLOURS), ("names", PEOPLE), ("cities", w.CITIES), ("days", w.DAYS), ("foods", w.FOODS)])
        items = list(rng.sample(pool, count))
    elif kind == 1:
        start = rng.randint(1, 5)
        what, items = f"numbers starting at {start}", list(range(start, start + count))
    elif kind == 2:
        what, items = "random numbers", [rng.randint(1, 99) for _ in range(count)]
    else:
        what, count = "people", rng.randint(2, 3)
        items = [record(rng, ["name", "age"]) for _ in range(count)]
    scene["what"] = f"{rng.choice([str(count), w.NUMBER_WORDS[count]])} {what}"
    question, style = _styled(rng, scene.say("[Give me|List|Write|Return] {what} [as a JSON array|as a JSON list|as JSON|in JSON]."))
    return question, spelled(rng, items, style)


def animal_request(rng: random.Random) -> tuple[str, str]:
    """Asks for true facts about an animal as JSON."""
    animal = rng.choice(w.ANIMALS)
    facts: dict[str, Value] = {
        "animal": animal.name,
        "legs": animal.legs,
        "colour": animal.colour,
        "food": animal.food,
        "home": animal.home.split(" ", 1)[-1],
        "young": animal.young,
        "is_bird": animal in w.BIRDS,
    }
    keys = rng.sample(list(facts), rng.randint(2, 5)) if rng.random() < 0.6 else ["animal", "legs", "colour", "food"]
    scene = Scene(rng, {"one": article(animal.name), "many": animal.plural, "keys": listing(keys)})
    question = "[Describe {one} as JSON|Give me the facts about {many} as JSON|Tell me about {many} in JSON]"
    question += "." if keys == ["animal", "legs", "colour", "food"] else " with the keys {keys}."
    question, style = _styled(rng, scene.say(question))
    return question, spelled(rng, {key: facts[key] for key in keys}, style)


def story_facts(rng: random.Random, story: Story) -> dict[str, Value]:
    """The facts of a story under the keys the model uses for them."""
    facts = story.facts
    found: dict[str, Value] = {"name": facts["name"], "animal" if _is_animal(facts["kind"]) else "kind": facts["kind"]}
    for key in ("friend", "friend_kind", "place", "object", "mood", "hobby", "trait"):
        if key in facts:
            found[key] = facts[key]
    if "age" in facts:
        found["age"] = w.NUMBER_WORDS.index(facts["age"])
    return found


def _is_animal(kind: str) -> bool:
    return any(kind == animal.name for animal in w.ANIMALS)


def facts_request(rng: random.Random, story: Story) -> tuple[str, str]:
    """Asks for the facts of a story told before."""
    facts = story_facts(rng, story)
    scene = Scene(rng)
    if rng.random() < 0.5:
        question = "[Give me|Write|Show me|List] the facts [of the story |of this story |]as JSON."
        if rng.random() < 0.3:
            facts = dict(rng.sample(list(facts.items()), len(facts)))
            question = "[Give|Write] the facts as JSON, in any order."
    else:
        keys = rng.sample(list(facts), rng.randint(1, min(4, len(facts))))
        facts = {key: facts[key] for key in keys}
        scene["keys"] = listing(keys)
        scene["of"] = "key" if len(keys) == 1 else "keys"
        question = "[Give me the facts as JSON with the {of} {keys}.|Give me {keys} as JSON.|Return JSON with the {of} {keys}.]"
    question, style = _styled(rng, scene.say(question))
    return question, spelled(rng, facts, style)


def loose_record(rng: random.Random) -> str:
    """A document that is only JSON."""
    keys = rng.choice(list(KINDS.values())).split() if rng.random() < 0.6 else list(FIELDS)
    keys = rng.sample(keys, min(len(keys), rng.randint(2, 6)))
    if rng.random() < 0.2:
        return spelled(rng, [record(rng, keys[:3]) for _ in range(rng.randint(2, 3))])
    if rng.random() < 0.3:
        return "\n".join(spelled(rng, record(rng, keys), "line") for _ in range(rng.randint(2, 4)))
    return spelled(rng, record(rng, keys))
