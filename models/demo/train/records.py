"""JSON: records requested by name or by keys, facts of stories, lists, in several spellings."""

import json
import random

import words as w
from fields import FIELDS, Value
from grammar import Scene, article, listing
from knowledge import Pair
from stories import Story

# Names of records, and their usual keys.
KINDS = {
    "person|character|user": "name age city job hobby happy email likes address friends trait"
    " birthday",
    "pet|animal": "name animal age colour legs food can_swim mood can_fly",
    "book|story": "title author year price tags colour",
    "place|city": "place city country weather temperature",
    "thing|product|toy": "id object colour price count tags",
    "day|event": "title date time place weather mood",
    "child|hero": "name age pet mood colour food place trait hobbies",
}
ASK_KIND = "[Give me|Write|Make|Create|Invent|Show me] {a:what} [as JSON|as a JSON object|in JSON]."
ASK_KEYS = (
    "[[Give me|Write|Make|Create] {a:what} as JSON with the keys {keys}."
    "|Give me a JSON object with {keys}.|Return JSON with the keys {keys}."
    "|Describe {a:what} as JSON with {keys}.|JSON with the keys {keys}."
    "|Make up {a:what}. Answer in JSON with the keys {keys}.]"
)
ASK_LIST = "[Give me|List|Write|Return] {what} [as a JSON array|as a JSON list|as JSON|in JSON]."
ASK_ANIMAL = (
    "[Describe {one} as JSON|Give me the facts about {many} as JSON|Tell me about {many} in JSON]"
)
ASK_FACTS = "[Give me|Write|Show me|List] the facts [of the story |of this story |]as JSON."
ASK_SHUFFLED_FACTS = "[Give|Write] the facts as JSON, in any order."
ASK_SOME_FACTS = (
    "[Give me the facts as JSON with the {of} {keys}.|Give me {keys} as JSON."
    "|Return JSON with the {of} {keys}.]"
)
USUAL_ANIMAL_KEYS = ["animal", "legs", "colour", "food"]
LISTED = [
    ("animals", [animal.name for animal in w.ANIMALS]),
    ("colours", w.COLOURS),
    ("names", w.PEOPLE),
    ("cities", w.CITIES),
    ("days", w.DAYS),
    ("foods", w.FOODS),
]


def record(rng: random.Random, keys: list[str]) -> dict[str, Value]:
    return {key: FIELDS[key](rng) for key in keys}


def spelled(value: Value, style: str) -> str:
    """JSON on one line, compact without spaces, or indented by two."""
    if style == "compact":
        return json.dumps(value, separators=(",", ":"))
    return json.dumps(value, indent=2 if style == "indented" else None)


def _styled(rng: random.Random, question: str) -> Pair:
    """Returns (question, style). Some questions ask for a spelling other than one line."""
    roll = rng.random()
    if roll < 0.8:
        return question, "line"
    if roll < 0.9:
        return question.rstrip(".") + rng.choice([", compact.", " without spaces."]), "compact"
    return question.rstrip(".") + rng.choice([", indented.", ", pretty-printed."]), "indented"


def record_request(rng: random.Random) -> Pair:
    """Asks for a kind of record, or for named keys."""
    names, usual = rng.choice(list(KINDS.items()))
    scene = Scene(rng, {"what": f"[{names}]"})
    if rng.random() < 0.4:
        keys = usual.split()[: rng.randint(3, 5)]
        question = scene.say(ASK_KIND)
    else:
        pool = usual.split() if rng.random() < 0.5 else list(FIELDS)
        keys = rng.sample(pool, min(len(pool), rng.randint(1, 5)))
        scene["keys"] = listing(keys) if rng.random() < 0.7 else ", ".join(keys)
        question = scene.say(ASK_KEYS)
    question, style = _styled(rng, question)
    return question, spelled(record(rng, keys), style)


def list_request(rng: random.Random) -> Pair:
    """Asks for a JSON array of strings, numbers or records."""
    count = rng.randint(2, 5)
    kind = rng.randrange(4)
    items: list[Value]
    if kind == 0:
        what, pool = rng.choice(LISTED)
        items = list(rng.sample(pool, count))
    elif kind == 1:
        start = rng.randint(1, 5)
        what, items = f"numbers starting at {start}", list(range(start, start + count))
    elif kind == 2:
        what, items = "random numbers", [rng.randint(1, 99) for _ in range(count)]
    else:
        what, count = "people", rng.randint(2, 3)
        items = [record(rng, ["name", "age"]) for _ in range(count)]
    scene = Scene(rng, {"what": f"{rng.choice([str(count), w.NUMBERS[count]])} {what}"})
    question, style = _styled(rng, scene.say(ASK_LIST))
    return question, spelled(items, style)


def animal_request(rng: random.Random) -> Pair:
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
    keys = USUAL_ANIMAL_KEYS
    if rng.random() < 0.6:
        keys = rng.sample(list(facts), rng.randint(2, 5))
    scene = Scene(rng, {"one": article(animal.name), "many": animal.plural, "keys": listing(keys)})
    ending = "." if keys == USUAL_ANIMAL_KEYS else " with the keys {keys}."
    question, style = _styled(rng, scene.say(ASK_ANIMAL + ending))
    return question, spelled({key: facts[key] for key in keys}, style)


def story_facts(story: Story) -> dict[str, Value]:
    """The facts of a story under the keys the model uses for them."""
    facts = story.facts
    is_animal = any(facts["kind"] == animal.name for animal in w.ANIMALS)
    found: dict[str, Value] = {
        "name": facts["name"],
        "animal" if is_animal else "kind": facts["kind"],
    }
    for key in ("friend", "friend_kind", "place", "object", "mood", "hobby", "trait"):
        if key in facts:
            found[key] = facts[key]
    if "age" in facts:
        found["age"] = w.NUMBERS.index(facts["age"])
    return found


def facts_request(rng: random.Random, story: Story) -> Pair:
    """Asks for the facts of a story told before."""
    facts = story_facts(story)
    scene = Scene(rng)
    question = ASK_FACTS
    if rng.random() < 0.5:
        if rng.random() < 0.3:
            facts = dict(rng.sample(list(facts.items()), len(facts)))
            question = ASK_SHUFFLED_FACTS
    else:
        keys = rng.sample(list(facts), rng.randint(1, min(4, len(facts))))
        facts = {key: facts[key] for key in keys}
        scene["keys"], scene["of"] = listing(keys), "key" if len(keys) == 1 else "keys"
        question = ASK_SOME_FACTS
    question, style = _styled(rng, scene.say(question))
    return question, spelled(facts, style)


def loose_record(rng: random.Random) -> str:
    """A document that is only JSON: a record, a list of records, or one record a line."""
    keys = rng.choice(list(KINDS.values())).split() if rng.random() < 0.6 else list(FIELDS)
    keys = rng.sample(keys, min(len(keys), rng.randint(2, 6)))
    if rng.random() < 0.2:
        value: Value = [record(rng, keys[:3]) for _ in range(rng.randint(2, 3))]
    elif rng.random() < 0.3:
        lines = [spelled(record(rng, keys), "line") for _ in range(rng.randint(2, 4))]
        return "\n".join(lines)
    else:
        value = record(rng, keys)
    return spelled(value, rng.choice(["line"] * 6 + ["compact", "indented"]))
