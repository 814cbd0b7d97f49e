"""The plots. Each is a list of beats, each beat a template; grammar.py says how they expand.

Slots: hero, kind, he/him/his of the hero; friend, fkind, fhe/fhim/fhis of the friend; elder; place, inplace, toplace,
spot; object (an adjective and thing), thing; food, meal; glad (a mood). A beat may be empty.
"""

PLOTS: dict[str, list[str]] = {}

PLOTS["losing something"] = [
    "{^he} had {a:object}[, and {he} [took|carried] it everywhere|. It was [{his} favourite thing|a gift from {his} {elder}]| that {he} loved [very much|more than anything]].",
    "[One|But one|Then one] [day|morning|afternoon], {he} [went|walked] {toplace} [and lost it|and came home without it]. [{^he} looked [everywhere|high and low], but the {thing} was gone.|\"Oh no, where is my {thing}?\" {he} cried.|{^hero} felt so sad that {he} began to cry.]",
    "{^a_friend} [heard {him}|came by|saw {him}] [and asked, \"What is wrong?\"|and sat down beside {him}. \"Why are you sad?\" asked {friend}.]",
    "\"I [have lost|cannot find] my {object},\" [said|answered|whispered] {hero}. \"[Do not worry|Do not cry|Cheer up],\" said {friend}. \"[I will help you [look|find it]|Let us look together|We will find it].\"",
    "[They looked [behind|under] {spot2}, but [it was not there|they found nothing|there was only dust]. |They walked slowly and looked at the ground. |]Then {friend} [looked|peeked] [behind|under] {spot}. \"[Here it is|I see it|Look, here it is]!\" {fhe} [called|shouted].",
    "{^hero} [hugged {friend}|jumped for joy|smiled from ear to ear|laughed out loud] and [took|held] the {thing} in {his} [arms|hands]. \"Thank you, {friend}! [You are a true friend.|I could not have found it without you.|You are so kind.]\"",
    "[That [evening|night]|On the way home], {hero} felt {glad}[, and {he} never lost the {thing} again|. From then on, {hero} and {friend} were [good|the best of] friends|].",
]

PLOTS["helping"] = [
    "[One|One fine|One windy|One cold] [day|morning|afternoon], {he} was [walking|playing] {inplace} when {he} heard a [small|sad|quiet|tiny] [voice|cry|sound].",
    "It was {a:friend_words}, [who was stuck [in the mud|between two rocks|in a deep hole|under a fallen branch]|who had [hurt {fhis} foot|lost the way home]]. \"[Please help me|Help, help|Can you help me]!\" [cried|called|said] the {fkind}.",
    "{^hero} was [a little afraid|not very strong|too small to help alone], but {he} [wanted to help|did not run away|stayed calm]. \"[Hold on|Wait here|Do not be afraid],\" {he} said. \"[I have an idea|I will be right back|I will help you].\"",
    "{^he} [ran home and|looked around and|thought for a moment and] [came back with|found] [a long rope|a strong stick|{his} {elder}|{a:object}]. [Slowly|Bit by bit|Step by step], {hero} [got the {fkind} out|helped the {fkind} up|brought the {fkind} to a safe place].",
    "\"[Thank you so much|Thank you, thank you|You saved me]!\" said the {fkind}. \"My name is {friend}. What is yours?\" \"I am {hero},\" said {hero} [with a smile|shyly|and laughed].",
    "[Since|From] that day[ on|], {hero} and {friend} [played together [every day|{inplace}]|were best friends|met {inplace} every week]. [{^hero} was {glad} [to have a new friend|that {he} had helped].|And when {hero} needed help, {friend} was always there.]",
]

PLOTS["sharing"] = [
    "[One|One sunny|One warm] [day|afternoon|morning], {his} {elder} gave {him} {a:food} [to eat {inplace}|for the long walk]. [It smelled [wonderful|so good|sweet].|It was still warm.|{^hero} was very hungry.]",
    "[Just as {he} was about to eat|When {he} sat down under a tree|On the way {toplace}], {he} [met|saw] {a_friend}. {^friend} [looked hungry and tired|had nothing to eat|looked at the {food} with big eyes].",
    "[\"Are you hungry?\" asked {hero}. \"Yes, I have not eaten [all day|since yesterday],\" said {friend}.|\"What a lovely {food}!\" said {friend}. \"I have nothing to eat today.\"]",
    "{^hero} [thought about it|looked at the {food}|was hungry too]. [Then|But then] {he} [cut|broke] the {food} in two and gave {friend} [one half|the bigger half]. \"[Here, this is for you|It tastes better when we share|There is enough for both of us],\" {he} said.",
    "[They sat [side by side|together in the sun|in the grass] and ate. |They ate every crumb. |]{^friend} [smiled|was so thankful] and [said, \"You are very kind, {hero}.\"|said, \"I will never forget this.\"]",
    "[The next day|A week later|Some days later], {friend} [came back with|brought {hero}] [a basket of|a bowl of|a bag of] {meal}. \"Now I can share with you!\" said {friend}.",
    "{^hero} was {glad}. {^he} had learned that [sharing makes [friends|everyone happy]|a small gift can come back as a big one|food tastes best when it is shared].",
]

PLOTS["being brave"] = [
    "But {hero} was afraid of [the dark|deep water|thunder|loud noises|high places]. [Every time {he} thought of it, {his} knees shook.|{^he} did not want [anyone|{his} friends] to know.|At night {he} hid under the blanket.]",
    "{^his} friend {friend}, {a:friend_words}, [wanted to|was not afraid of anything and wanted to] [go {toplace}|see what was {inplace}]. \"Come with me, {hero}!\" said {friend}. \"[It will be fun|You will see, it is nice there].\" \"I cannot,\" [whispered|said] {hero}. \"I am too afraid.\"",
    "So {friend} went alone. [Soon|After a while|Suddenly], {hero} heard a cry. \"Help! [I have fallen down|I am stuck|I cannot get back]!\" {^it} was {friend}!",
    "{^hero} [took a deep breath|closed {his} eyes and counted to three|forgot all about {his} fear]. [Then {he} ran [as fast as {he} could|without stopping]|{^he} took a lamp and ran] {toplace}. {^his} heart was beating [fast|like a drum], but {he} did not [stop|turn back].",
    "{^he} found {friend} near {spot} and [pulled {fhim} up|helped {fhim} out|took {fhim} by the hand]. \"You came!\" said {friend}. \"[I was afraid|I was very afraid], but [you needed me|you are my friend],\" said {hero}.",
    "[They walked home together, and|That night, when {he} lay in bed,|From that day on,] {hero} felt {glad}. [Being brave does not mean that you are never afraid. It means that you try.|{^he} knew now that {he} was brave.|{^he} was still a little afraid, but {he} knew that {he} could be brave.]",
]

PLOTS["making something"] = [
    "[One|One rainy|One quiet] [day|morning|afternoon], {he} [had an idea|had a wonderful idea]. \"I will [make|build] {a:object}!\" {he} said [to {the_friend}|to {his} friend {friend}, {a:fkind}].",
    "{^hero} [worked all day|worked [and worked|very hard]|tried and tried], but [the {thing} fell apart|the {thing} broke in two|something was wrong]. [\"It is no use,\" {he} said.|\"I will never do it,\" {he} said and [sat down|began to cry].]",
    "{^friend} looked at the pieces. \"[You are doing it too fast|You only need more string|It is a good start],\" {fhe} said. \"[Try again, and I will hold it for you|Let us do it together|Let us try another way].\"",
    "[So they tried again.|So {hero} tried once more.|They began again from the start.] [{^hero} held the wood, and {friend} tied the string.|This time they worked slowly and carefully.|{^friend} found a piece of wood near {spot}.] [Little by little|At last|When the sun went down], the {thing} was [ready|done].",
    "It was [the most beautiful {thing} {inplace}|{a:object}, [big|strong] and fine|not perfect, but it was theirs]. [They took it {toplace} to [try it|show it to everyone].|{^his} {elder} [clapped and said, \"Well done!\"|could not believe it.]]",
    "{^hero} was {glad}. \"We did it together,\" {he} said. [And {friend} smiled.|It is good to try again.|\"Next time we will make an even better one!\"]",
]

PLOTS["a race"] = [
    "[One day|One morning|In the spring], there was a [big|great] race {inplace}. {^hero} wanted to win, but so did {the_friend}. \"I am the fastest of all,\" said {friend}. \"[Nobody can beat me|You are much too slow, {hero}].\"",
    "\"[We will see|I will do my best|Let us run and see],\" said {hero}. [All the animals came to watch.|Everybody came to watch.|The old owl counted to three, and off they went.]",
    "At first, {friend} was far [ahead|in front]. [{^fhe} laughed and looked back.|{^fhe} was so sure of {fhimself} that {fhe} stopped to [rest|eat an apple] near {spot}.] {^hero} [did not give up|kept going, step by step|ran slowly but did not stop].",
    "[Then|Suddenly|Near the end], {friend} [tripped over a stone and fell|got a thorn in {fhis} foot]. \"Ouch!\" {fhe} cried. {^hero} [could have run on|could see the end of the race], but {he} [stopped and turned around|went back to help].",
    "\"Can you stand up?\" asked {hero}. \"[Lean on me|Take my hand].\" And so they [crossed the line together|came in together, side by side]. [Everyone cheered.|The crowd clapped and cheered.]",
    "\"I am sorry that I [laughed at you|called you slow],\" said {friend}. \"You won more than a race today.\" {^hero} [smiled|felt {glad}]. [They were friends from then on.|A friend is worth more than a prize.|They shared the prize, {a:food}.]",
]

PLOTS["saying sorry"] = [
    "{^hero} and {the_friend} were [best|good] friends. [They did everything together.|They played {inplace} every day.] But [one day|one afternoon], they both wanted [to play with|to hold|to keep] the {object}.",
    "\"It is mine!\" [shouted|said] {hero}. \"No, I [saw|had] it first!\" [shouted|said] {friend}. They pulled and pulled, until the {thing} [broke|fell to the ground and broke|broke in two].",
    "Then it was very quiet. {^friend} [ran away|went home without a word], and {hero} [sat alone {inplace}|was left alone with the pieces]. [{^he} felt angry at first, and then {he} felt sad.|The day felt long and empty without {fhim}.]",
    "\"[A {thing} is only a {thing}|I miss my friend],\" thought {hero}. {^he} [took some glue and|sat down and|found some glue and] [fixed|mended] the {thing}[ as well as {he} could|]. [It took all evening.|]",
    "[The next morning|In the morning], {hero} went to {friend}'s house. \"I am sorry that I [shouted|pulled],\" {he} said. \"You may have the {thing}.\" \"I am sorry too,\" said {friend}. \"[Let us share it|Let us play with it together].\"",
    "[So they [took turns|played together all day].|They shook hands and laughed.] {^hero} was {glad} [to have {his} friend back|that they were friends again]. [Saying sorry is hard, but it helps.|]",
]

PLOTS["finding the way home"] = [
    "[One|One foggy|One grey|One snowy] [day|evening|afternoon], {he} [walked too far|went too deep] {inplace} and [lost {his} way|could not find the way back]. [All the paths looked the same.|The sky grew dark, and the wind was cold.|Everything looked strange.]",
    "\"[Hello? Is anyone there|How will I get home]?\" {he} [called|asked in a small voice]. [Nobody answered.|Only the wind answered.] {^hero} sat down near {spot} and [tried not to cry|pulled {his} coat tight].",
    "[Then|After a while], {he} saw [a small light|two bright eyes] between the trees. It was {a_friend} [with a lantern|on the way home]. \"Are you lost?\" asked {friend}.",
    "\"Yes,\" said {hero}. \"I want to go home, but I do not know the way.\" \"[I know every path {inplace}|That is easy],\" said {friend}. \"[Follow me|Hold my hand|Stay close to me].\"",
    "They walked [past|around] {spot2} and [over a small bridge|along a narrow path|down a long hill]. [On the way, {friend} told {him} [funny stories|about the stars].|They sang a song so that the dark was not so dark.]",
    "[At last|Soon], {hero} saw [the lights of {his} house|{his} {elder} at the door]. {^his} {elder} [hugged {him}|ran out and held {him} tight] and gave them both some [hot|warm] {hot_meal}. {^hero} was {glad} to be home[.|, and {friend} was now {his} friend.]",
]

PLOTS["a gift"] = [
    "It was the birthday of {his} {elder}, and {hero} [wanted to give|was looking for] [a gift|something special]. But {he} had no money. \"What can I do?\" {he} asked {the_friend}.",
    "\"[A gift does not have to cost money|You do not need money for a gift|You can find something {inplace}],\" said {friend}. [So they went {toplace}.|So they set off {toplace} together.]",
    "[They looked and looked.|They looked under every stone.|They walked for a long time.] [Behind|Under|Near] {spot}, {hero} found {a:object}. [It was old and dirty.|It was dusty, but it was pretty.] {^he} [washed it|cleaned it with {his} sleeve|rubbed it] until it [shone|looked like new].",
    "[In the evening|That evening|After dinner], {he} gave the {thing} to {his} {elder}. \"[Happy birthday|This is for you]!\" {he} said. {^his} {elder} [was silent for a moment|looked at it for a long time]. \"[It is the most beautiful gift of all|I have never had such a fine gift],\" {his} {elder} said.",
    "{^hero} felt {glad}. [{^friend} had been right: a gift from the heart is the best gift.|They ate {meal} and sang songs until late.|And the {thing} stood on the table for many years.]",
]

PLOTS["treasure"] = [
    "[One day|One morning|One stormy night], {he} found [an old map|a bottle with a map inside|a strange letter] [behind|under] {spot2}. There was a red cross on it. \"[A treasure|It is a treasure map]!\" said {hero}.",
    "{^he} showed it to {the_friend}. \"The cross is {inplace},\" said {friend}. \"[Let us go|What are we waiting for]!\" They [packed|took] some {meal} and [set off|left at once].",
    "The way was [long|steep|hot and dusty]. [They crossed a stream and climbed over rocks.|They walked until their feet hurt.] [{^friend} wanted to turn back, but {hero} said, \"Just a little more.\"|They sang to keep going.]",
    "At last they [dug|looked] [under|behind] {spot}. There was [a wooden chest|an iron box|a small box]! {^hero} opened it with [shaking hands|a loud creak]. Inside was [no gold at all, only|nothing but] {a:object}[ and a note|]. [The note said, \"For a true friend.\"|]",
    "\"[It is not gold|So this is the treasure],\" said {friend}, \"but [we had a great adventure|it is very pretty].\" {^hero} laughed. \"[The best treasure is a friend who comes along|I would not want any other treasure],\" {he} said.",
    "[They took the {thing} home and|They] [told the story to everyone|put it where both could see it]. {^hero} was {glad}[.| all the way home.]",
]

PLOTS["rain"] = [
    "[One day|One afternoon], {he} was [playing|walking] {inplace} with {the_friend} when [dark clouds came|the sky turned grey]. [A drop fell on {his} nose.|\"I think it will rain,\" said {friend}.] [Soon|Then] it began to rain [very hard|and rain].",
    "They [ran|hurried] to {spot} and hid there. [{^hero} was cold and wet.|The thunder rolled, and they held each other's hands.|\"Now our day is ruined,\" said {hero}.]",
    "\"[It will stop soon|Rain is not so bad|Let us play a game],\" said {friend}. [So they counted the drops.|So they told each other stories.|They listened to the rain, and it sounded like music.] {^hero} had {a:food} in {his} pocket, and they shared it.",
    "After [an hour|a while], the rain stopped, and the sun came out. \"[Look|Look up]!\" [called|cried] {friend}. There was a [big|bright] rainbow [over the hills|in the sky]. [It was red, orange, yellow, green and blue.|It was the most beautiful thing {hero} had ever seen.]",
    "[They took off their shoes and jumped in the puddles.|They ran through the wet grass and laughed.] {^hero} was {glad}. \"[Without the rain there would be no rainbow|I like rain now],\" {he} said.",
]
