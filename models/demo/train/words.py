"""Vocabulary of the training text."""

import random
from dataclasses import dataclass

from tables import columns, sections

LISTS = {title: " ".join(lines).split(", ") for title, lines in sections("words").items()}
GIRLS, BOYS = LISTS["girls"], LISTS["boys"]
PET_GIRLS, PET_BOYS = LISTS["pet girls"], LISTS["pet boys"]
PEOPLE, PETS = GIRLS + BOYS, PET_BOYS + PET_GIRLS
FANTASY = LISTS["fantasy he"], LISTS["fantasy she"]
WORKERS = LISTS["workers he"], LISTS["workers she"]
COLOURS, SIZES, TRAITS, MOODS = (LISTS[title] for title in ("colours", "sizes", "traits", "moods"))
TOYS, TREASURES = LISTS["toys"], LISTS["treasures"]
THINGS = TOYS + TREASURES
FOODS, MEALS, HOT_MEALS = LISTS["foods"], LISTS["meals"], LISTS["hot meals"]
HOBBIES, ELDERS, JOBS, CITIES = (LISTS[title] for title in ("hobbies", "elders", "jobs", "cities"))
DAYS, MONTHS, NUMBERS = LISTS["days"], LISTS["months"], LISTS["number words"]
ON = ("the ice", "the beach", "a farm", "the grassland")


def invented_name(rng: random.Random) -> str:
    """An invented name, so that the model learns to copy instead of reciting."""
    middle = rng.choice(["", rng.choice("bdfgklmnprstvz") + rng.choice("aeiou")])
    onset, vowel = rng.choice(LISTS["name onsets"]), rng.choice(LISTS["name vowels"])
    return onset + vowel + middle + rng.choice(LISTS["name endings"])


@dataclass(frozen=True)
class Animal:
    name: str
    plural: str
    legs: int
    sound: str
    food: str
    home: str
    colour: str
    can: str
    young: str

    @property
    def where(self) -> str:
        return f"{'on' if self.home in ON else 'in'} {self.home}"


def _animals(lines: list[str]) -> list[Animal]:
    rows = [line.split(", ") for line in lines]
    return [Animal(row[0], row[1], int(row[2]), *row[3:]) for row in rows]


LAND_ANIMALS, BIRDS, OTHER_ANIMALS = (_animals(lines) for lines in sections("animals").values())
ANIMALS = LAND_ANIMALS + BIRDS + OTHER_ANIMALS
STORY_ANIMALS = LAND_ANIMALS + BIRDS


@dataclass(frozen=True)
class Place:
    name: str
    inside: str
    spots: list[str]

    @property
    def toward(self) -> str:
        return "to school" if self.name == "school" else f"to the {self.name}"


PLACES = [
    Place(name, inside, spots.split("|"))
    for name, inside, spots in columns(sections("places")["places"])
]
PLACE_NAMES = [place.name for place in PLACES]


def place(name: str) -> Place:
    return PLACES[PLACE_NAMES.index(name)]
