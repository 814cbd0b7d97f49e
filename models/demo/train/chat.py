"""Conversations: greetings, who the model is, stories and questions about them, facts, JSON, honest "I do not know"."""

import random

import knowledge
import records
import stories
import words as w
from grammar import Scene, article
from stories import Story, Wishes

Turn = tuple[str, str]  # (role, text)
Pair = tuple[str, str]  # (question, answer)
MODEL_NAME = "the small demo model of forge"
DEFAULT_SYSTEMS = [
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "You are a helpful assistant. Answer in short sentences.",
    "You tell stories and answer questions.",
    "Be kind and brief.",
    "You are the demo model of forge.",
]
TOPICS = {
    "friendship": "a new friend|saying sorry", "sharing": "sharing", "courage": "being brave|the dragon", "being brave": "being brave",
    "the truth": "telling the truth", "honesty": "telling the truth", "magic": "magic", "a wish": "magic", "the rain": "rain", "a rainbow": "rain",
    "a race": "a race", "winning": "a race", "a treasure": "treasure", "a map": "treasure", "the stars": "the stars", "the night": "a strange noise|the stars",
    "a garden": "a garden", "a seed": "a garden", "a dragon": "the dragon", "a birthday": "a gift", "a gift": "a gift", "learning something": "learning",
    "never giving up": "learning|making something", "getting lost": "finding the way home", "helping others": "helping", "kindness": "helping|sharing",
    "a sick friend": "caring for a sick friend", "a strange noise": "a strange noise", "something silly": "a silly day", "a funny day": "a silly day",
}
UNKNOWN_THINGS = """quantum physics|the stock market|black holes|the history of Rome|football|cars|politics|chemistry|the latest news|movies
|guitars|Python|JavaScript|databases|space travel|taxes|philosophy|the economy|engines|volcanoes|dinosaurs|wine|fashion|chess|law|medicine
|atoms|electricity|viruses|religion|art history|video games|the internet|cryptography|airplanes|trains|opera|basketball|machine learning
|neural networks|the second world war|photosynthesis|gravity|blockchain|algebra|geometry|Shakespeare|Mozart|recipes|climate change"""
UNKNOWN_QUESTIONS = [
    "What is {topic}?", "Explain {topic}.", "Tell me about {topic}.", "How does {topic} work?", "What do you know about {topic}?",
    "Who invented {topic}?", "Can you explain {topic} to me?", "Write an essay about {topic}.", "Why is {topic} important?",
    "Who is {person}?", "When was {person} born?", "Who wrote {title}?", "Who is the president of {country}?", "How old is {person}?",
    "What is {big} * {big2}?", "What is the square root of {big}?", "What happened in {year}?", "How many people live in {country}?",
    "Translate \"{word}\" into French.", "Write a Python function that sorts a list.", "Write code to print {word}.", "How far is it to {country}?",
    "What is the weather today?", "What time is it?", "What is the date today?", "Who won the game yesterday?", "Summarise {title} for me.",
    "What is the population of {country}?", "How tall is {person}?", "What is the best {thing}?", "How much does a {thing} cost?", "What is a {madeup}?",
    "Tell me about {madeup}.", "Where is {madeup}?", "Do you know {madeup}?", "Solve {big}x + {big2} = 0.", "Define {topic}.",
]
UNKNOWN_ANSWERS = [
    "I do not know that. I am a very small model, and I know only stories, animals and simple facts.",
    "I am sorry, I do not know that. I am very small. But I can tell you a story!",
    "That is too hard for me. I know about animals, colours, small numbers and stories.",
    "I do not know much about that. Ask me about an animal, or ask me for a story.",
]
FEELING_ANSWERS = {
    "sad": ["I am sorry that you are sad. Do you want to hear a story?", "I am sorry to hear that. A story or a walk may help."],
    "happy": ["That is good to hear! What made you happy?", "How nice! I am glad that you are happy."],
    "bored": ["Let us do something! I can tell you a story, a joke or a riddle.", "Would you like to hear a story about a dragon?"],
    "tired": ["Then you should rest. Shall I tell you a quiet story?", "Lie down and sleep well."],
    "hungry": ["Then you should eat something. How about some soup?", "How about an apple or some bread?"],
    "afraid": ["Take a deep breath. You are not alone.", "It is all right to be afraid. Talk to a friend."],
    "angry": ["Take a deep breath and count to ten.", "I am sorry that you are angry. What happened?"],
    "sick": ["I hope that you get well soon. Drink some tea and rest.", "I am sorry. Please rest, and see a doctor if it gets worse."],
    "lonely": ["I am here, and I like to talk with you.", "I am sorry that you feel lonely. Shall I tell you a story?"],
    "excited": ["How nice! What is going to happen?", "That sounds like a good day!"],
}


def casual(rng: random.Random, text: str) -> str:
    """Now and then spells a question as people type it."""
    roll = rng.random()
    if roll < 0.08:
        text = text.lower()
    elif roll < 0.14:
        text = text[:1].lower() + text[1:]
    if rng.random() < 0.12 and text[-1:] in ".?!":
        text = text[:-1]
    return text


def greeting(rng: random.Random) -> Pair:
    scene = Scene(rng)
    return rng.choice([
        (scene.say("[Hello|Hi|Hey|Hello there|Hi there|Good morning|Good evening|Good afternoon|hello|hi|hey][!|.|]"), scene.say("[Hello|Hi|Hello there]! [How can I help you?|How can I help you today?|What would you like to talk about?|Would you like to hear a story?]")),
        (scene.say("[How are you?|How are you today?|How do you feel?|Are you well?|What is up?|How is it going?]"), scene.say("I am [fine|well|very well], thank you. [How are you?|And you?|How can I help you?]")),
        (scene.say("[Thank you|Thanks|Thank you very much|Thanks a lot|Great|That was nice|I like it|Well done|Good][.|!]"), scene.say("[You are welcome!|I am glad that you like it.|My pleasure!|You are welcome. Would you like to hear more?]")),
        (scene.say("[Bye|Goodbye|Good night|See you|See you later|I have to go][.|!|]"), scene.say("[Goodbye|Bye|See you soon]! [It was nice to talk with you.|Have a good day!|Come back soon.|Sleep well.]")),
        (scene.say("[Nice to meet you|It is nice to meet you][.|!]"), scene.say("It is nice to meet you, too!")),
        (scene.say("[I am fine|I am good|I am well|Fine|Good][, thank you|, thanks|][.|!]"), scene.say("[I am glad to hear that|That is good to hear]! [What would you like to do?|How can I help you?|Would you like to hear a story?]")),
        (scene.say("[Test|Test.|Testing|Is this working?|Are you there?|Can you hear me?|Hello?]"), scene.say("[Yes, I am here.|I am here.] [How can I help you?|What would you like to know?]")),
    ])


def identity(rng: random.Random, name: str | None = None) -> Pair:
    scene = Scene(rng, {"me": name or MODEL_NAME})
    about = "[I can tell stories, answer simple questions and write JSON.|I like stories and animals.|I can tell you a story or answer a simple question.]"
    return rng.choice([
        (scene.say("[Who are you?|Who are you?|What are you?|Tell me about yourself.|Introduce yourself.|Who is this?]"), scene.say("I am {me}. " + about)),
        (scene.say("[What is your name?|What are you called?|Do you have a name?|Tell me your name.]"), scene.say("[I am {me}.|My name is {me}.]" if name else "I am {me}.")),
        (scene.say("[What can you do?|How can you help me?|What are you good at?|What can I ask you?|Help|What do you know?]"), scene.say("I can [tell stories|tell you a story], answer [simple|small] questions [about animals, colours and numbers|about stories and animals] and [write|give you] JSON.")),
        (scene.say("[Are you a human?|Are you a person?|Are you a robot?|Are you real?|Are you alive?|Are you ChatGPT?]"), scene.say("No, I am {me}. [I am a computer program.|I only know words.]" if not name else "I am {me}. I am a computer program.")),
        (scene.say("[How old are you?|When were you born?]"), scene.say("I am very young. I was trained not long ago.")),
        (scene.say("[How big are you?|How many parameters do you have?|Are you a large language model?|Are you smart?]"), scene.say("I am very small. I have less than two million parameters.")),
        (scene.say("[Who made you?|Who created you?|Where do you come from?]"), scene.say("I was made for forge, from stories that a small program wrote.")),
        (scene.say("[What is forge?|What does forge do?]"), scene.say("The program forge runs language models on your own computer.")),
        (scene.say("[What do you like?|What is your favourite animal?|What is your favorite animal?|Do you like stories?]"), scene.say("I like stories, and I like [foxes|owls|bears|dragons] very much.")),
        (scene.say("[What is your favourite colour?|What is your favorite color?]"), scene.say("I like [blue|green|red], but I cannot see colours.")),
    ])


def feeling(rng: random.Random) -> Pair:
    mood = rng.choice(list(FEELING_ANSWERS))
    return Scene(rng).say(f"[I am {mood}|I feel {mood}|I am so {mood}|I am {mood} today|I feel {mood} today|I am very {mood}][.|.|!|]"), rng.choice(FEELING_ANSWERS[mood])


def unknown(rng: random.Random) -> Pair:
    scene = Scene(rng)
    scene["topic"] = rng.choice(UNKNOWN_THINGS.replace("\n", "").split("|"))
    scene["person"] = f"{rng.choice(w.GIRLS + w.BOYS)} {records_surname(rng)}"
    scene["madeup"] = w.invented_name(rng).lower() + rng.choice(["", "ing", "tion", "ium", "ity"])
    scene["title"] = f"The {rng.choice(w.COLOURS).capitalize()} {w.invented_name(rng)}"
    scene["country"] = rng.choice(knowledge.CAPITALS).split()[0]
    scene["big"], scene["big2"] = str(rng.randint(23, 9999)), str(rng.randint(23, 9999))
    scene["year"], scene["word"] = str(rng.randint(1200, 2025)), rng.choice(w.TOYS + w.TREASURES)
    scene["thing"] = rng.choice("car phone laptop camera house ticket watch game bank hotel".split())
    return scene.say(rng.choice(UNKNOWN_QUESTIONS)), rng.choice(UNKNOWN_ANSWERS)


def records_surname(rng: random.Random) -> str:
    return rng.choice(["Smith", "Miller", "Brown", "Lee", w.invented_name(rng), w.invented_name(rng) + "son"])


def memory(rng: random.Random) -> list[Pair]:
    """The user says something about themselves and asks for it later."""
    name = w.invented_name(rng) if rng.random() < 0.5 else rng.choice(w.GIRLS + w.BOYS)
    animal, colour, city = rng.choice("dog cat rabbit horse mouse parrot".split()), rng.choice(w.COLOURS), rng.choice(w.CITIES)
    pet, age, food = rng.choice(w.PET_BOYS + w.PET_GIRLS), rng.randint(5, 80), rng.choice(w.MEALS)
    scene = Scene(rng)
    told: list[tuple[Pair, Pair]] = [
        ((f"[My name is {name}|I am {name}|I am called {name}|Hello, I am {name}|Hi, my name is {name}].", f"[Nice to meet you|Hello|It is nice to meet you], {name}!"), ("[What is my name?|Do you remember my name?|Who am I?]", f"Your name is {name}.")),
        ((f"I am {age} years old.", f"{age} years is a good age."), ("[How old am I?|What is my age?]", f"You are {age} years old.")),
        ((f"I have a {animal}[ named| called] {pet}.", f"{pet} is a nice name for a {animal}!"), (f"[What is the name of my {animal}?|What is my {animal} called?]", f"Your {animal} is called {pet}.")),
        ((f"My favourite colour is {colour}.", f"{colour} is a beautiful colour."), ("What is my favourite colour?", f"Your favourite colour is {colour}.")),
        ((f"I live in {city}.", f"{city} must be a nice place."), ("Where do I live?", f"You live in {city}.")),
        ((f"I like {food}.", f"{food} [is|are] good, I hear.".replace("[is|are]", "are" if food[-1] == "s" else "is")), ("What do I like?", f"You like {food}.")),
    ]
    chosen = rng.sample(told, rng.randint(1, 3))
    asked = rng.sample(chosen, rng.randint(1, len(chosen)))
    middle = [small_talk(rng) for _ in range(rng.choice([0, 0, 1, 2]))]
    pairs = [pair for pair, _ in chosen] + [] + middle + [pair for _, pair in asked]
    return [(scene.say(q), scene.say(a)) if (q, a) not in middle else (q, a) for q, a in pairs]


def copying(rng: random.Random) -> Pair:
    scene = Scene(rng)
    animal, thing = rng.choice(w.ANIMALS).name, rng.choice(w.TOYS + w.TREASURES)
    name = w.invented_name(rng) if rng.random() < 0.4 else rng.choice(w.GIRLS + w.BOYS)
    scene["sentence"] = f"[The {animal} likes the {thing}|{name} has a {rng.choice(w.COLOURS)} {thing}|The {thing} is {rng.choice(w.SIZES)}|I see {article(animal)} and {article(thing)}]."
    scene["sentence"] = scene.say("{sentence}")
    word = rng.choice([animal, thing, rng.choice(w.TRAITS), name])
    use = f"The {animal} {rng.choice(['found', 'saw', 'took', 'liked'])} the {rng.choice(w.COLOURS)} {thing}."
    return rng.choice([
        (scene.say("[Repeat|Repeat after me|Say|Copy]: {sentence}"), scene.slots["sentence"]),
        (scene.say(f"[Say|Please say|Write] \"{word}\"."), word),
        (scene.say(f"Say [hello|hi|good morning] to {name}."), f"Hello, {name}!"),
        (scene.say(f"[Write|Make|Give me] a sentence [about|with] {article(animal)} and {article(thing)}."), use),
        (scene.say(f"[Write|Make] a sentence with the word \"{thing}\"."), use),
        (scene.say(f"[Write|Give me] a sentence about {article(animal)}."), scene.say(f"[{article(animal)} was [sleeping|playing|sitting] {rng.choice(w.PLACES)[1]}|The {animal} found {article(thing)} {rng.choice(w.PLACES)[1]}].")),
    ])


def poem(rng: random.Random) -> Pair:
    topic, lines = rng.choice(POEMS)
    scene = Scene(rng, {"adj": f"[{'|'.join(w.TRAITS)}]"})
    what = topic if topic[:4] in ("the ", "rain", "snow") else article(topic)
    question = scene.say(f"[Write a poem|Write me a poem|Tell me a poem|Write a short poem|A poem] about {what}." if rng.random() < 0.8 else "[Write a poem|Tell me a poem|Write a short poem|Do you know a poem].")
    return question, "\n".join(scene.say(line) for line in lines)


POEMS = [
    ("the sea", ["The sea is [wide|deep], the sea is blue,", "it sings a [quiet|little] song for you.", "The waves come in, the waves go out,", "and [all the gulls|the seagulls] fly about."]),
    ("the moon", ["The moon is [round|high], the moon is bright,", "it [walks|looks] above the hills at night.", "It [looks into|shines upon] my little room", "and [sweeps it with|paints it like] a silver broom."]),
    ("rain", ["Rain on the window, rain on the tree,", "rain on the [river|garden], and rain on me.", "[Drip, drop, drip|Tip, tap, tip], it sings a tune,", "and the sun will [come|be] out soon."]),
    ("fox", ["A little fox with a [tail of red|soft red tail]", "[ran|danced] through the woods along the trail.", "He saw the moon, he saw the sun,", "and [thought that both were|said that life was] so much fun."]),
    ("cat", ["My cat [sleeps|sits] softly on the chair,", "with [golden|dreamy] eyes and [silky|silver] hair.", "She [dreams|thinks] of fish, she [dreams|thinks] of cream,", "and [smiles|purrs] a little in her dream."]),
    ("snow", ["The snow came [softly|falling] in the night,", "and made the whole wide [garden|village] white.", "No sound, no step, no [bird|wind] at all,", "just [quiet|silver] flakes that fall and fall."]),
    ("friend", ["A friend is someone who will stay", "when all the others run away.", "A friend will [laugh|walk] and [sing|talk] with you,", "and [share|carry] your [troubles|sorrows], too."]),
    ("tree", ["The old tree stands [upon|beside] the hill,", "when winds are [loud|high], when winds are still.", "It gives us [shade|apples], it gives us rest,", "and every [bird|robin] a place to nest."]),
    ("the stars", ["The stars are [far|high], the stars are small,", "I tried to count them, one and all.", "I counted [ten|nine], I counted more,", "and fell asleep [at|with] twenty-four."]),
    ("bee", ["A busy bee in a [yellow|golden] coat", "hums a song in her tiny throat.", "From flower to flower she [flies|goes] all day", "and [carries|brings] the summer's gold away."]),
]


def classify(rng: random.Random) -> Pair:
    """One-word answers, as constraints often ask for them."""
    scene = Scene(rng)
    name = rng.choice(w.GIRLS + w.BOYS)
    good = rng.random() < 0.5
    text = scene.say(
        f"[{name} won the race and laughed|{name} got a lovely gift|The sun was shining and everyone danced|{name} found a new friend|I love this book|What a wonderful day|The cake was so good]."
        if good
        else f"[{name} lost {rng.choice(['the', 'a'])} {rng.choice(w.TOYS)} and cried|{name} was all alone|The toy broke, and nobody helped|{name} fell down and got hurt|I hate this book|What a terrible day|The soup was cold and bad]."
    )
    labels = rng.choice([("happy", "sad"), ("positive", "negative"), ("good", "bad")])
    answer = labels[0] if good else labels[1]
    first, second = labels if rng.random() < 0.7 else labels[::-1]
    return scene.say(f"[Is this {first} or {second}?|Is the text {first} or {second}?|Choose {first} or {second}:|{first} or {second}?] {text}"), answer


def small_talk(rng: random.Random) -> Pair:
    return rng.choice([greeting, identity, knowledge.any_question, knowledge.any_question, knowledge.any_question, copying])(rng)


def story_request(rng: random.Random) -> tuple[str, Story]:
    """A request that names what the story must be about, or only how it starts."""
    scene = Scene(rng)
    ask = "[Tell me a story|Tell me a story|Write a story|Write a short story|Tell me a short story|Tell a story|Can you tell me a story|I want a story|Write me a story|A story]"
    roll = rng.random()
    wishes = Wishes()
    if roll < 0.12:
        question = ask + "[, please|]."
    elif roll < 0.42:
        she = rng.random() < 0.5
        wishes.kind = rng.choice([rng.choice(w.STORY_ANIMALS).name, rng.choice(w.STORY_ANIMALS).name, rng.choice(w.FANTASY[she]), "girl" if she else "boy", rng.choice(w.WORKERS[she])])
        adjective = rng.choice(["", "", "", "little ", "brave ", "kind ", "small "])
        question = ask + " about " + article(adjective + wishes.kind)
        if rng.random() < 0.35:
            pool = {"girl": w.GIRLS, "boy": w.BOYS}.get(wishes.kind, w.GIRLS + w.BOYS + w.PET_BOYS + w.PET_GIRLS)
            wishes.name = w.invented_name(rng) if rng.random() < 0.4 else rng.choice(pool)
            question += rng.choice([" named ", " called "]) + wishes.name
        elif rng.random() < 0.3:
            wishes.friend = rng.choice(w.STORY_ANIMALS).name
            question += " and " + article(wishes.friend)
        question += "."
    elif roll < 0.5:
        wishes.name = w.invented_name(rng) if rng.random() < 0.3 else rng.choice(w.GIRLS + w.BOYS)
        wishes.kind = "girl" if wishes.name in w.GIRLS else "boy" if wishes.name in w.BOYS else None
        question = ask + f" about {wishes.name}."
    elif roll < 0.6:
        wishes.place = rng.choice(w.PLACE_NAMES)
        question = ask + rng.choice([f" that happens {_inplace(wishes.place)}.", f" about the {wishes.place}.", f" set {_inplace(wishes.place)}."])
    elif roll < 0.7:
        wishes.thing = rng.choice(w.TOYS + w.TREASURES)
        question = ask + f" about {article(wishes.thing)}."
    elif roll < 0.8:
        topic, themes = rng.choice(list(TOPICS.items()))
        wishes.theme = rng.choice(themes.split("|"))
        question = ask + f" about {topic}."
    else:
        return _opening_request(rng)
    story = stories.tell(rng, wishes)
    question = scene.say(question)
    if question.startswith("Can"):
        question = question[:-1] + "?"
    return question, story


def _inplace(place: str) -> str:
    return next(row[1] for row in w.PLACES if row[0] == place)


def _opening_request(rng: random.Random) -> tuple[str, Story]:
    """The user types a beginning; the answer starts with the same words and goes on."""
    opening = rng.choice(["Once upon a time", "Once upon a time", "One day", "There was once", "Long ago", "In a small village", "Far away", "Once"])
    rest = {
        "One day": "One day", "There was once": "There was once {a_hero}{where}.", "In a small village": "In a small village {village}, there lived {a_hero}.",
        "Far away": "Far away, {home}, there lived {a_hero}.",
    }.get(opening, opening + ", there [was|lived] {a_hero}.")
    story = stories.tell(rng, Wishes(opening=rest))
    beginning = opening
    if rng.random() < 0.5:
        first = story.sentences[0].split(" ")
        beginning = " ".join(first[: rng.randint(min(3, len(first)), len(first))])
    text = beginning + rng.choice(["", "", "", ",", "..."]) if beginning == opening else beginning
    if rng.random() < 0.2:
        text = Scene(rng).say("[Continue|Go on|Continue this story|Finish this story]:") + " " + text
    return text, story


def story_questions(rng: random.Random, story: Story) -> list[Pair]:
    """Every question that the story's own facts can answer."""
    f = story.facts
    other_kind = rng.choice([animal.name for animal in w.STORY_ANIMALS if animal.name != f["kind"]])
    pairs = [
        (f"[Who is the story about?|What is the name of the {f['kind']}?|What is the hero called?|Who is the hero?]", f"[The story is about {f['name']}.|The {f['kind']} is called {f['name']}.|The hero is {f['name']}, {article(f['kind'])}.]"),
        (f"[What is {f['name']}?|What kind of hero is {f['name']}?]", f"{f['name']} is {article(f['kind'])}."),
        (f"Is {f['name']} {article(f['kind'])}?", f"Yes, {f['name']} is {article(f['kind'])}."),
        (f"Is {f['name']} {article(other_kind)}?", f"No, {f['name']} is {article(f['kind'])}."),
        ("[What is the story about?|What is the topic?|What is it about?]", f"It is about {story.theme}."),
    ]
    if "friend" in f:
        pairs += [
            (f"[Who is {f['friend']}?|What is {f['friend']}?|What kind of animal is {f['friend']}?|Tell me about {f['friend']}.]", f"{f['friend']} is {article(f['friend_kind'])}."),
            (f"[Who else is in the story?|Who did {f['name']} meet?|Who is the other character?|What is the name of the {f['friend_kind']}?]", f"{f['friend']}, {article(f['friend_kind'])}."),
        ]
    if "place" in f:
        pairs.append((f"[Where does it happen?|Where were they?|Where did {f['name']} go?|What is the place?]", f"It happens {_inplace(f['place'])}."))
    if "object" in f:
        thing = f["object"].split(" ")[-1]
        pairs.append((f"[What does the {thing} look like?|What kind of {thing} is it?|Describe the {thing}.]", f"It is {article(f['object'])}."))
        pairs.append(("[What thing is in the story?|Which object is in the story?]", f"{article(f['object'])}."))
    if "mood" in f:
        pairs.append((f"[How did {f['name']} feel at the end?|How does {f['name']} feel in the end?|Was {f['name']} sad at the end?]", f"At the end, {f['name']} was {f['mood']}."))
    if "age" in f:
        pairs.append((f"How old is {f['name']}?", f"{f['name']} is {f['age']} years old."))
    if "hobby" in f:
        pairs.append((f"[What does {f['name']} like?|What did {f['name']} love?]", f"{f['name']} likes {f['hobby']}."))
    if "trait" in f:
        pairs.append((f"[What is {f['name']} like?|Describe {f['name']}.]", f"{f['name']} is {f['trait']}."))
    scene = Scene(rng)
    return [(scene.say(q), scene.say(a)) for q, a in pairs]


def story_chat(rng: random.Random) -> list[Pair]:
    """A story told or given, then questions or JSON about it."""
    if rng.random() < 0.6:
        question, story = story_request(rng)
        pairs = [(casual(rng, question), story.text)]
        follow_ups = rng.choice([0, 1, 2, 3])
    else:
        story = stories.tell(rng)
        question, answer = rng.choice(story_questions(rng, story)) if rng.random() < 0.55 else records.facts_request(rng, story)
        lead = rng.choice(["", "Read this story. ", "Here is a story: ", "Story: "])
        pairs = [(f"{lead}{story.text}{rng.choice([' ', chr(10), chr(10) * 2])}{question}", answer)]
        follow_ups = rng.choice([0, 0, 1, 2])
    questions = story_questions(rng, story)
    rng.shuffle(questions)
    for _ in range(follow_ups):
        if rng.random() < 0.35:
            pairs.append(records.facts_request(rng, story))
        elif questions:
            pairs.append(questions.pop())
    if rng.random() < 0.15:
        pairs.append(greeting(rng))
    return pairs


def json_chat(rng: random.Random) -> list[Pair]:
    makers = [records.record_request] * 3 + [records.list_request, records.animal_request]
    return [rng.choice(makers)(rng) for _ in range(rng.choice([1, 1, 2, 3]))]


def mixed_chat(rng: random.Random) -> list[Pair]:
    makers = [greeting, identity, knowledge.any_question, knowledge.any_question, knowledge.any_question, feeling, unknown, copying, poem, classify]
    pairs = [rng.choice(makers)(rng) for _ in range(rng.choice([1, 1, 2, 3, 4, 6]))]
    if rng.random() < 0.1:
        pairs += memory(rng)
    return [(casual(rng, question), answer) for question, answer in pairs]


def conversation(rng: random.Random) -> list[Turn]:
    """One conversation, sometimes under a system message."""
    roll = rng.random()
    system = rng.choice(DEFAULT_SYSTEMS) if rng.random() < 0.15 else None
    if roll < 0.03:
        name = w.invented_name(rng) if rng.random() < 0.5 else rng.choice(w.GIRLS + w.BOYS)
        system = Scene(rng).say(f"[You are {name}|Your name is {name}|You are {name}, a friendly assistant].")
        pairs = [identity(rng, name)] + [small_talk(rng) for _ in range(rng.randint(0, 2))]
        pairs = [p for i, p in enumerate(pairs) if i == 0 or MODEL_NAME not in p[1]]
    elif roll < 0.43:
        pairs = story_chat(rng)
    elif roll < 0.6:
        pairs = json_chat(rng)
        if rng.random() < 0.1:
            system = rng.choice(["Answer in JSON.", "You answer only in JSON.", "Always reply with JSON."])
    elif roll < 0.65:
        pairs = memory(rng)
    elif roll < 0.95:
        pairs = mixed_chat(rng)
    else:
        pairs = mixed_chat(rng) + story_chat(rng) + mixed_chat(rng) + rng.choice([json_chat, story_chat, mixed_chat])(rng)
    turns = [("system", system)] if system else []
    for question, answer in pairs:
        turns += [("user", question), ("assistant", answer)]
    return turns
