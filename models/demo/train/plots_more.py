"""More plots; plots.py lists the slots."""

PLOTS: dict[str, list[str]] = {}

PLOTS["magic"] = [
    "[One|One strange|One quiet] [day|evening|morning], {he} found {a:magic} [under|behind|near] {spot} {inplace}. [It was glowing softly.|It was warm in {his} hand.] [When {he} touched it|As soon as {he} picked it up], a voice said, \"You have one wish.\"",
    "{^hero} could not believe it. [\"I could wish for a mountain of cakes,\" {he} thought. \"Or I could wish to fly.\"|{^he} thought of toys, of gold and of a house made of cake.] {^he} [ran to tell|wanted to tell] {the_friend}.",
    "But {friend} was [ill and lay in bed|very sad, because {fhis} house had burned down|crying, because {fhis} {elder} was ill]. [{^friend} tried to smile, but {fhe} could not.|\"I cannot play today,\" {fhe} said.] {^hero} looked at the {magic} and knew what to do.",
    "\"I wish that [all is well again|my friend is happy again],\" {he} said. There was a [flash of light|soft sound, like a bell], and [the {magic} turned to dust|the {magic} was gone].",
    "[In the morning|At once|A moment later], everything was [well|good] again. [{^friend} jumped up and danced.|{^friend} laughed and hugged {him}.] \"You gave away your wish for me!\" said {friend}. \"[I did not need it|I would do it again],\" said {hero}, and {he} was {glad}.",
]

PLOTS["learning"] = [
    "{^he} wanted to [swim|dance|whistle|sing|skate|read|climb|juggle|paint] more than anything. [But every time {he} tried, it went wrong.|The others could do it, but {hero} could not.|\"I will never learn it,\" {he} often said.]",
    "[One day|One morning], {the_friend} [saw {him} {inplace}|came by and watched {him}]. \"[I could not do it at first either|Nobody can do it the first time],\" said {friend}. \"[I will teach you|I can show you how|Let us practise together].\"",
    "[Every day|Every morning|Day after day], they met {inplace}. [On Monday {he} fell down. On Tuesday {he} fell down again.|At first it was hard.|{^hero} made many mistakes.] \"[Once more|Do not give up|One more time],\" said {friend}.",
    "And then, [one fine day|after many days|on a sunny morning], {hero} [could do it|did it all alone]! \"[Look at me|I can do it, I can do it]!\" {he} [shouted|called]. {^friend} clapped [{fhis} hands|] and [cheered|laughed].",
    "{^hero} was {glad}. \"Thank you for [teaching me|your patience],\" {he} said. [If you practise every day, you can learn almost anything.|Now {he} teaches others, and {he} always says, \"Do not give up.\"|\"Thank yourself,\" said {friend}. \"You did not give up.\"]",
]

PLOTS["a new friend"] = [
    "{^he} had just moved to a new [house|village|town], and {he} did not know anyone. [{^he} missed {his} old friends.|Every day {he} sat {inplace} alone with {his} {object}.]",
    "[One day|One afternoon|One morning], {he} saw {a_friend}. {^friend} was also alone. [{^hero} wanted to say hello, but {he} was too shy.|They looked at each other, but nobody said a word.]",
    "Then [the wind blew|{hero} dropped] {his} {thing}[, and it landed| and it rolled] right in front of {friend}. {^friend} picked it up. \"[Is this yours?\" {fhe} asked.|What a nice {thing}!\" {fhe} said.]",
    "\"Yes, [it is mine|thank you],\" said {hero}. \"[Would you like to play with me|Do you want to play with it too]?\" \"[I would love to|Yes, please],\" said {friend}. \"[I have been waiting for someone to ask me|Nobody ever asks me].\"",
    "They played {inplace} until [the sun went down|it was dark]. [They found out that they both loved {meal}.|They laughed so much that their sides hurt.] {^hero} was {glad}. [That night {he} told {his} {elder}, \"I have a new friend.\"|Now the new place felt like home.]",
]

PLOTS["a garden"] = [
    "[In the spring|One day in spring|In April], {his} {elder} gave {him} a [small|tiny] seed. \"[Plant it and be patient|Take good care of it],\" {his} {elder} said. {^hero} planted it near {spot}.",
    "[Every day|Every morning], {he} gave it water. But nothing happened. [A week went by, and then another.|{^he} waited and waited.] \"It will never grow,\" {he} said to {the_friend}.",
    "\"[Give it time|Good things take time|Seeds are slow],\" said {friend}. \"[Sing to it|Wait a little longer].\" So {hero} [sang to the seed|sat down beside it and told it stories] every evening.",
    "[And one morning|Then, one morning], there was a tiny green leaf! It grew and grew. [First it was as high as {his} knee, and then it was taller than {his} {elder}.|By the summer it was a tall plant with yellow flowers.]",
    "[In the autumn|At the end of the summer], there were [so many [berries|apples|plums|pears] on it that {hero} could not eat them all|red apples on it|big yellow pears on it]. {^he} [shared them with {friend}|gave some to everyone {inplace}] and was {glad}. [\"You were right,\" {he} said. \"Good things take time.\"|And {he} kept one seed for the next spring.]",
]

PLOTS["telling the truth"] = [
    "[One day|One rainy day|One afternoon], {he} was playing with a ball in the house, although {his} {elder} had said no. [Bang!|Crash!] The ball hit the [blue vase|big mirror|old clock|window], and it broke.",
    "\"What shall I do?\" thought {hero}. {^he} [hid the pieces|put the pieces under the bed]. \"You could say that [the wind did it|it was the cat],\" said {the_friend}. [But {hero} had a bad feeling.|{^hero} thought about it all day, and {his} tummy hurt.]",
    "[At dinner|In the evening|That evening], {his} {elder} asked, \"Do you know what happened?\" {^hero} [turned red|looked at {his} feet|could not eat {his} {meal}]. [It was quiet.|{^he} took a deep breath.] \"It was me,\" {he} said. \"I am sorry.\"",
    "{^his} {elder} [was quiet for a moment|sat down beside {him}]. \"[I am sad that it broke|I knew it already],\" {his} {elder} said, \"but I am [proud|glad] that you told me the truth. [That was brave.|It takes courage.]\"",
    "[Together they picked up the pieces.|Together they glued it.|The next day they bought a new one.] {^hero} felt {glad}[, and {his} tummy did not hurt any more|]. [The truth is not always easy, but it is always better.|{^he} never hid anything again.]",
]

PLOTS["caring for a sick friend"] = [
    "[One|One cold|One winter] [day|morning], {his} friend {friend}, {a:friend_words}, did not come {toplace} to play. {^hero} waited [all morning|for an hour]. [\"Where can {fhe} be?\" {he} wondered.|Something was wrong.]",
    "So {he} went to {friend}'s house. {^friend} lay in bed and [coughed|sneezed]. \"[I have a cold|I feel ill],\" {fhe} said [in a small voice|sadly]. \"[I cannot play today|My head hurts].\"",
    "{^hero} [went straight home|ran home] and [cooked|made] some [hot|warm] {hot_meal}. {^he} also took {his} {object}, because it always [made {him} smile|cheered {him} up].",
    "{^friend} [felt a little better at once|smiled a little]. Then {hero} [read {fhim} a story|told {fhim} jokes|sang a song] until {fhe} fell asleep. {^he} came back [every day|each morning].",
    "[After three days|A few days later|At the end of the week], {friend} was well again. \"[Your visits made me well|You are the best doctor in the world],\" said {friend}. {^hero} was {glad}, and they went {toplace} to play.",
]

PLOTS["a strange noise"] = [
    "[One|One dark|One stormy|One winter] night, {he} heard a [strange|funny|scary] noise. [Tap, tap, tap.|Scratch, scratch.|Whooo, whooo.|Knock, knock.] {^he} pulled the blanket over {his} head.",
    "\"[Is it a ghost|Is it a monster]?\" {he} [thought|whispered]. [The noise came again.|Then it was quiet. Then it came again.] {^hero} [took|picked up] a [lamp|candle] and [tiptoed to the door|went slowly to the window].",
    "{^he} opened it, and there sat {a_friend}! {^fhe} was [wet and cold|shaking with cold|all alone]. \"[I am sorry that I woke you|Please do not be afraid],\" said {friend}. \"[The storm blew my home away|I only wanted to get warm].\"",
    "{^hero} had to laugh. \"[And I thought that you were a monster|I was so afraid of you],\" {he} said. \"Come in!\" {^he} gave {friend} [a blanket and some warm {hot_meal}|some {meal} and a place by the fire].",
    "They talked until [late|the moon was high], and then they fell asleep. {^hero} was {glad} that {he} had opened the door. [Many scary things are small when you look at them.|And when {he} hears a noise at night now, {he} only smiles.]",
]

PLOTS["the stars"] = [
    "[One night|One summer night|One clear night], {he} could not sleep. [The moon was shining into {his} room.|{^he} turned to the left, and {he} turned to the right.] So {he} [got up and went|tiptoed] outside with {his} {elder}.",
    "They lay down in the grass {inplace} and looked up. \"How many stars are there?\" asked {hero}. \"[More than we can count|Nobody knows],\" said {his} {elder}. \"[Shall we try|Shall we count them]?\"",
    "\"One, two, three, four,\" they counted. [Suddenly|Just then], a star fell across the sky. \"[Make a wish|Quick, make a wish]!\" said {his} {elder}. {^hero} closed {his} eyes and wished for [a friend|{a:object}|a day just like this one].",
    "[A soft wind blew|An owl called far away], and {hero} began to yawn. {^his} {elder} [carried {him} inside|took {him} by the hand] and [tucked {him} in|sang a quiet song]. \"[Good night|Sleep well], {hero}.\"",
    "{^hero} [dreamed that {he} was flying between the stars|was already asleep]. [In the morning {he} felt {glad}.|{^he} was {glad}, even in {his} dream.]",
]

PLOTS["the dragon"] = [
    "[High on the mountain|In a deep cave|Behind the hills], there lived a dragon called {friend}. Everybody was afraid of {fhim}. \"The dragon is dangerous,\" people said. [But nobody had ever talked to {fhim}.|Nobody dared to go near.]",
    "[One day|One winter], all the fires in the village went out, and it was very cold. \"Someone must ask the dragon for fire,\" said {hero}. [\"I will go.\"|Nobody wanted to go, so {hero} went alone.]",
    "{^he} climbed all day. [At the top {he} called, \"Hello, dragon!\"|{^his} legs were shaking when {he} came to the cave.] A big [green|red|blue|golden] head came out. \"[Who are you|What do you want]?\" asked {friend} [in a deep voice|and blew some smoke].",
    "\"I am {hero},\" said {hero}. \"We are cold. Will you give us some of your fire?\" The dragon began to cry. \"[Nobody ever visits me|Everyone runs away from me],\" {fhe} said. \"[I am so lonely|I would love to help].\"",
    "So {friend} flew down with {hero} on {fhis} back and lit [all the fires|every lamp and every stove]. [The people clapped and cheered.|At first the people hid, but then they came out.] They gave {fhim} [a big pot of {meal}|a warm scarf].",
    "From then on, {friend} came [every winter|every Sunday]. {^hero} was {glad}. [It is good to talk before you are afraid.|And nobody said again that the dragon was dangerous.]",
]

PLOTS["a silly day"] = [
    "[One|One hot|One Monday] morning, {he} woke up and everything was [upside down|wrong]. [{^his} shoes were in the bread box.|{^his} {thing} was in the soup.|The cat was wearing a hat.] \"[What is going on|What has happened here]?\" said {hero}.",
    "{^he} [went|ran] {toplace} to ask {the_friend}. But {friend} was [standing on {fhis} head|wearing a pot as a hat|singing to a potato]. \"Good night!\" said {friend}. \"[Good night? It is morning|But it is morning]!\" said {hero}.",
    "\"[Today is the day of silly things|Today is Backwards Day],\" said {friend}. \"[We say no when we mean yes|We eat dessert first]. [Do you want some {meal}|Do you want to play]?\" {^hero} [thought for a moment|grinned]. \"No!\" {he} said, and they both laughed.",
    "They [walked backwards|hopped on one leg] all the way around {spot}. They [put socks on their hands|drank soup with a fork]. They laughed until [their tummies hurt|they fell over].",
    "In the evening, {hero} [put on {his} coat to go to bed|said good morning and went to bed]. {^he} was {glad}. [It had been the silliest day of the year.|\"Tomorrow I will be serious,\" {he} said. But {he} was not.]",
]
