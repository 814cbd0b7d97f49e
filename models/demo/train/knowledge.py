"""The facts that the demo model may know, and the question-and-answer pairs made from them."""

import random

import words as w
from grammar import Scene, article, listing

CAPITALS = """France Paris|Germany Berlin|Italy Rome|Spain Madrid|England London|Japan Tokyo|Norway Oslo|Austria Vienna
|Portugal Lisbon|Ireland Dublin|Greece Athens|Egypt Cairo|Poland Warsaw|Sweden Stockholm|Russia Moscow|China Beijing
|Canada Ottawa|Peru Lima|Denmark Copenhagen|Finland Helsinki""".replace("\n", "").split("|")
COLOUR_OF = """the sky=blue|grass=green|snow=white|the sun=yellow|coal=black|blood=red|a lemon=yellow|a banana=yellow|a carrot=orange
|milk=white|a tomato=red|the sea=blue|a strawberry=red|chocolate=brown|a leaf=green|gold=yellow|a pumpkin=orange|the night=black
|a cloud=white|a cherry=red""".replace("\n", "").split("|")
OPPOSITES = """hot cold|big small|happy sad|day night|fast slow|old young|up down|open closed|full empty|hard soft|light dark|long short
|loud quiet|wet dry|rich poor|good bad|early late|high low|clean dirty|strong weak|sweet sour|left right|near far|new old|true false
|black white|summer winter|friend enemy|begin end|love hate""".replace("\n", "").split("|")
DEFINITIONS = """kite=a light toy that flies in the wind on a string|drum=an instrument that you hit with sticks
|boat=a thing that floats and carries people over water|umbrella=a thing that keeps you dry in the rain
|lantern=a lamp that you can carry|map=a drawing that shows where places are|key=a small piece of metal that opens a lock
|compass=a tool that shows where north is|book=a stack of pages with words on them|library=a place with many books
|forest=a place where many trees grow|island=land with water all around it|river=water that flows to the sea|mountain=a very high hill
|castle=a big stone house for a king or a queen|harbour=a safe place for ships|farm=a place where people grow food and keep animals
|market=a place where people buy and sell things|school=a place where children learn|beach=the sandy land beside the sea
|star=a hot ball of light, very far away|rainbow=an arch of colours that you see when the sun shines through rain
|baker=a person who makes bread|doctor=a person who helps sick people|teacher=a person who helps others to learn
|friend=someone you like and can trust|dragon=a creature from stories that can fly and breathe fire|robot=a machine that can do work
|computer=a machine that works with numbers and words|language model=a program that guesses the next word, again and again
|wizard=a man from stories who can do magic|winter=the coldest season of the year|summer=the warmest season of the year
|sun=a star, and it gives us light and heat|moon=a ball of rock that goes around the earth|snow=frozen water that falls from the sky
|cloud=many tiny drops of water in the sky|bicycle=a thing with two wheels that you ride|nest=a home that a bird builds
|birthday=the day on which you were born|garden=a place where flowers and vegetables grow|honey=sweet food that bees make
|story=a tale about what happened to someone|poem=a short text that sounds like music""".replace("\n", "").split("|")
WHY = """is the sky blue=Sunlight has many colours, and the air spreads the blue light the most.
|do birds fly=Birds fly to find food and to get away from danger.|do we sleep=We sleep so that our bodies and minds can rest.
|does it rain=Clouds are made of tiny drops of water. When the drops grow heavy, they fall as rain.
|is the sea salty=Rivers carry a little salt from the rocks into the sea.|do leaves fall=Trees drop their leaves in autumn to save water in winter.
|do cats purr=Cats often purr because they feel safe and happy.|do we eat=We eat because food gives us energy.
|do bees make honey=Bees make honey so that they have food in winter.|is it dark at night=At night our side of the earth is turned away from the sun.
|do dogs bark=Dogs bark to call, to warn and to play.|is snow white=Snow is made of many small crystals that send back all the light.
|do people read books=People read books to learn and to have fun.|do we have friends=Friends help us, and life is more fun with them.
|is sharing good=When we share, everyone has something, and we make friends.""".replace("\n", "").split("|")
HOW = """make tea=Boil some water, put the tea in a cup, pour in the water and wait three minutes.
|make a sandwich=Take two slices of bread. Put cheese and tomato between them. Then enjoy it.|fall asleep=Turn off the light, lie down and breathe slowly.
|make friends=Say hello, be kind and listen.|learn to swim=Start in shallow water, with someone who can swim, and practise every week.
|plant a seed=Put the seed in the soil, give it water and wait.|make a kite=Tie two sticks into a cross, put paper over them and add a long string.
|be brave=Take a deep breath and take one small step.|bake a cake=Mix flour, eggs, sugar and butter. Bake it until it is golden.
|make soup=Cut some vegetables, put them in hot water and cook them slowly.|say sorry=Look at the other person and say, "I am sorry." Then do better."""
HOW = HOW.replace("\n", "").split("|")
JOKES = [
    "Why did the duck cross the pond? To get to the other tide!",
    "What do you call a bear with no teeth? A gummy bear!",
    "Why do bees have sticky hair? Because they use honeycombs!",
    "What do you call a sleeping bull? A bulldozer!",
    "Why was the computer cold? It left its windows open!",
    "What is orange and sounds like a parrot? A carrot!",
    "Why did the cookie go to the doctor? It felt crummy!",
    "What do you get when you cross a snowman and a dog? Frostbite!",
    "What did the sea say to the beach? Nothing, it just waved!",
    "Why can you not trust a story about stairs? They are always up to something!",
]
RIDDLES = [
    "What has hands but cannot clap? A clock.",
    "What gets wetter the more it dries? A towel.",
    "What has a neck but no head? A bottle.",
    "What goes up but never comes down? Your age.",
    "What has keys but opens no door? A piano.",
    "What can you catch but not throw? A cold.",
]
FRUITS = "apples pears plums bananas cherries grapes oranges peaches lemons strawberries".split()
VEGETABLES = "carrots potatoes tomatoes beans peas onions cabbages pumpkins".split()
SEASONS = "spring summer autumn winter".split()
INSTRUMENTS = "drum flute piano guitar violin trumpet".split()
FEELINGS = "happy sad angry proud afraid tired excited calm".split()
SETS = {
    "animals": [a.plural for a in w.ANIMALS],
    "birds": [a.plural for a in w.BIRDS],
    "farm animals": "cows pigs hens sheep goats horses ducks".split(),
    "sea animals": "whales dolphins crabs fish".split(),
    "colours": w.COLOURS[:11],
    "fruits": FRUITS,
    "vegetables": VEGETABLES,
    "seasons": SEASONS,
    "days": w.DAYS,
    "months": w.MONTHS,
    "instruments": INSTRUMENTS,
    "feelings": FEELINGS,
    "cities": w.CITIES,
    "jobs": w.JOBS,
    "toys": "kites balls dolls drums trains teddies wagons".split(),
}
Pair = tuple[str, str]


def animal_question(rng: random.Random) -> Pair:
    animal = rng.choice(w.ANIMALS)
    one, many, legs = article(animal.name), animal.plural, w.NUMBER_WORDS[animal.legs]
    legs_answer = f"{one} has {legs} legs." if animal.legs else f"{one} has no legs."
    pairs = [
        (f"[What|Which] sound does {one} make?|What noise does {one} make?|What does {one} say?", f"{one} {animal.sound}."),
        (f"How many legs does {one} have?|How many legs do {many} have?", legs_answer),
        (f"What do {many} eat?|What does {one} eat?|What do {many} like to eat?", f"{many} eat {animal.food}."),
        (f"Where do {many} live?|Where does {one} live?", f"{one} lives {animal.where}."),
        (f"What colour is {one}?|What color is {one}?|What colour are {many}?", f"{one} is often {animal.colour}."),
        (f"What can {one} do?|What can {many} do?|What are {many} good at?", f"{one} can {animal.can}."),
        (f"What is a baby {animal.name} called?|What do you call a young {animal.name}?|What is the name for a baby {animal.name}?", f"A baby {animal.name} is called {article(animal.young)}."),
        (f"Tell me about {many}.|What do you know about {many}?|Tell me something about {many}.|What is {one}?|Describe {one}.", describe(rng, animal)),
    ]
    question, answer = rng.choice(pairs)
    scene = Scene(rng)
    return scene.say(f"[{question}]"), scene.say(answer)


def describe(rng: random.Random, animal: w.Animal) -> str:
    """A few true sentences about an animal."""
    one = article(animal.name)
    group = "bird" if animal in w.BIRDS else "animal"
    sound = "" if animal.sound == "makes no sound" else f" It {animal.sound}."
    first = rng.choice([f"{one} is {article(group)} that can {animal.can}.", f"{one} is {article(animal.colour + ' ' + group)}.", f"{one} is {article(group)}. It is often {animal.colour}."])
    rest = [f" It lives {animal.where}[ and eats {animal.food}.|. It eats {animal.food}.]", sound, f" Its young is called {article(animal.young)}."]
    return Scene(rng).say(first + "".join(rest[: rng.randint(1, 3)]))


def yes_no_question(rng: random.Random) -> Pair:
    """A question whose answer starts with yes or no."""
    animal, other = rng.sample(w.ANIMALS, 2)
    one = article(animal.name)
    truth = rng.random() < 0.5
    kind = rng.randrange(6)
    if kind == 0:
        legs = animal.legs if truth else rng.choice([n for n in (0, 2, 4, 6, 8, 10) if n != animal.legs])
        question = f"Does {one} have {w.NUMBER_WORDS[legs]} legs?"
        why = f"{one} has {w.NUMBER_WORDS[animal.legs]} legs"
    elif kind == 1:
        is_bird = animal in w.BIRDS
        truth, question = is_bird, f"Is {one} a bird?"
        why = f"{one} is a bird" if is_bird else f"{one} is not a bird"
    elif kind == 2:
        first, second = rng.sample(range(1, 21), 2)
        truth = first > second
        question, why = f"Is {first} [bigger|more|greater] than {second}?", f"{first} is {'more' if truth else 'less'} than {second}"
    elif kind == 3:
        name, colour = rng.choice(COLOUR_OF).split("=")
        asked = colour if truth else rng.choice([c for c in w.COLOURS[:8] if c != colour])
        question, why = f"Is {name} {asked}?", f"{name} is {colour}"
    elif kind == 4:
        thing = rng.choice(FRUITS + VEGETABLES)
        asked = rng.choice(["fruit", "vegetable"])
        truth = (thing in FRUITS) == (asked == "fruit")
        question, why = f"Are {thing} {asked}s?", f"{thing} are {'fruits' if thing in FRUITS else 'vegetables'}"
    else:
        asked = animal.food if truth else other.food
        truth = asked == animal.food
        question, why = f"Do {animal.plural} eat {asked}?", f"{animal.plural} eat {animal.food}"
    answer = "Yes" if truth else "No"
    scene = Scene(rng)
    if rng.random() < 0.35:
        return scene.say(question) + rng.choice([" Answer yes or no.", " Yes or no?", " Answer with yes or no."]), rng.choice([answer, answer.lower()])
    return scene.say(question), scene.say(f"{answer}, {why}.")


def naming_question(rng: random.Random) -> Pair:
    group, members = rng.choice(list(SETS.items()))
    count = rng.randint(2, min(5, len(members)))
    chosen = rng.sample(members, count)
    number = rng.choice([str(count), w.NUMBER_WORDS[count], w.NUMBER_WORDS[count]])
    question = Scene(rng).say(f"[Name|Tell me|Give me|List|Can you name|Say] {number} {group}")
    question += "?" if question.startswith("Can") else "."
    if rng.random() < 0.2:
        marks = [f"- {item}" for item in chosen] if rng.random() < 0.5 else [f"{i}. {item}" for i, item in enumerate(chosen, 1)]
        return question.rstrip(".?") + " as a list.", "\n".join(marks)
    text = listing(chosen)
    return question, text[:1].upper() + text[1:] + "."


def order_question(rng: random.Random) -> Pair:
    scene = Scene(rng)
    kind = rng.randrange(4)
    if kind == 0:
        row, noun = rng.choice([(w.DAYS, "day"), (w.MONTHS, "month")])
        at = rng.randrange(len(row))
        step = rng.choice([1, -1])
        word = "after" if step == 1 else "before"
        found = row[(at + step) % len(row)]
        return scene.say(f"[What|Which] {noun} comes {word} {row[at]}?"), f"{found} comes {word} {row[at]}."
    if kind == 1:
        last = rng.randint(3, 12)
        by_word = rng.random() < 0.3
        numbers = [w.NUMBER_WORDS[n] if by_word else str(n) for n in range(1, last + 1)]
        text = ", ".join(numbers) + "."
        return scene.say(f"[Count|Please count|Can you count] [from 1 |from one |]to {w.NUMBER_WORDS[last] if by_word else last}."), text[:1].upper() + text[1:]
    if kind == 2:
        word, other = rng.sample(rng.choice(OPPOSITES).split(), 2)
        return scene.say(f"[What is the opposite of {word}?|What is the opposite of \"{word}\"?|Opposite of {word}?]"), scene.say(f"[The opposite of {word} is {other}.|The opposite of {word} is {other}.|{other}.]")
    return rng.choice([
        ("What are the days of the week?", listing(w.DAYS) + "."),
        ("How many days are in a week?", "There are seven days in a week."),
        ("How many months are in a year?", "There are twelve months in a year."),
        ("What are the four seasons?", "The four seasons are spring, summer, autumn and winter."),
        ("How many hours are in a day?", "There are twenty-four hours in a day."),
        ("What are the months of the year?", listing(w.MONTHS) + "."),
        ("How many fingers do you have on one hand?", "People have five fingers on one hand. I have no hands."),
        ("What are the colours of the rainbow?", "Red, orange, yellow, green, blue and purple."),
    ])


def arithmetic(rng: random.Random) -> Pair:
    left, right = rng.randint(0, 10), rng.randint(0, 10)
    sign, word = rng.choice([("+", "plus"), ("+", "plus"), ("-", "minus"), ("*", "times")])
    if sign == "-" and right > left:
        left, right = right, left
    result = {"+": left + right, "-": left - right, "*": left * right}[sign]
    style = rng.randrange(6)
    if style <= 1:
        return Scene(rng).say(f"[What is|How much is|Calculate|] {left} {sign} {right}") + rng.choice(["?", "?", ""]), rng.choice([f"{left} {sign} {right} = {result}", f"{left} {sign} {right} = {result}", f"{result}"])
    if style == 2:
        return f"{left}{sign}{right}", f"{left} {sign} {right} = {result}"
    if style == 3:
        return Scene(rng).say(f"[What is|How much is] {w.NUMBER_WORDS[left]} {word} {w.NUMBER_WORDS[right]}?"), f"{left} {sign} {right} = {result}"
    thing, name = rng.choice(FRUITS), rng.choice(w.GIRLS + w.BOYS)
    if sign == "-":
        return f"{name} has {left} {thing} and eats {right}. How many are left?", f"{left} - {right} = {result}, so {result} {thing} are left."
    return f"{name} has {left} {thing} and gets {right} more. How many are there now?", f"{left} + {right} = {left + right}, so there are {left + right} {thing}."


def fact_question(rng: random.Random) -> Pair:
    scene = Scene(rng)
    kind = rng.randrange(6)
    if kind == 0:
        country, city = rng.choice(CAPITALS).split()
        return scene.say(f"[What is the capital of {country}?|What is the capital city of {country}?|Which city is the capital of {country}?|Capital of {country}?]"), f"The capital of {country} is {city}."
    if kind == 1:
        thing, colour = rng.choice(COLOUR_OF).split("=")
        return scene.say(f"[What colour is {thing}?|What color is {thing}?|Which colour is {thing}?|Tell me the colour of {thing}.]"), scene.say(f"[{thing} is {colour}.|{thing} is {colour}.|{colour}.]")
    if kind == 2:
        word, meaning = rng.choice(DEFINITIONS).split("=")
        uncountable = word in ("winter", "summer", "snow", "honey")
        the = word in ("sun", "moon")
        name = word if uncountable else f"the {word}" if the else article(word)
        return scene.say(f"[What is {name}?|What is {name}?|Explain what {name} is.|What does the word \"{word}\" mean?|Do you know what {name} is?]"), scene.say(f"{name} is {meaning}.")
    if kind == 3:
        question, answer = rng.choice(WHY).split("=")
        return scene.say(f"[Tell me: why {question}?|Why {question}?]" if rng.random() < 0.6 else f"Why {question}?"), answer
    if kind == 4:
        task, answer = rng.choice(HOW).split("=")
        return scene.say(f"[How do I {task}?|How can I {task}?|How do you {task}?|Tell me how to {task}.|Explain how to {task}.]"), answer
    return rng.choice([
        (scene.say("[Tell me a joke.|Tell me a joke, please.|Do you know a joke?|Make me laugh.|Another joke, please.|Say something funny.]"), rng.choice(JOKES)),
        (scene.say("[Tell me a riddle.|Do you know a riddle?|Give me a riddle.]"), rng.choice(RIDDLES)),
    ])


QUESTIONS = [animal_question, animal_question, yes_no_question, naming_question, order_question, arithmetic, fact_question, fact_question]


def any_question(rng: random.Random) -> Pair:
    return rng.choice(QUESTIONS)(rng)
