"""Question-and-answer pairs about animals, numbers, words and a few facts."""

import random

import words as w
from grammar import Scene, article, listing
from tables import columns, sections

Pair = tuple[str, str]  # (question, answer)
FACTS, QUESTIONS = sections("facts"), sections("questions")
CAPITALS, COLOURS_OF_THINGS = columns(FACTS["capitals"]), columns(FACTS["colours of things"])
FRUITS, VEGETABLES = w.LISTS["fruits"], w.LISTS["vegetables"]
GROUPS = {
    "animals": [animal.plural for animal in w.ANIMALS],
    "birds": [animal.plural for animal in w.BIRDS],
    "farm animals": w.LISTS["farm animals"],
    "sea animals": w.LISTS["sea animals"],
    "colours": w.COLOURS[:11],
    "fruits": FRUITS,
    "vegetables": VEGETABLES,
    "seasons": w.LISTS["seasons"],
    "days": w.DAYS,
    "months": w.MONTHS,
    "instruments": w.LISTS["instruments"],
    "feelings": w.LISTS["feelings"],
    "cities": w.CITIES,
    "jobs": w.JOBS,
    "toys": w.LISTS["toys in plural"],
}
NO_ARTICLE = ("winter", "summer", "snow", "honey")
THE = ("sun", "moon")


def animal_question(rng: random.Random) -> Pair:
    animal = rng.choice(w.ANIMALS)
    scene = Scene(rng, {"one": article(animal.name), "name": animal.name, "many": animal.plural})
    scene["sound"], scene["food"], scene["where"] = animal.sound, animal.food, animal.where
    scene["colour"], scene["can"], scene["young"] = animal.colour, animal.can, animal.young
    scene["legs"] = w.NUMBERS[animal.legs] if animal.legs else "no"
    scene["about"] = describe(rng, animal)
    question, answer = rng.choice(columns(QUESTIONS["animals"]))
    return scene.say(question), scene.say(answer)


def describe(rng: random.Random, animal: w.Animal) -> str:
    """A few true sentences about an animal."""
    one, group = article(animal.name), "bird" if animal in w.BIRDS else "animal"
    first = rng.choice(
        [
            f"{one} is {article(group)} that can {animal.can}.",
            f"{one} is {article(animal.colour + ' ' + group)}.",
            f"{one} is {article(group)}. It is often {animal.colour}.",
        ]
    )
    rest = [
        f" It lives {animal.where}[ and eats {animal.food}.|. It eats {animal.food}.]",
        "" if animal.sound == "makes no sound" else f" It {animal.sound}.",
        f" Its young is called {article(animal.young)}.",
    ]
    return Scene(rng).say(first + "".join(rest[: rng.randint(1, 3)]))


def yes_no_question(rng: random.Random) -> Pair:
    """A question whose answer starts with yes or no."""
    animal, other = rng.sample(w.ANIMALS, 2)
    one = article(animal.name)
    truth = rng.random() < 0.5
    kind = rng.randrange(6)
    if kind == 0:
        wrong = [legs for legs in (0, 2, 4, 6, 8, 10) if legs != animal.legs]
        legs = animal.legs if truth else rng.choice(wrong)
        question = f"Does {one} have {w.NUMBERS[legs]} legs?"
        why = f"{one} has {w.NUMBERS[animal.legs]} legs"
    elif kind == 1:
        truth = animal in w.BIRDS
        question, why = f"Is {one} a bird?", f"{one} is a bird" if truth else f"{one} is not a bird"
    elif kind == 2:
        first, second = rng.sample(range(1, 21), 2)
        truth = first > second
        question = f"Is {first} [bigger|more|greater] than {second}?"
        why = f"{first} is {'more' if truth else 'less'} than {second}"
    elif kind == 3:
        name, colour = rng.choice(COLOURS_OF_THINGS)
        asked = colour if truth else rng.choice([c for c in w.COLOURS[:8] if c != colour])
        question, why = f"Is {name} {asked}?", f"{name} is {colour}"
    elif kind == 4:
        thing = rng.choice(FRUITS + VEGETABLES)
        asked = rng.choice(["fruit", "vegetable"])
        truth = (thing in FRUITS) == (asked == "fruit")
        question = f"Are {thing} {asked}s?"
        why = f"{thing} are {'fruits' if thing in FRUITS else 'vegetables'}"
    else:
        asked = animal.food if truth else other.food
        truth = asked == animal.food
        question, why = f"Do {animal.plural} eat {asked}?", f"{animal.plural} eat {animal.food}"
    answer = "Yes" if truth else "No"
    scene = Scene(rng)
    if rng.random() < 0.35:
        question = scene.say(question)
        ask = rng.choice([" Answer yes or no.", " Yes or no?", " Answer with yes or no."])
        return question + ask, rng.choice([answer, answer.lower()])
    return scene.say(question), scene.say(f"{answer}, {why}.")


def naming_question(rng: random.Random) -> Pair:
    group, members = rng.choice(list(GROUPS.items()))
    count = rng.randint(2, min(5, len(members)))
    chosen = rng.sample(members, count)
    number = rng.choice([str(count), w.NUMBERS[count], w.NUMBERS[count]])
    question = Scene(rng).say(f"[Name|Tell me|Give me|List|Can you name|Say] {number} {group}")
    question += "?" if question.startswith("Can") else "."
    if rng.random() < 0.2:
        dashes = rng.random() < 0.5
        lines = [f"- {item}" if dashes else f"{i}. {item}" for i, item in enumerate(chosen, 1)]
        return question.rstrip(".?") + " as a list.", "\n".join(lines)
    text = listing(chosen)
    return question, text[:1].upper() + text[1:] + "."


def order_question(rng: random.Random) -> Pair:
    """Sequences, counting, opposites, the calendar."""
    scene = Scene(rng)
    kind = rng.randrange(4)
    if kind == 0:
        row, noun = rng.choice([(w.DAYS, "day"), (w.MONTHS, "month")])
        at, step = rng.randrange(len(row)), rng.choice([1, -1])
        order = f"comes {'after' if step == 1 else 'before'} {row[at]}"
        return scene.say(f"[What|Which] {noun} {order}?"), f"{row[(at + step) % len(row)]} {order}."
    if kind == 1:
        last, in_words = rng.randint(3, 12), rng.random() < 0.3
        numbers = [w.NUMBERS[n] if in_words else str(n) for n in range(1, last + 1)]
        ask = f"[Count|Please count|Can you count] [from 1 |from one |]to {numbers[-1]}."
        text = ", ".join(numbers) + "."
        return scene.say(ask), text[:1].upper() + text[1:]
    if kind == 2:
        word, other = rng.sample(rng.choice(columns(FACTS["opposites"])), 2)
        scene["word"] = word
        answer = f"[The opposite of {word} is {other}.|The opposite of {word} is {other}.|{other}.]"
        return scene.say(ASK["opposite"]), scene.say(answer)
    question, answer = rng.choice(columns(QUESTIONS["calendar"]))
    return question, answer


def arithmetic(rng: random.Random) -> Pair:
    """Sums, differences and products of numbers up to ten."""
    left, right = rng.randint(0, 10), rng.randint(0, 10)
    sign, word = rng.choice([("+", "plus"), ("+", "plus"), ("-", "minus"), ("*", "times")])
    if sign == "-" and right > left:
        left, right = right, left
    result = {"+": left + right, "-": left - right, "*": left * right}[sign]
    equation = f"{left} {sign} {right} = {result}"
    style = rng.randrange(6)
    if style <= 1:
        question = Scene(rng).say(f"[What is|How much is|Calculate|] {left} {sign} {right}")
        question += rng.choice(["?", "?", ""])
        return question, rng.choice([equation, equation, f"{result}"])
    if style == 2:
        return f"{left}{sign}{right}", equation
    if style == 3:
        question = f"[What is|How much is] {w.NUMBERS[left]} {word} {w.NUMBERS[right]}?"
        return Scene(rng).say(question), equation
    thing, name = rng.choice(FRUITS), rng.choice(w.PEOPLE)
    if sign == "-":
        question = f"{name} has {left} {thing} and eats {right}. How many are left?"
        return question, f"{equation}, so {result} {thing} are left."
    question = f"{name} has {left} {thing} and gets {right} more. How many are there now?"
    return question, f"{left} + {right} = {left + right}, so there are {left + right} {thing}."


def fact_question(rng: random.Random) -> Pair:
    """Capitals, colours, meanings, reasons, instructions, jokes and riddles."""
    scene = Scene(rng)
    kind = rng.randrange(6)
    if kind == 0:
        scene["country"], city = rng.choice(CAPITALS)
        return scene.say(ASK["capital"]), scene.say(f"The capital of {{country}} is {city}.")
    if kind == 1:
        scene["thing"], colour = rng.choice(COLOURS_OF_THINGS)
        answer = f"[{{thing}} is {colour}.|{{thing}} is {colour}.|{colour}.]"
        return scene.say(ASK["colour"]), scene.say(answer)
    if kind == 2:
        word, meaning = rng.choice(columns(FACTS["definitions"]))
        scene["word"] = word
        bare, the = word in NO_ARTICLE, word in THE
        scene["one"] = word if bare else f"the {word}" if the else article(word)
        return scene.say(ASK["meaning"]), scene.say(f"{{one}} is {meaning}.")
    if kind == 3:
        scene["what"], answer = rng.choice(columns(FACTS["why"]))
        return scene.say(ASK["why"] if rng.random() < 0.6 else "Why {what}?"), answer
    if kind == 4:
        scene["do"], answer = rng.choice(columns(FACTS["how"]))
        return scene.say(ASK["how"]), answer
    return rng.choice(
        [
            (scene.say(ASK["joke"]), rng.choice(FACTS["jokes"])),
            (scene.say(ASK["riddle"]), rng.choice(FACTS["riddles"])),
        ]
    )


ASK = {
    "opposite": "[What is the opposite of {word}?"
    '|What is the opposite of "{word}"?|Opposite of {word}?]',
    "capital": "[What is the capital of {country}?|What is the capital city of {country}?"
    "|Which city is the capital of {country}?|Capital of {country}?]",
    "colour": "[What colour is {thing}?|What color is {thing}?|Which colour is {thing}?"
    "|Tell me the colour of {thing}.]",
    "meaning": "[What is {one}?|What is {one}?|Explain what {one} is."
    '|What does the word "{word}" mean?|Do you know what {one} is?]',
    "why": "[Tell me: why {what}?|Why {what}?]",
    "how": "[How do I {do}?|How can I {do}?|How do you {do}?|Tell me how to {do}."
    "|Explain how to {do}.]",
    "joke": "[Tell me a joke.|Tell me a joke, please.|Do you know a joke?|Make me laugh."
    "|Another joke, please.|Say something funny.]",
    "riddle": "[Tell me a riddle.|Do you know a riddle?|Give me a riddle.]",
}


def any_question(rng: random.Random) -> Pair:
    kinds = [animal_question, animal_question, yes_no_question, naming_question]
    kinds += [order_question, arithmetic, fact_question, fact_question]
    return rng.choice(kinds)(rng)
