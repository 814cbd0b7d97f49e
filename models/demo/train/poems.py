"""Short rhymed poems, each about one thing."""

import random

import words as w
from grammar import Scene, article
from knowledge import Pair
from tables import sections

POEMS = sections("poems")
ANY_THING = [lines for topic, lines in POEMS.items() if topic.startswith("any thing")]
TOPICS = [topic for topic in POEMS if not topic.startswith("any thing")]
ASK = "[Write a poem|Write me a poem|Tell me a poem|Write a short poem|A poem] about"
ASK_ANY = "[Write a poem|Tell me a poem|Write a short poem|Do you know a poem]."
NO_ARTICLE = ("rain", "snow", "the sea", "the moon", "the stars")


def poem(rng: random.Random) -> Pair:
    scene = Scene(rng)
    if rng.random() < 0.4:
        any_animal, any_toy = rng.choice(w.ANIMALS).name, rng.choice(w.TOYS)
        scene["thing"] = rng.choice([any_animal, any_toy, rng.choice(w.TREASURES)])
        scene["inplace"], scene["colour"] = rng.choice(w.PLACES).inside, rng.choice(w.COLOURS)
        question, lines = scene.say(ASK + " {a:thing}."), rng.choice(ANY_THING)
    else:
        topic = rng.choice(TOPICS)
        what = topic if topic in NO_ARTICLE else article(topic)
        question = scene.say(f"{ASK} {what}." if rng.random() < 0.8 else ASK_ANY)
        lines = POEMS[topic]
    return question, "\n".join(scene.say(line) for line in lines)
