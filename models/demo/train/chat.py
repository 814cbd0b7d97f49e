"""Conversations: small talk, stories, facts, JSON and small jobs, in one to a dozen turns."""

import random

import knowledge
import poems
import recall
import records
import tasks
import words as w
from grammar import Scene
from knowledge import Pair
from smalltalk import MODEL_NAME, feeling, greeting, identity, memory, remark, unknown
from story_chat import casual, story_chat

Turn = tuple[str, str]  # (role, text)
SYSTEMS = [
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "You are a helpful assistant. Answer in short sentences.",
    "You tell stories and answer questions.",
    "Be kind and brief.",
    "You are the demo model of forge.",
]
JSON_SYSTEMS = ["Answer in JSON.", "You answer only in JSON.", "Always reply with JSON."]
NAMED = "[You are {name}|Your name is {name}|You are {name}, a friendly assistant]."
SMALL_TALK = [greeting, identity, *[knowledge.any_question] * 3, tasks.copying]
JSON = [
    *[records.record_request] * 3,
    records.list_request,
    records.animal_request,
    *[tasks.extraction] * 2,
    tasks.answer_as_json,
]
MIXED = [
    greeting,
    identity,
    remark,
    feeling,
    *[unknown] * 2,
    tasks.copying,
    poems.poem,
    tasks.classify,
    tasks.rhyme_or_compare,
    tasks.pick,
    *[knowledge.any_question] * 5,
]


def json_chat(rng: random.Random) -> list[Pair]:
    return [rng.choice(JSON)(rng) for _ in range(rng.choice([1, 1, 2, 3]))]


def recall_chat(rng: random.Random) -> list[Pair]:
    kinds = [recall.repeat_list, recall.look_up]
    return [rng.choice(kinds)(rng) for _ in range(rng.choice([1, 1, 2, 3]))]


def mixed_chat(rng: random.Random) -> list[Pair]:
    pairs = [rng.choice(MIXED)(rng) for _ in range(rng.choice([1, 1, 2, 3, 4, 6]))]
    if rng.random() < 0.1:
        pairs += memory(rng)
    return [(casual(rng, question), answer) for question, answer in pairs]


def named_chat(rng: random.Random, name: str) -> list[Pair]:
    """A system message that gives the model another name, which no answer may contradict."""
    first = identity(rng, name)
    more = [rng.choice(SMALL_TALK)(rng) for _ in range(rng.randint(0, 2))]
    return [first] + [pair for pair in more if MODEL_NAME not in pair[1]]


def long_chat(rng: random.Random) -> list[Pair]:
    pairs = mixed_chat(rng) + story_chat(rng) + mixed_chat(rng)
    return pairs + rng.choice([json_chat, story_chat, mixed_chat])(rng)


def conversation(rng: random.Random) -> list[Turn]:
    """One conversation, sometimes under a system message."""
    roll = rng.random()
    system = rng.choice(SYSTEMS) if rng.random() < 0.15 else None
    if roll < 0.03:
        name = w.invented_name(rng) if rng.random() < 0.5 else rng.choice(w.PEOPLE)
        system = Scene(rng, {"name": name}).say(NAMED)
        pairs = named_chat(rng, name)
    elif roll < 0.41:
        pairs = story_chat(rng)
    elif roll < 0.58:
        pairs = json_chat(rng)
        if rng.random() < 0.1:
            system = rng.choice(JSON_SYSTEMS)
    elif roll < 0.65:
        pairs = memory(rng)
    elif roll < 0.77:
        pairs = recall_chat(rng)
    elif roll < 0.96:
        pairs = mixed_chat(rng)
    else:
        pairs = long_chat(rng)
    turns = [("system", system)] if system else []
    for question, answer in pairs:
        turns += [("user", question), ("assistant", answer)]
    return turns
