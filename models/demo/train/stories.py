"""Stories: a cast, an opening, a plot. Every story keeps the facts that its text really mentions."""

import random
import re
from dataclasses import dataclass, field

import plots
import plots_more
import words as w
from grammar import Scene

PLOTS = plots.PLOTS | plots_more.PLOTS
NO_HABIT_PLOTS = {"the dragon", "saying sorry"}
THINGS = {"making something": w.HAND_MADE, "saying sorry": w.SHARED_TOYS, "losing something": w.TOYS}

OPENINGS = [
    "[Once upon a time|Long ago|Once], there was {a_hero}{where}.",
    "[Once upon a time|Long ago|Once], there lived {a_hero}.",
    "Once upon a time, {where2} there [lived|was] {a_hero}.",
    "[There was once|There once was|There was] {a_hero}{where}.",
    "[In a small|In a quiet|In a little|In a faraway] village {village}, there lived {a_hero}.",
    "[{^hero} was {a_kind}|This is the story of {hero}, {a_kind}] who lived {home}.",
    "[Far away, {home}|Far, far away], there lived {a_hero}.",
    "[Not so long ago|Many years ago|A long time ago], {a_hero} lived {home}.",
    "{^a_kind} named {hero} lived {home}.",
]
HABITS = [
    "{^he} [loved|liked] {hobby}.",
    "{^he} was [very|always] {trait}[, and everybody [liked|knew] {him}|].",
    "[Everyone|Everybody] [said that|knew that] {he} was {trait}.",
    "{^he} was {age} years old and [loved|liked] {hobby}.",
    "[More than anything,|Most of all,] {he} [loved|liked] {hobby}.",
    "{^he} lived with {his} {elder}.",
]
HOMES = """near the {home_place}|at the edge of the {home_place}|in a little house by the {home_place}|in a {colour} house on a hill
|in a small village|at the end of a long road|in a cosy house with a {colour} door|not far from the {home_place}""".replace("\n", "")
VILLAGES = "by the sea|near the mountains|between two hills|near a big forest|by a wide river|at the edge of the woods"
DIRECT_START = re.compile(r"(One [a-z ]+,) (?:he|she) ")
HE = dict(he="he", him="him", his="his", himself="himself")
SHE = dict(he="she", him="her", his="her", himself="herself")


@dataclass
class Wishes:
    """What a story must be about; anything left None is drawn."""

    name: str | None = None
    kind: str | None = None
    friend: str | None = None
    place: str | None = None
    thing: str | None = None
    theme: str | None = None
    opening: str | None = None


@dataclass
class Story:
    text: str
    sentences: list[str]
    facts: dict[str, str] = field(default_factory=dict)
    theme: str = ""


def _character(rng: random.Random, kind: str | None, name: str | None) -> tuple[str, str, bool]:
    """Draws (name, kind, is she); people are girls, boys, animals, workers or creatures of tales."""
    she = rng.random() < 0.5
    if name in w.GIRLS or name in w.PET_GIRLS or kind in ("girl", "princess", "queen", "witch", "mermaid", "fairy"):
        she = True
    if name in w.BOYS or name in w.PET_BOYS or kind in ("boy", "king", "knight", "wizard", "pirate"):
        she = False
    if kind is None:
        roll = rng.random()
        if roll < 0.4:
            kind = "girl" if she else "boy"
        elif roll < 0.82:
            kind = rng.choice(w.STORY_ANIMALS).name
        elif roll < 0.92:
            kind = rng.choice(w.FANTASY[she])
        else:
            kind = rng.choice(w.WORKERS[she])
    if name is None:
        human = kind in ("girl", "boy") or kind in w.WORKERS[0] + w.WORKERS[1]
        usual = (w.GIRLS if she else w.BOYS) if human else (w.PET_GIRLS if she else w.PET_BOYS)
        other = w.GIRLS if she else w.BOYS
        roll = rng.random()
        name = w.invented_name(rng) if roll < 0.12 else rng.choice(usual if roll < 0.8 else other)
    return name, kind, she


def _thing(rng: random.Random, thing: str) -> tuple[str, str]:
    """The object with its adjectives, and the bare noun."""
    adjective = rng.choice([
        rng.choice(w.COLOURS),
        rng.choice(w.COLOURS),
        rng.choice(w.SIZES) + " " + rng.choice(w.COLOURS),
        rng.choice("shiny old new wooden beautiful magic lovely tiny funny".split()),
    ])
    return f"{adjective} {thing}", thing


def _cast(rng: random.Random, wishes: Wishes, theme: str) -> Scene:
    scene = Scene(rng)
    hero, kind, she = _character(rng, wishes.kind, wishes.name)
    friend, fkind, fshe = _character(rng, wishes.friend, None)
    while friend == hero or (fkind == kind and wishes.friend is None):
        friend, fkind, fshe = _character(rng, wishes.friend, None)
    for key, value in (SHE if she else HE).items():
        scene[key] = value
    for key, value in (SHE if fshe else HE).items():
        scene["f" + key] = value
    wanted_place = wishes.place or rng.choice(w.PLACE_NAMES)
    place, inplace, spots = next(row for row in w.PLACES if row[0] == wanted_place)
    spot, spot2 = rng.sample(spots.split("|"), 2)
    scene["hero"], scene["kind"] = hero, kind
    scene["friend"], scene["fkind"] = friend, fkind
    scene["place"], scene["inplace"] = place, inplace
    scene["toplace"] = "to school" if place == "school" else f"to the {place}"
    scene["spot"], scene["spot2"] = spot, spot2
    things = THINGS.get(theme, w.TOYS + w.TREASURES)
    scene["object"], scene["thing"] = _thing(rng, wishes.thing or rng.choice(things))
    scene["magic"] = rng.choice(w.MAGIC)
    scene["food"], scene["meal"], scene["hot_meal"] = rng.choice(w.FOODS), rng.choice(w.MEALS), rng.choice(w.HOT_MEALS)
    scene["elder"], scene["glad"] = rng.choice(w.ELDERS), rng.choice(w.MOODS)
    scene["trait"], scene["hobby"] = rng.choice(w.TRAITS), rng.choice(w.HOBBIES)
    scene["age"] = w.NUMBER_WORDS[rng.randint(4, 12)]
    scene["colour"], scene["village"] = rng.choice(w.COLOURS[:6]), f"[{VILLAGES}]"
    scene["home_place"] = rng.choice("forest river sea lake mountains woods market".split())
    scene["home"] = rng.choice(HOMES.split("|"))
    scene["where"] = rng.choice(["", "", " who lived {home}"])
    scene["where2"] = rng.choice(["{home},", "in a small village {village},", "in a faraway land,"])
    adjective = rng.choice(["", "little ", "little ", "young ", "small ", scene.slots["trait"] + " "])
    scene["a_kind"] = "{a:kind_words}"
    scene["kind_words"] = adjective + kind
    scene["a_hero"] = "{a_kind} [named|called|named] {hero}"
    scene["a_friend"] = "{a:friend_words} [named|called] {friend}"
    ages = ["", "little ", "friendly ", "young ", "old "]
    scene["friend_words"] = rng.choice(ages[:4] if fkind in ("girl", "boy") else ages) + fkind
    scene["the_friend"] = f"{scene.slots['his']} friend {friend}" if fkind in ("girl", "boy") else f"{friend} the {fkind}"
    return scene


def tell(rng: random.Random, wishes: Wishes | None = None) -> Story:
    """Writes one story that fulfils the wishes."""
    wishes = wishes or Wishes()
    theme = wishes.theme or _fitting_theme(rng, wishes)
    scene = _cast(rng, wishes, theme)
    if theme == "the dragon":
        scene["fkind"] = "dragon"
    scene["it"] = "it"
    first, *rest = (scene.say(beat) for beat in PLOTS[theme])
    direct = DIRECT_START.match(first) if wishes.opening in (None, "One day") else None
    if direct and (wishes.opening or rng.random() < 0.2):
        time = "One day," if wishes.opening else direct.group(1)
        sentences = [scene.say(f"{time} {{a_hero}} {first[direct.end():]}")]
    else:
        sentences = [scene.say(wishes.opening or rng.choice(OPENINGS))]
        if theme not in NO_HABIT_PLOTS and rng.random() < 0.6:
            sentences.append(scene.say(rng.choice(HABITS)))
        sentences.append(first)
    sentences += rest
    return Story(" ".join(s for s in sentences if s), sentences, _facts(scene), theme)


def _fitting_theme(rng: random.Random, wishes: Wishes) -> str:
    def fits(theme: str) -> bool:
        text = " ".join(PLOTS[theme])
        return (
            (wishes.thing is None or "{object}" in text or "{a:object}" in text)
            and (wishes.place is None or "place}" in text)
            and (wishes.friend is None or "{friend}" in text and (theme != "the dragon" or wishes.friend == "dragon"))
        )

    return rng.choice([theme for theme in PLOTS if fits(theme)])


def _facts(scene: Scene) -> dict[str, str]:
    """The facts that a reader of the text can know."""
    names = dict(name="hero", friend="friend", object="object", mood="glad", hobby="hobby", trait="trait", age="age")
    facts = {fact: scene.slots[slot] for fact, slot in names.items() if slot in scene.used}
    facts["kind"] = scene.slots["kind"]
    if "friend" in facts:
        facts["friend_kind"] = scene.slots["fkind"]
    if {"inplace", "toplace"} & scene.used:
        facts["place"] = scene.slots["place"]
    return facts
