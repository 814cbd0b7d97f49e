"""The words of the demo model's little world."""

import random
from dataclasses import dataclass

GIRLS = """Mia Lily Anna Emma Rosa Nora Ella Zoe Ivy Clara Maya Lucy Ruby Sara Amy Eva Leah Alice Daisy
Molly Hana Nina Tara Julia Grace Olive Freya Lena Mona Stella Sophie Kate Priya Yuki Amina Elsa""".split()
BOYS = """Tom Ben Max Leo Sam Jack Finn Noah Oscar Theo Hugo Adam Luke Milo Otto Paul Felix Toby Jonas
Omar Eli Henry Peter Simon Carl David Emil Ravi Kenji Oliver Daniel Martin Jim Lucas Tim Anton""".split()
PET_GIRLS = """Rosie Poppy Luna Bella Pearl Hazel Honey Willow Maple Coco Dot Fern Pip Ginger Tilly Misty
Clover Nutmeg Juno Berry""".split()
PET_BOYS = """Rusty Bruno Oakley Teddy Pepper Rufus Barnaby Moss Pip Ziggy Chester Basil Bramble Biscuit
Rocky Ollie Monty Percy Flint Socks""".split()
ONSETS = "B D F G K L M N P R S T V Z Br Dr Kl Tr Sh Th J H W Bl Gr Fl".split()
VOWELS = "a e i o u ee oo ia".split()
ENDS = "x n l r m s ra lo na bo ri ko li ta va dor mi ber lin".split()


def invented_name(rng: random.Random) -> str:
    """A name nobody has, so that the model learns to copy and not to recite."""
    middle = rng.choice(["", rng.choice("bdfgklmnprstvz") + rng.choice("aeiou")])
    return rng.choice(ONSETS) + rng.choice(VOWELS) + middle + rng.choice(ENDS)


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
        preposition = "on" if self.home in ("the ice", "the beach", "a farm", "the grassland") else "in"
        return f"{preposition} {self.home}"


def _animals(table: str) -> list[Animal]:
    rows = [[cell.strip() for cell in row.split(",")] for row in table.strip().splitlines()]
    return [Animal(r[0], r[1], int(r[2]), *r[3:]) for r in rows]


# name, plural, legs, sound, food, home, colour, can, young
LAND_ANIMALS = _animals("""
fox, foxes, 4, barks, mice, a den, orange, run fast, cub
rabbit, rabbits, 4, squeaks, carrots, a burrow, brown, hop, kit
bear, bears, 4, growls, honey, a cave, brown, climb, cub
dog, dogs, 4, barks, meat, a house, brown, run, puppy
cat, cats, 4, meows, fish, a house, grey, climb, kitten
mouse, mice, 4, squeaks, cheese, a hole, grey, hide, pup
horse, horses, 4, neighs, hay, a stable, brown, gallop, foal
cow, cows, 4, moos, grass, a barn, black and white, give milk, calf
pig, pigs, 4, oinks, corn, a pen, pink, dig, piglet
goat, goats, 4, bleats, leaves, a farm, white, climb, kid
sheep, sheep, 4, bleats, grass, a field, white, give wool, lamb
squirrel, squirrels, 4, chatters, nuts, a tree, red, climb, kit
hedgehog, hedgehogs, 4, snuffles, beetles, a garden, brown, roll into a ball, hoglet
badger, badgers, 4, grunts, worms, a burrow, black and white, dig, cub
deer, deer, 4, calls, leaves, a forest, brown, jump, fawn
wolf, wolves, 4, howls, meat, a den, grey, run far, pup
lion, lions, 4, roars, meat, the grassland, yellow, roar, cub
tiger, tigers, 4, roars, meat, the jungle, orange and black, swim, cub
elephant, elephants, 4, trumpets, grass, the grassland, grey, carry trees, calf
monkey, monkeys, 2, chatters, bananas, the jungle, brown, swing from trees, infant
turtle, turtles, 4, hisses, leaves, a pond, green, swim, hatchling
frog, frogs, 4, croaks, flies, a pond, green, jump, tadpole
otter, otters, 4, whistles, fish, a river, brown, swim, pup
beaver, beavers, 4, slaps its tail, bark, a river, brown, build dams, kit
""")
BIRDS = _animals("""
owl, owls, 2, hoots, mice, a tree, brown, see in the dark, owlet
duck, ducks, 2, quacks, bread, a pond, white, swim, duckling
hen, hens, 2, clucks, seeds, a farm, brown, lay eggs, chick
crow, crows, 2, caws, worms, a tree, black, fly, chick
robin, robins, 2, chirps, worms, a nest, brown and red, sing, chick
swan, swans, 2, hisses, water plants, a lake, white, swim, cygnet
goose, geese, 2, honks, grass, a pond, white, fly, gosling
penguin, penguins, 2, squawks, fish, the ice, black and white, swim, chick
parrot, parrots, 2, squawks, fruit, the jungle, green, talk, chick
""")
OTHER_ANIMALS = _animals("""
fish, fish, 0, makes no sound, water plants, water, silver, swim, fry
whale, whales, 0, sings, tiny shrimp, the sea, blue, dive deep, calf
dolphin, dolphins, 0, clicks, fish, the sea, grey, jump and swim, calf
snake, snakes, 0, hisses, mice, the grass, green, slide, hatchling
bee, bees, 6, buzzes, nectar, a hive, yellow and black, make honey, larva
ant, ants, 6, makes no sound, crumbs, a nest, black, carry heavy things, larva
butterfly, butterflies, 6, makes no sound, nectar, a garden, orange, fly, caterpillar
spider, spiders, 8, makes no sound, flies, a web, black, spin a web, spiderling
crab, crabs, 10, clicks, shells and weed, the beach, red, walk sideways, larva
snail, snails, 0, makes no sound, leaves, its shell, brown, carry its house, hatchling
""")
ANIMALS = LAND_ANIMALS + BIRDS + OTHER_ANIMALS
STORY_ANIMALS = LAND_ANIMALS + BIRDS
FANTASY = "dragon robot wizard knight pirate giant king".split(), "dragon witch princess fairy queen robot".split()
WORKERS = "baker farmer fisherman sailor gardener painter shepherd".split(), "baker farmer doctor sailor gardener painter teacher".split()

# noun; where one is in it; what one may find there (behind, under or near it)
PLACES = [
    ("forest", "in the forest", "a mossy log|a tall pine tree|an old oak tree|a bush|a heap of leaves"),
    ("woods", "in the woods", "a hollow tree|a fallen branch|a bush|a big fern"),
    ("park", "in the park", "a wooden bench|the big slide|a bush|the old fountain"),
    ("garden", "in the garden", "a flower pot|the rose bush|the apple tree|the little shed"),
    ("beach", "on the beach", "a flat rock|a pile of seaweed|an old boat|a heap of sand"),
    ("farm", "on the farm", "the red barn|a stack of hay|the old cart|the well"),
    ("meadow", "in the meadow", "a tall thistle|a round stone|a clump of daisies|the wooden fence"),
    ("river", "by the river", "a grey rock|the little bridge|a willow tree|the tall reeds"),
    ("lake", "by the lake", "a wooden boat|a willow tree|the tall reeds|a smooth stone"),
    ("mountain", "on the mountain", "a big rock|a small cave|a twisted tree|a pile of stones"),
    ("hill", "on the hill", "a thorn bush|a big rock|a lonely tree|an old wall"),
    ("village", "in the village", "the well|a market cart|the church wall|a barrel"),
    ("market", "at the market", "a basket of apples|a barrel|the cheese stand|a wooden box"),
    ("castle", "in the castle", "a stone stair|a heavy curtain|a suit of armour|a tall clock"),
    ("harbour", "in the harbour", "a fishing net|a barrel|a small boat|a coil of rope"),
    ("field", "in the field", "a scarecrow|a stack of hay|the hedge|a wooden gate"),
    ("island", "on the island", "a palm tree|a big shell|a black rock|the wreck of a ship"),
    ("valley", "in the valley", "a round stone|an old mill|a bush|the stream"),
    ("orchard", "in the orchard", "a pear tree|a ladder|a basket|the stone wall"),
    ("playground", "at the playground", "the swings|the sand box|the slide|a bench"),
    ("school", "at school", "a desk|the book shelf|the piano|a tall plant"),
    ("library", "in the library", "a tall shelf|a soft chair|the globe|a pile of books"),
]
PLACE_NAMES = [name for name, _, _ in PLACES]

COLOURS = "red blue green yellow white black brown orange purple pink grey golden silver".split()
TOYS = """kite ball drum doll boat scarf hat umbrella lantern balloon bell whistle flute basket blanket
button ring necklace cup book train teddy wagon ribbon bicycle sled box coat mitten""".split()
HAND_MADE = "kite boat drum basket flute lantern sled wagon doll necklace box scarf whistle".split()
SHARED_TOYS = "kite ball drum doll boat balloon whistle flute book train teddy wagon sled lantern".split()
TREASURES = """key shell feather coin stone map marble acorn bottle mirror compass clock letter crown egg
lamp pearl book rope flower leaf seed spoon hammer ladder pencil candle crystal cup medal""".split()
MAGIC = "ring lamp stone seed feather mirror hat key bell pencil shoe".split()
FOODS = """apple cake pie sandwich pear biscuit muffin bun plum peach banana carrot""".split()
MEALS = """soup bread cheese honey pancakes porridge stew berries cookies nuts cherries""".split()
SIZES = "small big tiny large little".split()
TRAITS = """kind brave curious clever shy quiet gentle cheerful lazy proud careful clumsy lonely friendly
playful honest patient stubborn funny dreamy""".split()
HOBBIES = """painting pictures|singing songs|climbing trees|collecting stones|reading books|telling jokes|baking bread
|watching the clouds|playing hide and seek|swimming|dancing|looking at the stars|building things|picking flowers
|riding a bicycle|playing the drum|fishing|jumping in puddles|drawing maps|listening to stories""".replace("\n", "").split("|")
ELDERS = "mother father grandmother grandfather aunt uncle".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = """January February March April May June July August September October November December""".split()
CITIES = """Paris London Berlin Rome Madrid Tokyo Oslo Vienna Lisbon Dublin Athens Cairo Delhi Boston Toronto
Sydney Lima Prague Warsaw Zurich""".split()
JOBS = "teacher doctor baker farmer pilot painter singer cook writer nurse gardener driver builder sailor".split()
MOODS = "happy glad proud thankful joyful delighted".split()
HOT_MEALS = "soup stew porridge tea bread".split()
NUMBER_WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen twenty""".split()
