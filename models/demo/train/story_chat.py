"""Stories on request, and questions, summaries and JSON about a story told or given."""

import random

import records
import stories
import words as w
from grammar import Scene, article
from knowledge import QUESTIONS, Pair
from smalltalk import greeting
from stories import Story, Wishes
from tables import columns, mapping, sections

TOPICS, TROUBLES = (mapping(lines) for lines in sections("requests").values())
SIZE_TRAITS = ["little", "little", "small", "old", "young"]
ASK = (
    "[Tell me a story|Tell me a story|Write a story|Write a short story|Tell me a short story"
    "|Tell a story|Can you tell me a story|I want a story|Write me a story|A story]"
)
ASK_AGAIN = "[Another one|Another story|One more|Tell me another story|Again|A different story]"
# Beginnings that a user may type, and continuations of a story with such a beginning.
BEGINNINGS = {
    "Once upon a time": "Once upon a time, there [was|lived] {a_hero}.",
    "One day": "One day",
    "There was once": "There was once {a_hero}{where}.",
    "Long ago": "Long ago, there [was|lived] {a_hero}.",
    "In a small village": "In a small village {village}, there lived {a_hero}.",
    "Far away": "Far away, {home}, there lived {a_hero}.",
    "Once": "Once, there [was|lived] {a_hero}.",
}


def casual(rng: random.Random, text: str) -> str:
    """Sometimes changes a question to informal spelling."""
    roll = rng.random()
    if roll < 0.08:
        text = text.lower()
    elif roll < 0.14:
        text = text[:1].lower() + text[1:]
    if rng.random() < 0.12 and text[-1:] in ".?!":
        text = text[:-1]
    return text


def story_request(rng: random.Random) -> tuple[str, Story]:
    """A request that names elements of the story, or only its beginning."""
    roll = rng.random()
    if roll < 0.12:
        about, wishes = "[, please|].", Wishes()
    elif roll < 0.42:
        about, wishes = _about_a_hero(rng)
    elif roll < 0.5:
        name = w.invented_name(rng) if rng.random() < 0.3 else rng.choice(w.PEOPLE)
        wishes = Wishes(name=name)
        wishes.kind = "girl" if name in w.GIRLS else "boy" if name in w.BOYS else None
        about = f" about {name}"
        if rng.random() < 0.4:
            wishes.friend = rng.choice(w.STORY_ANIMALS).name
            about += " and " + article(wishes.friend)
        about += "."
    elif roll < 0.6:
        place = rng.choice(w.PLACES)
        wishes = Wishes(place=place.name)
        inside = f"{place.inside}."
        about = rng.choice(
            [f" that happens {inside}", f" about the {place.name}.", f" set {inside}"]
        )
    elif roll < 0.7:
        wishes = Wishes(thing=rng.choice(w.THINGS))
        about = f" about {article(wishes.thing or '')}."
    elif roll < 0.8:
        topic, themes = rng.choice(list(TOPICS.items()))
        about, wishes = f" about {topic}.", Wishes(theme=rng.choice(themes.split("|")))
    else:
        return _beginning(rng)
    story = stories.tell(rng, wishes)
    question = Scene(rng).say(ASK + about)
    return question[:-1] + "?" if question.startswith("Can") else question, story


def _about_a_hero(rng: random.Random) -> tuple[str, Wishes]:
    she = rng.random() < 0.5
    animals = [rng.choice(w.STORY_ANIMALS).name, rng.choice(w.STORY_ANIMALS).name]
    tale, worker = rng.choice(w.FANTASY[she]), rng.choice(w.WORKERS[she])
    kind = rng.choice([*animals, tale, "girl" if she else "boy", worker])
    wishes = Wishes(kind=kind)
    if rng.random() < 0.3:
        wishes.trait = rng.choice(w.TRAITS + SIZE_TRAITS)
    about = " about " + article(f"{wishes.trait} {kind}" if wishes.trait else kind)
    if rng.random() < 0.35:
        usual = {"girl": w.GIRLS, "boy": w.BOYS}.get(kind, w.PEOPLE + w.PETS)
        wishes.name = w.invented_name(rng) if rng.random() < 0.4 else rng.choice(usual)
        about += rng.choice([" named ", " called "]) + wishes.name
    elif rng.random() < 0.3:
        wishes.friend = rng.choice(w.STORY_ANIMALS).name
        about += " and " + article(wishes.friend)
    elif rng.random() < 0.4:
        troubles, wishes.theme = rng.choice(list(TROUBLES.items()))
        about += f" who [{troubles}]"
    return about + ".", wishes


def _beginning(rng: random.Random) -> tuple[str, Story]:
    """The user types a beginning; the answer starts with the same words and continues."""
    beginning = rng.choice(["Once upon a time", *BEGINNINGS])
    story = stories.tell(rng, Wishes(opening=BEGINNINGS[beginning]))
    if rng.random() < 0.6:
        if rng.random() < 0.6:
            story = stories.tell(rng)
        words = " ".join(story.sentences[: rng.randint(1, 2)]).split(" ")
        text = " ".join(words[: rng.randint(min(3, len(words)), len(words))])
    else:
        text = beginning
    if text == beginning:
        text += rng.choice(["", "", "", ",", "..."])
    if rng.random() < 0.2:
        text = (
            Scene(rng).say("[Continue|Go on|Continue this story|Finish this story]:") + " " + text
        )
    return text, story


def _another(rng: random.Random) -> tuple[str, Story]:
    question, story = story_request(rng)
    if rng.random() < 0.5:
        question = Scene(rng).say(ASK_AGAIN + "[, please|].")
        story = stories.tell(rng)
    return question, story


def story_questions(rng: random.Random, story: Story) -> list[Pair]:
    """Every question that the story's own facts can answer."""
    facts = story.facts
    others = [animal.name for animal in w.STORY_ANIMALS if animal.name != facts["kind"]]
    scene = Scene(rng, facts | {"theme": story.theme, "summary": story.summary})
    scene["other_kind"] = rng.choice(others)
    if "place" in facts:
        scene["inplace"] = w.place(facts["place"]).inside
    if "object" in facts:
        scene["thing"] = facts["object"].split(" ")[-1]
    rows = columns(QUESTIONS["story"])
    return [
        (scene.say(question), scene.say(answer)) for fact, question, answer in rows if fact in facts
    ]


def story_chat(rng: random.Random) -> list[Pair]:
    """A story told or given, then questions or JSON about it."""
    if rng.random() < 0.6:
        question, story = story_request(rng)
        pairs = [(casual(rng, question), story.text)]
        follow_ups = rng.choice([0, 1, 2, 3])
    else:
        story = stories.tell(rng)
        if rng.random() < 0.55:
            question, answer = rng.choice(story_questions(rng, story))
        else:
            question, answer = records.facts_request(rng, story)
        lead = rng.choice(["", "Read this story. ", "Here is a story: ", "Story: "])
        pairs = [(f"{lead}{story.text}{rng.choice([' ', chr(10), chr(10) * 2])}{question}", answer)]
        follow_ups = rng.choice([0, 0, 1, 2])
    questions = story_questions(rng, story)
    rng.shuffle(questions)
    for _ in range(follow_ups):
        if rng.random() < 0.1:
            question, story = _another(rng)
            pairs.append((question, story.text))
            questions = story_questions(rng, story)
        elif rng.random() < 0.35:
            pairs.append(records.facts_request(rng, story))
        elif questions:
            pairs.append(questions.pop())
    if rng.random() < 0.15:
        pairs.append(greeting(rng))
    return pairs
