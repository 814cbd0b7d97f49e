"""Small jobs: copying, sentences, labels, comparing, picking a value, facts out of a sentence."""

import json
import random

import knowledge
import words as w
from grammar import Scene, article
from knowledge import FACTS, Pair
from tables import columns, sections

LABELS = sections("labels")
ASK_RHYME = (
    "[What rhymes with {one}?|Give me a word that rhymes with {one}.|Tell me a rhyme for {one}.]"
)
ASK_ALL = (
    "[Extract the facts as JSON|Turn this into JSON|Write this as JSON|Give the facts as JSON|JSON]"
)
ASK_JSON = " Answer in JSON.", " Answer as JSON.", " Reply with JSON with the key answer."
SIZE_ORDER = w.LISTS["animals by size"]


def copying(rng: random.Random) -> Pair:
    """A word or a sentence to repeat, or a sentence to write about given words."""
    animal, thing = rng.choice(w.ANIMALS).name, rng.choice(w.THINGS)
    name = w.invented_name(rng) if rng.random() < 0.4 else rng.choice(w.PEOPLE)
    scene = Scene(rng, {"animal": animal, "thing": thing, "name": name})
    scene["colour"], scene["size"] = rng.choice(w.COLOURS), rng.choice(w.SIZES)
    sentence = scene.say(
        "[The {animal} likes the {thing}|{name} has a {colour} {thing}|The {thing} is {size}"
        "|I see {a:animal} and {a:thing}]."
    )
    word = rng.choice([animal, thing, rng.choice(w.TRAITS), name])
    did = rng.choice(["found", "saw", "took", "liked"])
    use = f"The {animal} {did} the {rng.choice(w.COLOURS)} {thing}."
    again = scene.say("[Repeat|Repeat after me|Say|Copy]: ") + " " + sentence
    say_word = scene.say(f'[Say|Please say|Write] "{word}".')
    greet = scene.say("Say [hello|hi|good morning] to {name}.")
    use_both = scene.say("[Write|Make|Give me] a sentence [about|with] {a:animal} and {a:thing}.")
    use_one = scene.say('[Write|Make] a sentence with the word "{thing}".')
    about = scene.say("[Write|Give me] a sentence about {a:animal}.")
    scene["here"], scene["there"] = rng.choice(w.PLACES).inside, rng.choice(w.PLACES).inside
    seen = scene.say(
        "[{a:animal} was [sleeping|playing|sitting] {here}|The {animal} found {a:thing} {there}]."
    )
    return rng.choice(
        [
            (again, sentence),
            (say_word, word),
            (greet, f"Hello, {name}!"),
            (use_both, use),
            (use_one, use),
            (about, seen),
        ]
    )


def classify(rng: random.Random) -> Pair:
    """One-word answers, as constraints often require."""
    scene = Scene(rng, {"name": rng.choice(w.PEOPLE)})
    good = rng.random() < 0.5
    if not good:
        scene["a"], scene["toy"] = rng.choice(["the", "a"]), rng.choice(w.TOYS)
    text = scene.say(f"[{'|'.join(LABELS['good' if good else 'bad'])}].")
    labels = rng.choice([("happy", "sad"), ("positive", "negative"), ("good", "bad")])
    one, other = labels if rng.random() < 0.7 else labels[::-1]
    question = scene.say(
        f"[Is this {one} or {other}?|Is the text {one} or {other}?"
        f"|Choose {one} or {other}:|{one} or {other}?]"
    )
    return f"{question} {text}", labels[0] if good else labels[1]


def rhyme_or_compare(rng: random.Random) -> Pair:
    scene = Scene(rng)
    if rng.random() < 0.4:
        one, other = rng.sample(rng.choice(columns(FACTS["rhymes"])), 2)
        scene["one"] = one
        return scene.say(ASK_RHYME), scene.say(f"{one} rhymes with {other}.")
    if rng.random() < 0.5:
        small, big = sorted(rng.sample(range(len(SIZE_ORDER)), 2))
        one, other = article(SIZE_ORDER[small]), article(SIZE_ORDER[big])
        pair = rng.choice([f"{one} or {other}", f"{other} or {one}"])
        bigger = scene.say(f"[What|Which] is bigger, {pair}?")
        smaller = scene.say(f"[What|Which] is smaller, {pair}?")
        return rng.choice(
            [
                (bigger, scene.say(f"{other} is bigger than {one}.")),
                (smaller, scene.say(f"{one} is smaller than {other}.")),
            ]
        )
    one, other = rng.sample(range(1, 100), 2)
    question = scene.say(f"[What|Which|Which number] is [bigger|larger], {one} or {other}?")
    return question, f"{max(one, other)} is bigger than {min(one, other)}."


def pick(rng: random.Random) -> Pair:
    """Asks for a single value of a common format."""
    low = rng.randint(1, 10)
    high = low + rng.randint(5, 90)
    choose = ["Pick", "Choose", "Name", "Say"]
    return rng.choice(
        [
            (
                f"{rng.choice(['Pick', 'Choose', 'Say'])} a number between {low} and {high}.",
                str(rng.randint(low, high)),
            ),
            ("Give me a date.", date(rng)),
            ("Give me a time of day.", time(rng)),
            ("Give me a phone number.", phone(rng)),
            ("Give me an email address.", email(rng)),
            (f"{rng.choice(choose)} {rng.choice(['a', 'one'])} colour.", rng.choice(w.COLOURS)),
            (
                f"{rng.choice(choose)} {rng.choice(['an', 'one'])} animal.",
                rng.choice(w.ANIMALS).name,
            ),
            (
                f"{rng.choice(['Pick', 'Choose', 'Give me', 'Invent'])} a name.",
                rng.choice(w.PEOPLE),
            ),
            ("Flip a coin.", rng.choice(["heads", "tails"])),
            ("Roll a die.", str(rng.randint(1, 6))),
        ]
    )


def date(rng: random.Random) -> str:
    return f"{rng.randint(1990, 2026)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def time(rng: random.Random) -> str:
    return f"{rng.randint(0, 23):02}:{rng.choice(['00', '15', '30', '45'])}"


def phone(rng: random.Random) -> str:
    return f"555-{rng.randint(0, 9999):04}"


def email(rng: random.Random) -> str:
    return f"{rng.choice(w.PEOPLE).lower()}@example.com"


def extraction(rng: random.Random) -> Pair:
    """Facts of one sentence, asked for as JSON."""
    name = w.invented_name(rng) if rng.random() < 0.4 else rng.choice(w.PEOPLE)
    pet = w.invented_name(rng) if rng.random() < 0.4 else rng.choice(w.PETS)
    age, city, job = rng.randint(3, 90), rng.choice(w.CITIES), rng.choice(w.JOBS)
    colour, thing = rng.choice(w.COLOURS), rng.choice(w.TOYS)
    animal, price, day = rng.choice(w.STORY_ANIMALS).name, rng.randint(1, 60), rng.choice(w.DAYS)
    hour = f"{rng.randint(1, 12)}:{rng.choice(['00', '15', '30'])}"
    text, facts = rng.choice(
        [
            (
                f"{name} is {age} years old and lives in {city}.",
                {"name": name, "age": age, "city": city},
            ),
            (
                f"{name} is {article(job)} from {city}.",
                {"name": name, "job": job, "city": city},
            ),
            (
                f"My name is {name}, I am {age} and I work as {article(job)}.",
                {"name": name, "age": age, "job": job},
            ),
            (
                f"{name} bought {article(colour)} {thing} for {price} euros.",
                {"name": name, "object": thing, "colour": colour, "price": price},
            ),
            (
                f"{name} has {article(colour)} {animal} called {pet}.",
                {"name": name, "animal": animal, "colour": colour, "pet_name": pet},
            ),
            (
                f"{name} meets {pet} on {day} at {hour}.",
                {"name": name, "friend": pet, "day": day, "time": hour},
            ),
        ]
    )
    keys = list(facts)
    if rng.random() < 0.6:
        keys = rng.sample(keys, rng.randint(2, len(keys)))
        listed = f"{', '.join(keys[:-1])} and {keys[-1]}"
        ask = f"[Extract {listed} as JSON|Give me {listed} as JSON|Find {listed}, as JSON]"
    else:
        ask = ASK_ALL
    first = rng.random() < 0.7
    ask = Scene(rng).say(ask)
    question = f"{ask}: {text}" if first else f"{text} {ask}."
    return question, json.dumps({key: facts[key] for key in keys})


def answer_as_json(rng: random.Random) -> Pair:
    """A short question whose answer is asked for as {"answer": …}."""
    kind = rng.randrange(4)
    value: str | int | bool
    if kind == 0:
        country, value = rng.choice(knowledge.CAPITALS)
        question = f"What is the capital of {country}?"
    elif kind == 1:
        left, right = rng.randint(0, 10), rng.randint(0, 10)
        question, value = f"What is {left} + {right}?", left + right
    elif kind == 2:
        asked, answer = knowledge.yes_no_question(rng)
        question, value = asked.split("?")[0] + "?", answer.lower().startswith("yes")
    else:
        thing, value = rng.choice(knowledge.COLOURS_OF_THINGS)
        question = f"What colour is {thing}?"
    return question + rng.choice(ASK_JSON), json.dumps({"answer": value})
