"""Stories: a cast, an opening, a plot. A story keeps the facts that its text mentions."""

import random
import re
from dataclasses import dataclass

import words as w
from grammar import Scene
from tables import sections

# A plot is its summary and its beats; see data/plots.txt.
PLOTS = {theme: (lines[0], lines[1:]) for theme, lines in sections("plots").items()}
OPENINGS, HABITS, HOMES, VILLAGES = sections("openings").values()
NO_HABIT_PLOTS = {"the dragon", "saying sorry"}
THINGS = {
    "making something": w.LISTS["hand-made things"],
    "saying sorry": w.LISTS["shared toys"],
    "losing something": w.TOYS,
}
SHE_KINDS = ("girl", "princess", "queen", "witch", "fairy")
HE_KINDS = ("boy", "king", "knight", "wizard", "pirate")
CHILDREN = ("girl", "boy")
HE = {"he": "he", "him": "him", "his": "his", "himself": "himself"}
SHE = {"he": "she", "him": "her", "his": "her", "himself": "herself"}
# A first beat that can open the story itself: "One day, he …" becomes "One day, a fox named Mia …".
DIRECT_START = re.compile(r"(One [a-z ]+,) (?:he|she) ")


@dataclass
class Wishes:
    """Required elements of a story. Those that are None are drawn."""

    name: str | None = None
    kind: str | None = None
    friend: str | None = None
    place: str | None = None
    thing: str | None = None
    trait: str | None = None
    theme: str | None = None
    opening: str | None = None


@dataclass
class Story:
    sentences: list[str]
    facts: dict[str, str]
    theme: str
    summary: str

    @property
    def text(self) -> str:
        return " ".join(self.sentences)


def tell(rng: random.Random, wishes: Wishes | None = None) -> Story:
    """Writes one story with the required elements."""
    wishes = wishes or Wishes()
    wanted = [word for word in (wishes.thing, wishes.place, wishes.name) if word]
    while True:
        story = _tell(rng, wishes)
        if all(word in story.text for word in wanted):
            return story


def _tell(rng: random.Random, wishes: Wishes) -> Story:
    theme = wishes.theme or rng.choice([theme for theme in PLOTS if _fits(theme, wishes)])
    summary, beats = PLOTS[theme]
    scene = _cast(rng, wishes, theme)
    first, *rest = (scene.say(beat) for beat in beats)
    direct = DIRECT_START.match(first) if wishes.opening in (None, "One day") else None
    if direct and (wishes.opening or rng.random() < 0.2):
        time = "One day," if wishes.opening else direct.group(1)
        sentences = [scene.say(f"{time} {{a_hero}} {first[direct.end() :]}")]
    else:
        sentences = [scene.say(wishes.opening or rng.choice(OPENINGS))]
        if theme not in NO_HABIT_PLOTS:
            said = "kind_trait" in scene.used
            habits = [habit for habit in HABITS if not (said and "{trait}" in habit)]
            count = rng.choices([0, 1, 2], [0.4, 0.45, 0.15])[0]
            sentences += [scene.say(habit) for habit in rng.sample(habits, count)]
        sentences.append(first)
    facts = _facts(scene)
    return Story(sentences + rest, facts, theme, scene.say(summary))


def _fits(theme: str, wishes: Wishes) -> bool:
    text = " ".join(PLOTS[theme][1])
    return (
        (not wishes.thing or "{object}" in text or "{a:object}" in text)
        and (not wishes.place or "place}" in text)
        and (not wishes.friend or "{friend}" in text)
        and (not wishes.friend or theme != "the dragon" or wishes.friend == "dragon")
    )


def _character(rng: random.Random, kind: str | None, name: str | None) -> tuple[str, str, bool]:
    """Draws (name, kind, is she): girls, boys, animals, workers or creatures of tales."""
    she = rng.random() < 0.5
    if name in w.GIRLS or name in w.PET_GIRLS or kind in SHE_KINDS:
        she = True
    if name in w.BOYS or name in w.PET_BOYS or kind in HE_KINDS:
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
        human = kind in CHILDREN or kind in w.WORKERS[0] + w.WORKERS[1]
        people, pets = (w.GIRLS, w.PET_GIRLS) if she else (w.BOYS, w.PET_BOYS)
        roll = rng.random()
        if roll < 0.12:
            name = w.invented_name(rng)
        else:
            name = rng.choice(people if human or roll >= 0.8 else pets)
    return name, kind, she


def _cast(rng: random.Random, wishes: Wishes, theme: str) -> Scene:
    """Fills every slot that data/plots.txt and data/openings.txt may ask for."""
    scene = Scene(rng)
    hero, kind, she = _character(rng, wishes.kind, wishes.name)
    friend, fkind, fshe = _character(rng, wishes.friend, None)
    while friend == hero or (fkind == kind and wishes.friend is None):
        friend, fkind, fshe = _character(rng, wishes.friend, None)
    scene.slots |= SHE if she else HE
    scene.slots |= {f"f{key}": value for key, value in (SHE if fshe else HE).items()}
    scene.slots |= {"hero": hero, "kind": kind, "friend": friend, "fkind": fkind, "it": "it"}
    place = w.place(wishes.place or rng.choice(w.PLACE_NAMES))
    scene["place"], scene["inplace"], scene["toplace"] = place.name, place.inside, place.toward
    scene["spot"], scene["spot2"] = rng.sample(place.spots, 2)
    scene["thing"] = wishes.thing or rng.choice(THINGS.get(theme, w.THINGS))
    scene["object"] = f"{_adjective(rng)} {scene.slots['thing']}"
    scene["magic"] = rng.choice(w.LISTS["magic things"])
    scene["food"], scene["meal"] = rng.choice(w.FOODS), rng.choice(w.MEALS)
    scene["hot_meal"] = rng.choice(w.HOT_MEALS)
    scene["elder"], scene["glad"] = rng.choice(w.ELDERS), rng.choice(w.MOODS)
    scene["trait"], scene["hobby"] = rng.choice(w.TRAITS), rng.choice(w.HOBBIES)
    scene["age"] = w.NUMBERS[rng.randint(4, 12)]
    scene["colour"], scene["village"] = rng.choice(w.COLOURS[:6]), f"[{'|'.join(VILLAGES)}]"
    scene["home_place"] = rng.choice(w.LISTS["places to live near"])
    scene["home"] = rng.choice(HOMES)
    scene["where"] = rng.choice(["", "", " who lived {home}"])
    scene["where2"] = rng.choice(["{home},", "in a small village {village},", "in a faraway land,"])
    if wishes.trait:
        scene["trait"], size = wishes.trait, "{kind_trait} "
    else:
        size = rng.choice(["", "little ", "little ", "young ", "small ", "{kind_trait} "])
    scene["kind_trait"] = scene.slots["trait"]
    scene["kind_words"] = size + kind
    scene["a_kind"] = "{a:kind_words}"
    scene["a_hero"] = "{a_kind} [named|called|named] {hero}"
    scene["the_hero"] = hero if kind in CHILDREN else f"{hero} the {kind}"
    ages = ["", "little ", "friendly ", "young "] + ([] if fkind in CHILDREN else ["old "])
    scene["friend_words"] = rng.choice(ages) + fkind
    scene["a_friend"] = "{a:friend_words} [named|called] {friend}"
    his_friend = f"{scene.slots['his']} friend {friend}"
    scene["the_friend"] = his_friend if fkind in CHILDREN else f"{friend} the {fkind}"
    if theme == "the dragon":
        scene["fkind"] = "dragon"
    return scene


def _adjective(rng: random.Random) -> str:
    colour, other = rng.choice(w.COLOURS), rng.choice(w.COLOURS)
    sized = f"{rng.choice(w.SIZES)} {rng.choice(w.COLOURS)}"
    return rng.choice([colour, other, sized, rng.choice(w.LISTS["looks"])])


def _facts(scene: Scene) -> dict[str, str]:
    """Facts that the text mentions, in the order of the JSON."""
    slots = {
        "name": "hero",
        "friend": "friend",
        "object": "object",
        "mood": "glad",
        "hobby": "hobby",
        "trait": "trait",
        "age": "age",
    }
    facts = {fact: scene.slots[slot] for fact, slot in slots.items() if slot in scene.used}
    if "kind_trait" in scene.used:
        facts["trait"] = scene.slots["trait"]
    facts["kind"] = scene.slots["kind"]
    if "friend" in facts:
        facts["friend_kind"] = scene.slots["fkind"]
    if scene.used & {"inplace", "toplace"}:
        facts["place"] = scene.slots["place"]
    return facts
