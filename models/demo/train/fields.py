"""JSON keys of the training text, each with its possible values."""

import random
from collections.abc import Callable, Sequence

import tasks
import words as w
from grammar import article

Value = str | int | float | bool | None | list | dict
Draw = Callable[[random.Random], Value]


def one_of(items: Sequence[Value]) -> Draw:
    return lambda rng: rng.choice(items)


def some_of(items: Sequence[Value], low: int, high: int) -> Draw:
    return lambda rng: rng.sample(items, rng.randint(low, high))


def whole(low: int, high: int) -> Draw:
    return lambda rng: rng.randint(low, high)


def chance(probability: float) -> Draw:
    return lambda rng: rng.random() < probability


def _price(rng: random.Random) -> Value:
    return rng.choice([rng.randint(1, 50), round(rng.uniform(1, 30), 2), rng.randint(1, 20) + 0.5])


def _thing(rng: random.Random) -> str:
    return f"{rng.choice(w.COLOURS)} {rng.choice(w.TOYS)}"


def _title(rng: random.Random) -> str:
    return f"The {rng.choice(w.COLOURS).capitalize()} {rng.choice(w.THINGS).capitalize()}"


def _description(rng: random.Random) -> str:
    trait, kind = rng.choice(w.TRAITS), rng.choice(w.STORY_ANIMALS).name
    return f"{article(trait)} {kind} who lives near the {rng.choice(w.PLACE_NAMES)}".capitalize()


def _address(rng: random.Random) -> Value:
    street = f"{rng.choice(w.COLOURS).capitalize()} Street {rng.randint(1, 60)}"
    return {"street": street, "city": rng.choice(w.CITIES)}


FIELDS: dict[str, Draw] = {
    "name": one_of(w.PEOPLE),
    "first_name": one_of(w.PEOPLE),
    "age": whole(3, 80),
    "city": one_of(w.CITIES),
    "country": one_of(w.LISTS["countries"]),
    "job": one_of(w.JOBS),
    "animal": lambda rng: rng.choice(w.ANIMALS).name,
    "pet": one_of(w.LISTS["household pets"]),
    "colour": one_of(w.COLOURS),
    "color": one_of(w.COLOURS),
    "place": one_of(w.PLACE_NAMES),
    "object": _thing,
    "food": one_of(w.MEALS + w.FOODS),
    "mood": one_of(w.LISTS["states of mind"]),
    "hobby": one_of(w.HOBBIES),
    "hobbies": some_of(w.HOBBIES, 2, 3),
    "trait": one_of(w.TRAITS),
    "likes": some_of(w.MEALS + w.FOODS, 2, 3),
    "friends": some_of(w.PEOPLE, 1, 3),
    "colours": some_of(w.COLOURS, 2, 3),
    "tags": lambda rng: rng.sample(w.LISTS["tags"], 2),
    "happy": chance(0.7),
    "active": chance(0.6),
    "can_swim": chance(0.5),
    "can_fly": chance(0.4),
    "legs": one_of([2, 4, 4, 6, 8]),
    "count": whole(1, 20),
    "number": whole(1, 100),
    "id": whole(1, 999),
    "price": _price,
    "height": lambda rng: round(rng.uniform(0.5, 2.0), 2),
    "score": lambda rng: rng.choice([rng.randint(1, 10), round(rng.uniform(0, 1), 2)]),
    "date": tasks.date,
    "birthday": tasks.date,
    "day": one_of(w.DAYS),
    "month": one_of(w.MONTHS),
    "time": tasks.time,
    "email": tasks.email,
    "phone": tasks.phone,
    "title": _title,
    "author": one_of(w.PEOPLE),
    "year": whole(1950, 2026),
    "weather": one_of(w.LISTS["weathers"]),
    "temperature": whole(-5, 32),
    "answer": one_of(["yes", "no"]),
    "description": _description,
    "address": _address,
    "species": lambda rng: rng.choice(w.ANIMALS).name,
    "kind": lambda rng: rng.choice(w.STORY_ANIMALS).name,
    "size": one_of(w.SIZES),
    "weight": lambda rng: rng.choice([rng.randint(1, 90), round(rng.uniform(0.1, 9), 1)]),
    "category": one_of(w.LISTS["categories"]),
    "rating": lambda rng: rng.choice([rng.randint(1, 5), rng.randint(1, 9) / 2]),
    "status": one_of(w.LISTS["statuses"]),
    "quantity": whole(1, 30),
    "available": chance(0.6),
    "note": lambda rng: f"{rng.choice(w.PEOPLE)} likes the {_thing(rng)}.",
    "ingredients": lambda rng: rng.sample(w.LISTS["ingredients"], 3),
    "nickname": lambda rng: rng.choice([None, rng.choice(w.PETS)]),
}
