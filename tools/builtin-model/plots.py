"""The story grammar: openings, plots beat by beat, endings and morals.

The template language and the fields are described in `stories.py`. Each plot
lists its beats in order, and for each beat several ways to tell it; any way of
one beat fits any way of the next, which is what keeps a story causal.
`H` is the hero, `F` the friend, `E` the elder; `^` forces a capital.
"""

OPENINGS = {
    "person": [
        "[Once upon a time[,|]|One day[,|]|Once|Long ago,|Many years ago,] [there was|there lived] a~ {Hadj} {Hkind} named {H}. {he} lived {home}.",
        "[There was once|There once was] a~ {Hadj} {Hkind} [called|named] {H} who lived {home}.",
        "{H} was a~ {Hadj} {Hkind} who lived {home}.",
        "{Hthe} lived {home}. [Everyone said that {he} was {Hadj}|{he} was {Hadj}, and everyone knew it|People liked {him}, for {he} was {Hadj}].",
        "A~ {Hadj} {Hkind} named {H} lived {home}.",
        "The {Hkind} in this story was called {H}. {he} was {Hadj} and lived {home}.",
        "Let me tell you about {H}, a~ {Hadj} {Hkind} who lived {home}.",
        "On {day}, {Hthe} [woke up early|got up early|was the first to wake]. {he} was a~ {Hadj} {Hkind} who lived {home}.",
        "[Far away|Somewhere far from here|In a far country], there lived a~ {Hadj} {Hkind} [named|called] {H}. {his} home was {home}.",
        "Have you heard of {H}, the {Hadj} {Hkind}? {he} lived {home}.",
        "It was {season}. {H}, a~ {Hadj} {Hkind}, lived {home}.",
        "A~ {Hkind} [named|called] {H} lived {home}. {he} was [so {Hadj} that everyone talked about it|{Hadj}, and {he} knew it|{Hadj} from head to toe].",
        "{home}, there lived a~ {Hadj} {Hkind}. {his} name was {H}.",
        "The {Hadj} {Hkind} {H} lived {home}.",
        "This is the story of {H}, a~ {Hadj} {Hkind} who lived {home}.",
        "[In the old days|Not so long ago|One {season}|One {weather} {season}], a~ {Hkind} named {H} lived {home}. {he} was [very|rather|always] {Hadj}.",
    ],
    "animal": [
        "[Once upon a time[,|]|One day[,|]|Once|Long ago,] [there was|there lived] a~ {Hadj} {Hkind} named {H}. {he} lived {home}.",
        "[There was once|There once was] a~ {Hadj} {Hkind} [called|named] {H} who lived {home}.",
        "{H} was a~ {Hadj} {Hkind} who lived {home}.",
        "{Hthe} lived {home}. [All the animals knew {him}|{he} was {Hadj}, and all the animals knew it|{he} was the most {Hadj} {Hkind} of all].",
        "A~ {Hadj} {Hkind} named {H} lived {home}.",
        "The {Hkind} in this story was called {H}. {he} was {Hadj} and lived {home}.",
        "Let me tell you about {H}, a~ {Hadj} {Hkind} who lived {home}.",
        "On {day}, {Hthe} [woke up early|got up early|was the first to wake]. {he} was a~ {Hadj} {Hkind} who lived {home}.",
        "[Far away|Somewhere far from here|In a far country], there lived a~ {Hadj} {Hkind} [named|called] {H}. {his} home was {home}.",
        "Have you heard of {H}, the {Hadj} {Hkind}? {he} lived {home}.",
        "It was {season}. {H}, a~ {Hadj} {Hkind}, lived {home}.",
        "A~ {Hkind} [named|called] {H} lived {home}. {he} was [so {Hadj} that everyone talked about it|{Hadj}, and {he} knew it|{Hadj} from head to toe].",
        "{home}, there lived a~ {Hadj} {Hkind}. {his} name was {H}.",
        "The {Hadj} {Hkind} {H} lived {home}.",
        "This is the story of {H}, a~ {Hadj} {Hkind} who lived {home}.",
        "[One {season}|One {weather} {season}], a~ {Hkind} named {H} lived {home}. {he} was [very|rather|always] {Hadj}.",
    ],
}

# Between two beats of any plot: what was seen, heard and felt.
INTERLUDES = [
    "For a moment, everything was still.",
    "[A bird sang somewhere|A bell rang far away|The wind blew softly|A cloud moved over the sun|Somewhere a door creaked].",
    "{H} [took a deep breath|bit {his} lip|rubbed {his} eyes|scratched {his} head|shook {his} head].",
    "{his} heart [beat faster|was beating fast|beat like a drum].",
    "[Time went by|The hours passed|Slowly the light changed].",
    '{H} [remembered|thought of] what {E} always said: "[One step at a time|Use your eyes first|Begin, and the rest will follow|Nothing is as bad as it looks|Think first, then act]."',
    "It was [very quiet|warmer now|a little colder now|getting late].",
]

SCENES = [
    "It was a~ {weather} {season}, and [the air smelled of rain|the days were long|the leaves were moving in the wind|the birds were loud|everything was still].",
    "[In {season}|At that time of year], the [path|road|hill] near the {place} was [full of flowers|covered with leaves|quiet and empty|wet from the rain].",
    "[Every {time}|Each {time}], {H} [walked to the {place}|sat near the {place}|went past the {place}] and [listened to the birds|looked at the sky|thought about many things|hummed a little song].",
    "[More than anything|Most of all], {H} liked [quiet evenings|long walks|good stories|warm bread|the smell of rain|the first light of the day].",
]

ENDINGS = [
    "[That night|That evening], {H} [slept well|fell asleep with a smile|slept better than ever|dreamed of the {place}].",
    "And {H} [was happy|smiled all the way home|never forgot that day|laughed until {his} sides hurt].",
    "From that day on, {H} [remembered what {he} had learned|was never quite so worried again|told the story to anyone who would listen].",
    "[When the sun went down|At the end of the day|When the stars came out], {H} went home, [tired but happy|proud and glad|smiling to {self}].",
    "It had been a [good|long|wonderful|strange but good] day for {H}.",
    "{H} still tells the story [today|to this day|whenever it rains|on long evenings].",
    "",
]

MORALS = {
    "kindness": ["[So|And so|That is how] {H} learned that [kindness comes back|a kind act is never wasted|a little help can change a whole day].",
                 "{H} knew now that [helping others makes two hearts lighter|no one is too small to be kind]."],
    "patience": ["[So|And so|That is how] {H} learned that [good things take time|patience is worth more than speed|you have to begin badly before you do well].",
                 "{H} knew now that [practice makes hard things easy|slow steps also reach the top]."],
    "honesty": ["[So|And so|That is how] {H} learned that [the truth is easier to carry than a lie|honest words mend more than glue does].",
                "{H} knew now that [it is brave to tell the truth|an honest heart sleeps well]."],
    "courage": ["[So|And so|That is how] {H} learned that [being brave means going on while you are afraid|most fears are smaller than they look].",
                "{H} knew now that [courage grows each time it is used|the dark holds fewer monsters than the mind does]."],
    "sharing": ["[So|And so|That is how] {H} learned that [a thing that is shared is worth more|there is more joy in giving than in keeping].",
                "{H} knew now that [half a meal with a friend is better than a whole meal alone|what you give away stays with you]."],
    "care": ["[So|And so|That is how] {H} learned [to take care of the things {he} loved|to look twice before giving up|that calm eyes see more than hurried ones].",
             "{H} knew now that [a good search begins with a quiet mind|what is lost can often be found]."],
    "short": [
        {"kindness": "be kind, and kindness will find you.", "patience": "good things take time.",
         "honesty": "the truth is the best way out.", "courage": "be brave, even when you are afraid.",
         "sharing": "what you share grows.", "care": "look calmly, and you will find."},
        {"kindness": "no kind act is ever too small.", "patience": "keep trying, a little every day.",
         "honesty": "say what happened, and all will be well.", "courage": "fear grows small when you look at it.",
         "sharing": "joy is larger when two hold it.", "care": "take care of what you love."},
    ],
}  # fmt: skip

# Very short texts in which everything that is named comes back.
SNIPPETS = [
    "{H} has a {colour} {obj}. The {obj} [of {H}|that {H} has] is {colour}.",
    "This is {H}. {H} is a~ {Hkind}. [The {Hkind}|{H} the {Hkind}] is {Hadj}.",
    "{H} and {F} went to the {place}. {H} saw a {wild}. {F} saw the {wild}, too.",
    "\"Who has the {obj}?\" asked {H}. \"I have the {obj},\" said {F}. [{H} thanked {F}.|{H} was glad.|{F} gave the {obj} to {H}.]",
    "{H} likes {food}. {F} does not like {food}. So {F} gave the {food} to {H}.",
    "{H} lost a {obj}. {F} found the {obj}. {F} gave the {obj} [back |]to {H}.",
    "A~ {Fkind} named {F} lives near the {place}. {F} likes the {place}, and everyone likes {F}.",
    "{H} went to the {place} with a {obj}. At the {place}, {H} gave the {obj} to {F}. {F} thanked {H}.",
    "There was a {colour} {obj} at the {place}. {H} saw the {colour} {obj} and took it. The {obj} was {n} years old.",
    "\"What is your name?\" asked {F}. \"My name is {H},\" said {H}. \"And what is yours?\" \"I am {F},\" said {F}.",
    "{H} is a~ {Hkind}, and {F} is a~ {Fkind}. {H} and {F} are friends. The {Hkind} and the {Fkind} [play|sing|walk|eat] together.",
    "{H} had {n} {food}. {he} gave one to {F}. \"Thank you for the {food}, {H},\" said {F}.",
    "On {day}, {H} went to the {place}. {H} goes to the {place} every {day}.",
    "{F} asked {H} for a {obj}. {H} had no {obj}, so {F} asked {E}. \"Here is a {obj}, {F},\" said {E}.",
    "Is the {obj} {colour}? Yes, the {obj} is {colour}. {H} has seen it.",
    "{E} made a {obj} for {H}. {H} loves the {obj}, and {H} thanked {E}.",
    "{H} looked for {F} at the {place} and at the {place2}. {F} was not at the {place}. {F} was at the {place2}.",
    "The {wild} sleeps near the {place}. {H} does not want to wake the {wild}, so {H} leaves the {place}.",
    "\"{F}!\" called {H}. \"{F}, where are you?\" {F} was {hiding}. {H} found {F} there.",
    "{H} wants a {obj}, and {F} wants a {wild}. {E} has a {obj} for {H}, but no {wild} for {F}.",
]

PLOTS = {
    "lost": {
        "moral": "care",
        "subjects": ["a lost {obj}", "a {obj}", "a {colour} {obj}", "losing something"],
        "beats": [
            [
                "{H} had a {colour} {obj} that {he} [loved|liked more than anything|took everywhere|had got from {E}].",
                "[The thing that {H} loved most|{H}'s greatest treasure] was a {colour} {obj}.",
                "[On {his} birthday|One {weather} {time}], {E} gave {H} a {colour} {obj}[, and {he} was delighted|. {he} held it very carefully|].",
            ],
            [
                "One {time}, the {obj} was gone. {H} [looked everywhere|searched the whole house|turned everything upside down], but {he} could not find it.",
                "But one {weather} {time}, {H} [came home|looked around|reached for it], and the {obj} was not there. {he} [felt cold with fear|wanted to cry|could not believe it].",
                "Then, on the way to the {place}, {H} lost the {obj}. {he} only noticed it [in the evening|when it was almost dark|much later], and {his} heart [sank|grew heavy].",
            ],
            [
                '"[Have you seen|Did anyone see] my {colour} {obj}?" {he} asked {F}, a~ {Fadj} {Fkind}. "No," said {F}, "but I will help you look for it."',
                '{Fthe} saw that {H} was sad. "What is wrong?" {Fhe} asked. "My {obj} is lost," said {H}. "Then we will look for it together," said {F}.',
                '{he} told {his} friend {F}, a~ {Fadj} {Fkind}. "[Think|Try to remember]," said {F}. "Where did you last have the {obj}?"',
            ],
            [
                "They [looked|searched] near the {place}, and then they [looked|searched] near the {place2}. [They asked everyone they met.|Nobody had seen it.|]",
                "{H} and {F} walked [slowly|carefully] back along the path to the {place}, and they looked at every stone.",
                "The two friends went to the {place} and looked [left and right|high and low|under every leaf]. [It began to get dark.|They did not give up.|]",
            ],
            [
                'At last {F} [called|shouted], "[Here it is!|Look!|I see something {colour}!]" The {obj} lay {hiding}.',
                "Then {H} saw something {colour} {hiding}. It was the {obj}!",
                "[Finally|At last], {hiding}, {H} found the {obj}. It was [a little dirty|a little wet|quite safe], but it was not broken.",
            ],
            [
                '{H} [hugged|thanked] {F}. "[Thank you|You are a true friend]!" {he} said. "Without you I would never have found my {obj}."',
                '{H} held the {obj} tightly. "I will [take better care of it|never lose it again]," {he} [said|promised], and {F} laughed.',
                '"Thank you, {F}," said {H}, and {he} let {F} [carry|hold] the {obj} all the way home.',
            ],
        ],
    },
    "mended": {
        "moral": "care",
        "props": "BREAKABLE",
        "subjects": ["a broken {p0}", "a {p0}", "mending a {p0}", "repairing something"],
        "beats": [
            [
                "{H} had an old {p0} that {he} used [every day|almost every day|all through the {season}].",
                "{E} had once given {H} a {p0}, and {he} was very proud of it.",
                "There was one thing that {H} could not do without: {his} old {p0}.",
            ],
            [
                "One {weather} {time}, there was a loud crack. The {p1} of the {p0} was broken.",
                "But on {day}, the {p1} of the {p0} broke. {H} [sat down and sighed|stared at it in dismay|did not know what to do].",
                "Then one {time}, {H} was [in too much of a hurry|not careful enough], and the {p1} of the {p0} broke in two.",
            ],
            [
                '"[We must throw it away|It is no good any more]," said {F}, a~ {Fkind} who lived nearby. But {H} shook {his} head. "I will mend it," {he} said.',
                '"Can you fix a broken {p1}?" {H} asked {E}. "I can show you how," said {E}, "but you must do it yourself."',
                '{H} took the {p0} to {E}. {Ehe} looked at the {p1} for a long time. "It can be mended," {Ehe} said. "You only need {p2}."',
            ],
            [
                "{H} looked for what {he} needed, and {he} found {p2} [in a box|on a shelf|in the shed].",
                "So {H} went and got {p2}. {he} [worked|sat over it] the whole {time}.",
                "{Fthe} brought {p2}, and together they set to work.",
            ],
            [
                "The first try did not hold. {H} [took a deep breath|counted to ten] and began again, [more slowly|with more care].",
                "It was [hard|slow|tricky] work, and {his} [fingers hurt|back ached], but {he} did not stop.",
                "[Piece by piece|Bit by bit|Little by little], the {p1} [took shape|came together] again.",
            ],
            [
                'In the end, the {p0} was as good as new. ["It is even better than before," said {F}.|{H} was very proud of it.|]',
                "[When the work was done|When the sun went down], the {p0} had a strong {p1} again, and {H} [laughed with joy|clapped|could not stop smiling].",
                'At last the {p0} was whole again. "You did that well," said {E}[, and {Ehe} smiled|].',
            ],
        ],
    },
    "made": {
        "moral": "patience",
        "props": "MAKEABLE",
        "subjects": ["making a {p0}", "a {p0}", "someone who made a {p0}"],
        "beats": [
            [
                "One {weather} {time}, {H} decided to make a {p0}[ for {F}| for {E}|].",
                "{H} wanted to make a {p0}[, the best one that anyone had ever seen|. {he} had never made one before|].",
                '"I will make a {p0}," said {H} one {time}. "[How hard can it be?|I have always wanted to.|It will be a gift for {F}.]"',
            ],
            [
                "{he} [needed|looked for|gathered] {p1}. [Some of it was in the house, and the rest came from the market.|It took the whole morning to find everything.|{Fthe} brought what was missing.|]",
                '"What do you need?" asked {F}, a~ {Fadj} {Fkind}. "{p1}," said {H}. So they went and found everything.',
                "For this, {he} needed {p1}.",
            ],
            [
                "First, {H} {p2}. Then {he} {p3}.",
                "{H} {p2}, just as {E} had shown {him}. After that, {he} {p3}.",
                "{H} began. {he} {p2}, and {F} watched. Then {he} {p3}.",
            ],
            [
                'But something went wrong, and {he} had to start again. "[Do not give up|Try once more|It is only the first time]," said {E}.',
                "It took much longer than {he} had thought. {H} [grew tired|wanted to stop|sighed], but {he} went on.",
                '"May I help?" asked {F}. "Yes, please," said {H}, and the work went twice as fast.',
                "{he} worked [slowly and carefully|without a word|with great care] until [it was evening|the light was gone|everything was done].",
            ],
            [
                'In the end, the {p0} {p4}. ["It is wonderful!" said {F}.|{H} could hardly believe it.|Everyone came to look at it.]',
                "When it was finished, the {p0} {p4}. {H} [showed it to everyone|gave it to {E}|called {F} to come and see].",
                "At last it was done. The {p0} {p4}, and {H} was [proud|very happy|so glad that {he} danced].",
            ],
        ],
    },
    "skill": {
        "moral": "patience",
        "props": "SKILLS",
        "subjects": ["learning to {p0}", "someone who wanted to {p0}", "{p1}"],
        "hero": "child",
        "beats": [
            [
                "{H} wanted to learn to {p0}. [All {his} friends could do it already.|{he} thought about it every day.|{F} could do it, and it looked so easy.]",
                "More than anything, {H} wished to {p0}.",
                '"I will never learn to {p0}," said {H}. "[Everyone else can do it|It is too hard for me]."',
            ],
            [
                "On the first day, {he} tried, but {he} {p2}. [Some children laughed.|{he} felt foolish.|{his} face turned red.|]",
                "{he} went to the {place} and tried. {he} {p2}. {he} tried again and {p2} once more.",
                'The first time {he} tried, {he} {p2}. "[Oh no|Not again]," {he} said, and {he} sat down [on the ground|under a tree].',
            ],
            [
                'Then {E} came by. "[I was bad at it too|Nobody learns it in one day]," {Ehe} said. "Listen: {p3}."',
                '{F} sat down beside {him}. "Let me tell you a secret," said {F}. "You must {p3}."',
                '"You are trying too hard," said {E}. "Just {p3}, and you will see."',
            ],
            [
                "So {H} practised every {time}. Each day it went a little better.",
                "{H} tried it that way. It was still hard, but [{he} could feel that it helped|something had changed|it was a little better].",
                "For {n} days {H} practised {p1}. [Some days were good and some were bad.|{he} did not miss a single day.|]",
            ],
            [
                'And then, one {weather} {time}, {he} {p4}! "I can do it!" {he} [cried|shouted].',
                "On {day}, {F} came to watch. {H} {p4}, and {F} [clapped loudly|cheered].",
                '[At last|Finally], {H} {p4}. {E} [smiled|nodded]. "You see?" {Ehe} said. "You only needed time."',
            ],
        ],
    },
    "trouble": {
        "moral": "kindness",
        "props": "TROUBLES",
        "hero": "child",
        "subjects": ["a {p0} in trouble", "a {p0}", "saving a {p0}", "someone who helped a {p0}", "helping an animal"],
        "beats": [
            [
                "One {weather} {time}, {H} was walking [near|past|to] the {place} when {he} heard a small sound.",
                "On {day}, {H} went to the {place}[ with {his} friend {F}| to look for {food}|]. Suddenly {he} stopped.",
                "{H} was on the way [home|to school] when {he} heard a strange cry.",
            ],
            [
                "It was a {p0}. It {p1}.",
                "There was a little {p0}. The poor thing {p1}.",
                "{he} looked around and saw a {p0}. The {p0} {p1}, and it was [very afraid|trembling|all alone].",
            ],
            [
                '"[Do not be afraid|Be calm|Hush now]," said {H}. "I will help you."',
                '"[Oh, you poor {p0}|Poor little {p0}]!" said {H}. {he} moved slowly, so that the {p0} would not be frightened.',
                '{H} ran to {E}. "Please come! There is a {p0} that needs help!" ^{Ehe} came at once.',
            ],
            [
                "Then {he} {p2}. [It was not easy.|It took a long time.|{his} hands shook a little.|]",
                "With great care, {H} {p2}.",
                "{H} thought for a moment. Then {he} {p2}.",
            ],
            [
                "After that, {H} gave the {p0} {p3}.",
                "{H} brought the {p0} {p3}, and [soon|after a while] it looked much better.",
                "The {p0} got {p3}, and it [grew calm|stopped shaking|closed its eyes].",
            ],
            [
                "A few days later, the {p0} was well. It [looked back once|came to {H} one last time] before it went away.",
                "The {p0} was safe at last, and it looked at {H} as if to say thank you.",
                "From then on, the {p0} came to see {H} [every {season}|almost every day|again and again].",
                '"You have a kind heart," said {E}. {H} [only smiled|turned red] and watched the {p0} go.',
            ],
        ],
    },
    "contest": {
        "moral": "kindness",
        "props": "CONTESTS",
        "subjects": ["a {p0}", "a contest", "someone who wanted to win the {p0}", "winning and losing"],
        "beats": [
            [
                "In {season} there was a {p0} [at|near] the {place}, and {H} wanted to win it.",
                "One {time}, {H} heard that there would be a {p0}. The prize was a {colour} {obj}.",
                '"There will be a {p0} on {day}," said {E}. {H} [could hardly wait|decided to take part|jumped for joy].',
            ],
            [
                "For {n} days, {H} {p1}.",
                "Every {time}, {H} {p1}, and {E} [watched|helped|gave {him} advice].",
                "{H} {p1} until [it was dark|{he} was tired|{he} felt ready].",
            ],
            [
                '{F}, a~ {Fadj} {Fkind}, wanted to win the {p0} too. "[I am better than you|You have no chance|Nobody can beat me]," said {F}.',
                '{his} friend {F} was also in the {p0}. "[May the better one win|Good luck]," they said to each other.',
                "{Fthe} had won the {p0} every year, and everyone thought that {Fhe} would win again.",
            ],
            [
                "On the day of the {p0}, {H} was so nervous that {his} [knees|hands] shook. But then {he} {p2}.",
                "When the {p0} began, {H} forgot {his} fear. {he} {p2}.",
                "At the most exciting moment, {F} [fell ill|hurt {Fhis} foot|got into trouble]. {H} stopped and helped {Fhim}, although it cost {him} [time|the lead]. Then {he} {p2}.",
            ],
            [
                "{H} won, and [everyone cheered|the whole village clapped]. {he} shared the prize with {F}[, and they became good friends|].",
                '{F} won the {p0}, and {H} came second. "[Well done|That was great]!" said {H}, and {he} meant it. {F} [was surprised|smiled] and shook {his} hand.',
                "Nobody could say who had been better, so both {H} and {F} got a prize.",
                "{H} did not win the {p0}. But {he} had done {his} best, and {E} was very proud of {him}.",
            ],
        ],
    },
    "storm": {
        "moral": "courage",
        "subjects": ["a storm", "a storm near the {place}", "a dark night", "being brave in a storm"],
        "beats": [
            [
                "One {time}, dark clouds came over the {place}. The wind [howled|grew stronger and stronger], and the first drops fell.",
                "It was a quiet {time} until the wind changed. [Soon|Then] a great storm came over the {place}.",
                'On {day}, the sky turned black. "A storm is coming," said {E}. "[Everyone inside!|Close the doors!]"',
            ],
            [
                'But {H} [remembered|saw] that {F}, a~ {Fadj} {Fkind}, was still out near the {place2}. "I must find {Fhim}," {he} said.',
                '{H} wanted to run [home|inside], but then {he} heard a voice. It was {F}, a~ {Fkind}. "Help!" {Fhe} called. "I cannot find the way!"',
                "Then {H} noticed that {his} friend {F} was missing. Nobody had seen {Fhim} since noon.",
            ],
            [
                "{H} was afraid of the thunder. All the same, {he} took a lantern and went out.",
                "The thunder rolled, and {H} trembled. But {he} went on, step by step, through the rain.",
                'The rain was so heavy that {H} could hardly see. "{F}!" {he} [called|shouted] again and again.',
            ],
            [
                '[At last|Finally], {he} found {F} {hiding}. {F} was [wet and cold|shaking with fear]. "Take my hand," said {H}.',
                '{he} followed the sound of the voice and found {F} {hiding}. "I knew you would come," {Fhe} said.',
                'There, {hiding}, sat {F}. "You are not alone now," said {H}, and {he} put {his} coat around {Fhim}.',
            ],
            [
                "Together they ran to [a small hut|the old mill|a dry cave] and waited. {H} told a story so that {F} would not be afraid.",
                "They walked back close together, and the lantern showed them the way.",
                "They sat close together [under a rock|in an old barn] and counted the seconds between the lightning and the thunder.",
            ],
            [
                "In the morning, the storm was over. [The sun shone on the wet grass.|The air was clean and still.|A rainbow stood over the {place}.]",
                'When the storm was over, {E} [hugged them both|made hot soup for them]. "That was very brave," {Ehe} said.',
                '[Slowly|After an hour], the wind grew weaker, and the stars came out. "You saved me," said {F}.',
            ],
        ],
    },
    "market": {
        "moral": "honesty",
        "hero": "child",
        "subjects": ["a day at the market", "the market", "buying {food}", "an honest {Hkind}"],
        "beats": [
            [
                'On {day}, {E} gave {H} {n} coins. "Go to the market and buy {food}," {Ehe} said.',
                "{H} had saved {n} coins and wanted to buy a {colour} {obj} at the market.",
                "One {weather} {time}, {H} went to the market with {n} coins in {his} pocket.",
            ],
            [
                "The market was [loud and full of people|bright with colours|full of good smells]. There were [baskets of {food}|heaps of cloth|birds in cages] on every side.",
                "At the market, {H} walked from stall to stall and looked at everything: {food}, cloth, tools and toys.",
            ],
            [
                "{he} paid, and the seller gave {him} the change. But when {H} counted it, {he} saw that it was {m} coins, much too much.",
                "On the way back, {H} found a purse on the ground. Inside there were {m} coins.",
                "As {he} stood there, an old man dropped his purse, and {m} coins rolled under the stalls. The man did not notice.",
            ],
            [
                '"[Keep it|Nobody will know|What luck]," said {F}, a~ {Fkind} who had seen it all. {H} thought about it. {his} pocket felt very heavy.',
                "For a moment, {H} thought of all the things that {he} could buy with so much money.",
                "{H} looked at the coins. No one was watching. But something in {his} heart said no.",
            ],
            [
                '"This is not my money," said {H}, and {he} gave it back.',
                '{H} picked up every coin and took the money back. "I think that this is yours," {he} said.',
                "{he} ran back as fast as {he} could and returned all {m} coins.",
            ],
            [
                '"Thank you! There are not many people as honest as you," was the answer, and {H} got [a bag of {food}|a warm cake|a {colour} ribbon] as a gift.',
                '"You are an honest {Hkind}," said {E} that evening, when {H} told {Ehim} the story.',
                "{H} went home with [a light heart|empty pockets and a light heart], and {he} sang all the way.",
            ],
        ],
    },
    "journey": {
        "moral": "courage",
        "subjects": ["a journey", "a long journey", "a journey to the sea", "a walk to the mountains", "travelling"],
        "beats": [
            [
                "{H} had always wanted to see [the sea|the mountains|the great waterfall|the big city]. One {season} morning, {he} packed some {food} and set out.",
                "{his} [aunt|old friend|sister] lived far away, on the other side of the hills. One {weather} day, {H} set out to visit her.",
                '"I want to see [the sea|what is behind the hills|the end of the river]," said {H} to {E}. "Then go," said {E}, "but take a {colour} {obj} with you, for luck."',
            ],
            [
                "The road led past the {place} and [over a steep hill|through a dark wood|along a stream]. [{H} sang as {he} walked.|The sun was warm.|]",
                "{he} walked the whole {time}. {his} feet hurt, but {he} did not stop.",
                "At first, the way was easy, and {H} [whistled|looked at everything with wide eyes].",
            ],
            [
                "Then {he} came to a river, and there was no bridge. {H} did not know how to get across.",
                "But then a thick fog came down, and {H} lost the way.",
                "At last {he} came to a place where the road split in two, and there was no sign.",
                "Soon it grew dark, and {H} was alone. {he} [began to be afraid|wished {he} were at home].",
            ],
            [
                'Just then, a~ {Fadj} {Fkind} came along. "My name is {F}," said the {Fkind}. "I know the way. Follow me."',
                'There {he} met {F}, a~ {Fkind}. "I am going the same way," said {F}. "Let us go together."',
                '"Are you lost?" asked a voice. It was a~ {Fadj} {Fkind} named {F}. {H} nodded. "Then come with me," said {F}.',
            ],
            [
                "{H} shared {his} {food} with {F}, and they talked the whole way.",
                "{F} knew a narrow path [between the rocks|through the reeds|behind the {place2}], and {H} followed {Fhim} step by step.",
                "It was not easy. Once {H} slipped, but {F} [held {him}|pulled {him} up].",
            ],
            [
                "[After {n} days|The next morning|At last], {H} arrived. {he} stood still for a long time and [said nothing|looked and looked].",
                'At last they reached the end of the road. "We did it!" said {H}. "[I could not have done it alone|Thank you, {F}]."',
                "When {H} finally arrived, {he} was [tired|hungry and tired], but {he} had never been so [happy|proud]. {F} became {his} friend for life.",
            ],
        ],
    },
    "share": {
        "moral": "sharing",
        "subjects": ["sharing", "sharing {food}", "someone who learned to share", "{food}"],
        "beats": [
            [
                "One {weather} {time}, {H} had a basket full of {food}. {he} wanted to eat everything alone.",
                '{E} gave {H} {n} bags of {food}. "They are all for me," thought {H}.',
                "In {season}, {H} found so many {food} that {he} could hardly carry them.",
            ],
            [
                "Then {F}, a~ {Fadj} {Fkind}, came by. {Fhe} had not eaten since the day before.",
                "Near the {place} sat {F}, a~ {Fkind}, with nothing to eat.",
                '"Hello, {H}," said {Fthe}. "[That smells good.|May I have a little?|I am so hungry.]"',
            ],
            [
                '{H} [held the {food} tightly|hid the {food}]. "I have only enough for me," {he} said, and {F} went away [sadly|without a word].',
                "At first, {H} said nothing and ate faster.",
                '"There is not enough for two," said {H}. {F} [nodded|looked at the ground] and went away.',
            ],
            [
                "But the {food} did not taste good any more. {H} [felt ashamed|thought of {F}'s sad face|could not eat another bite].",
                "Then {H} remembered that {F} had once helped {him} [in a storm|to carry wood|when {he} was ill].",
                "{H} sat alone and ate, and {he} felt [lonelier|sadder] with every bite.",
            ],
            [
                'So {he} ran after {F}. "Wait!" {he} called. "Let us share."',
                '{he} jumped up and looked for {F}. "I am sorry," {he} said. "Please come and eat with me."',
                "{he} went to {F} and put half of the {food} in front of {Fhim}.",
            ],
            [
                "They sat [by|near] the {place2} and ate together, and [there was enough for both|they laughed a lot|nothing had ever tasted so good].",
                '{F}\'s eyes [shone|lit up]. "Thank you," {Fhe} said. The two ate and talked until [sunset|the moon came up].',
                "The next day, {F} brought {H} a {colour} {obj} as a present.",
            ],
        ],
    },
    "surprise": {
        "moral": "kindness",
        "subjects": ["a surprise", "a birthday", "a birthday surprise", "a party"],
        "beats": [
            [
                "It was {H}'s birthday, but nobody said a word about it.",
                "On {day}, {H} woke up early, for it was {his} birthday. {he} waited for someone to say something.",
                "{H} had been counting the days, and now {his} birthday had come.",
            ],
            [
                "{E} was busy and hardly looked up. {F}, {his} best friend, said that {Fhe} had no time to play.",
                '{he} went to see {F}, a~ {Fadj} {Fkind}. But {F} [closed the door quickly|only said, "Not today"]. ^{H} was hurt.',
                '"Good morning," said {E}, and nothing more. Even {F}, {his} best friend, was not at home.',
            ],
            [
                '"They have all forgotten me," thought {H}. {he} walked to the {place} and sat there alone.',
                "{H} went to the {place} and threw stones into the water. {he} had never felt so lonely.",
                "{he} walked around the {place} {n} times and [kicked at the leaves|tried not to cry].",
            ],
            [
                "When it got dark, {H} went home. [All the windows were black.|The house was very quiet.|]",
                'In the evening, {E} came to fetch {him}. "Come quickly," {Ehe} said, "something has happened."',
                "Then {he} saw a small light near the {place2}, and {he} went closer.",
            ],
            [
                '{he} opened the door. "Surprise!" shouted {F} and all the others. There was a big cake with {m} candles.',
                'Suddenly there were lanterns everywhere, and everyone [sang|cheered]. {F} came out with a {colour} {obj} in {Fhis} hands. "[For you|Happy birthday], {H}!"',
                'There stood {F}, {E} and all {his} friends around a long table full of {food}. "Happy birthday!" they cried.',
            ],
            [
                '{H} laughed and cried at the same time. "I thought that you had forgotten," {he} said. "[Never|How could we]!" said {F}.',
                "So that was why they had been so strange all day! {H} hugged {F} and everyone else.",
                '"We have been planning it for {n} weeks," said {F}, and {H} did not know what to say.',
            ],
        ],
    },
    "noise": {
        "moral": "courage",
        "subjects": [
            "a strange noise",
            "a noise in the night",
            "the dark",
            "being afraid of the dark",
            "a little ghost",
        ],
        "beats": [
            [
                "One night, {H} heard a strange noise. It [scratched|knocked|creaked|whistled] and stopped, and then it began again.",
                "{H} could not sleep. Something [scratched|tapped|rattled] [at the window|at the door|above {his} head].",
                "Every night, {H} heard the same sound from the {place}: [tap, tap, tap|a long, low moan|a soft scratching].",
            ],
            [
                '"It must be a [monster|ghost|wolf]," {he} thought, and {he} hid [under the blanket|in a corner].',
                "{he} was so afraid that {he} [did not dare to move|held {his} breath|could hear {his} own heart].",
                '{he} told {F}, a~ {Fadj} {Fkind}. "It is a ghost," whispered {F}[, and they both shivered|].',
            ],
            [
                "But {H} was [also curious|tired of being afraid]. {he} took a [lantern|candle] and got up.",
                '"We will go and look," said {H} at last. "If we go together, it will not be so bad." {F} nodded.',
                "In the end, {H} took a deep breath and went to see what it was.",
            ],
            [
                "Step by step, {he} went closer. [The floor creaked.|The shadows danced on the wall.|The noise grew louder.]",
                "It was very dark, and the wind was cold. {H} went [slowly|on tiptoe] towards the sound.",
                "{his} hand shook, and so did the light. The noise came from something {hiding}.",
            ],
            [
                "And what was it? It was only a little {wild} that [was looking for food|had lost its way|wanted to come in].",
                "There was no ghost at all. A [branch|loose board|rope|tin bucket] was moving in the wind.",
                "{he} held up the light and had to laugh. It was a small {wild} with a {colour} {obj} in its mouth!",
            ],
            [
                '{H} laughed out loud. "So that is what I was afraid of!" {he} said.',
                '"You were brave," said {E} in the morning. "[I was afraid the whole time|My knees were shaking]," said {H}. "That is what brave means," said {E}.',
                "After that, {H} was no longer afraid of the dark.",
            ],
        ],
    },
    "truth": {
        "moral": "honesty",
        "hero": "child",
        "subjects": ["telling the truth", "a lie", "a broken {frag}", "an honest {Hkind}"],
        "beats": [
            [
                "One {weather} {time}, {H} was playing [with a ball|with {F}] in the house, although {E} had forbidden it.",
                "{E} had a beautiful {colour} {frag}, and nobody was allowed to touch it. But {H} wanted to see it up close.",
                "On {day}, {H} was alone at home and ran through all the rooms.",
            ],
            [
                "Suddenly there was a crash. {E}'s favourite {frag} lay on the floor in {n} pieces.",
                "Then it happened. The {colour} {frag} fell, and it broke into a hundred pieces.",
                "{he} slipped, and the {colour} {frag} fell from the shelf and broke.",
            ],
            [
                '{H} [quickly hid the pieces|swept the pieces under the rug]. When {E} came home, {he} said, "It was the cat."',
                '"Who did this?" asked {E}. {H} looked at the floor. "I do not know," {he} said.',
                '"Do not tell anyone," {H} said to {F}, and they hid the pieces.',
            ],
            [
                "But {H} could not eat, and at night {he} could not sleep. The lie [sat in {his} stomach like a stone|grew heavier every hour].",
                "All day, {H} felt [sick|terrible]. Every time {E} smiled at {him}, it got worse.",
                '{F} looked at {him}. "You should tell the truth," {Fhe} said. "You will feel better."',
            ],
            [
                'In the end, {H} went to {E}. "I did it," {he} said [quietly|with tears in {his} eyes]. "I am sorry."',
                "The next morning, {H} told {E} everything. {his} voice shook.",
                '"It was me," said {H} at last. "I broke it, and then I lied."',
            ],
            [
                '{E} was silent for a moment. Then {Ehe} said, "A {frag} can be replaced. I am glad that you told me the truth."',
                '"I knew it all along," said {E}, "but I wanted to hear it from you." ^they glued the pieces together [that evening|side by side].',
                '{E} took {H} in {Ehis} arms. "That was hard to say," {Ehe} said, "and you said it."',
            ],
        ],
    },
    "garden": {
        "moral": "patience",
        "subjects": ["a garden", "a seed", "a small seed", "a flower", "growing something"],
        "beats": [
            [
                'One {season} day, {E} gave {H} a small seed. "[Plant it and wait|Take good care of it]," {Ehe} said.',
                "{H} found a strange {colour} seed {hiding}, and {he} wanted to know what it would become.",
                "In spring, {H} wanted to grow the tallest [sunflower|bean|pumpkin] of all, so {he} got a seed from {E}.",
            ],
            [
                "{he} made a hole in the earth, put the seed into it and watered it.",
                "{H} planted the seed near the {place} and gave it water every {time}.",
                "{he} dug a little bed, planted the seed and put a {colour} stick beside it.",
            ],
            [
                'The next day, nothing had grown. The day after, still nothing. "[It is not working|The seed is asleep]," said {H}.',
                "{n} days went by, and there was only brown earth. {H} [wanted to dig the seed up|was disappointed].",
                '"When will it grow?" asked {H} every morning. "When it is ready," said {E}.',
            ],
            [
                '"Perhaps it needs a song," said {F}, a~ {Fadj} {Fkind}. So they sang to it.',
                '{Fthe} laughed at {him}. "Nothing will ever grow there," {Fhe} said. But {H} went on watering.',
                "Then came {n} days of rain, and after that the sun was warm.",
            ],
            [
                "And one {time}, there it was: a tiny green tip. {H} [jumped for joy|called everyone].",
                "Then, one {weather} morning, {H} saw two small green leaves.",
                "[At last|Finally], the earth broke open, and a small plant looked out.",
            ],
            [
                "The plant grew and grew until it was taller than {H}. It had a great {colour} flower.",
                "By the end of the summer, there was a {colour} flower as big as a plate, and even {F} came to admire it.",
                "In autumn, {H} took {m} new seeds from it and gave one to {F}.",
            ],
        ],
    },
    "quarrel": {
        "moral": "kindness",
        "subjects": ["two friends", "a quarrel", "friends who made up", "friendship", "saying sorry"],
        "beats": [
            [
                "{H} and {F}, a~ {Fadj} {Fkind}, were best friends. But one {time}, they both wanted the same {colour} {obj}.",
                "{H}'s best friend was {F}, a~ {Fkind}. They played near the {place} every day, until they quarrelled over a {obj}.",
                "One {weather} {time}, {H} and {his} friend {F} found a {colour} {obj}.",
            ],
            [
                '"It is mine!" said {H}. "No, it is mine!" said {F}. They pulled and pulled.',
                '"I saw the {obj} first," said {F}. "You did not," said {H}. They both grew [angry|louder and louder].',
                "Each of them wanted to have the {obj}, and neither would give in.",
            ],
            [
                "In the end, they went home in opposite directions, and they did not speak for {n} days.",
                '"I will never play with you again!" cried {H}, and {he} ran away.',
                "{F} turned around and left without a word. {H} had the {obj}, but {he} was alone.",
            ],
            [
                "But playing alone was [no fun|boring]. {H} missed {F} very much.",
                "{H} sat near the {place2} with nobody to talk to. The {obj} [was not fun any more|did not seem so important now].",
                '"Why are you so sad?" asked {E}. {H} told {Ehim} everything. "[A {obj} cannot laugh with you|A friend is worth more than a {obj}]," said {E}.',
            ],
            [
                'So {H} went to {F} with the {obj}. "I am sorry," {he} said. "You can have it."',
                'The next {time}, they met by chance near the {place}. "I am sorry," they both said at the same moment.',
                "{H} wrapped up the {obj} and put it in front of {F}'s door.",
            ],
            [
                '"I am sorry too," said {F}. "Let us use it together: one day you, one day I."',
                "{F} smiled. From then on, the {obj} belonged to both of them.",
                'They laughed and shook hands, and {F} said, "Come, let us play."',
            ],
        ],
    },
    "help": {
        "moral": "kindness",
        "subjects": ["helping a friend", "helping", "a kind {Hkind}", "a friend in need"],
        "beats": [
            [
                "One {weather} {time}, {H} met {F}, a~ {Fadj} {Fkind}. {F} was carrying a heavy [sack|box|basket] of {food}.",
                "On {day}, {H} saw {Fthe} near the {place}. {F} was [sitting on a stone|crying softly].",
                "{H} was on the way to the {place} when {he} saw {F}, a~ {Fkind} who looked very [tired|worried].",
            ],
            [
                '"What is the matter?" asked {H}. "I must bring {food} to the {place2} before dark," said {F}, "but I cannot do it alone."',
                '"I have hurt my foot," said {F}, "and somebody is waiting for the {food}."',
                '"I have so much work to do," said {F}. "{n} baskets of {food} must be carried to the {place2} today."',
            ],
            [
                '{H} had wanted to play that day. But {he} did not think about it for long. "I will help you," {he} said.',
                '"Let me help," said {H}. "Two can do more than one."',
                '{H} was in a hurry, but {he} stopped. "We will do it together," {he} said.',
            ],
            [
                "They worked side by side, and [they sang to make it easier|the time went quickly|they told each other stories].",
                "{H} took the heavier half. The way was steep, and they had to rest {n} times.",
                "First, it seemed impossible. But [step by step|bit by bit], they got it done.",
            ],
            [
                'When the work was done, {F} said, "I will not forget this."',
                '"How can I thank you?" asked {F}. "You do not need to," said {H}.',
                "In the evening, everything was done, and they ate some of the {food} together.",
            ],
            [
                "Some time later, {H} [was ill|fell into a stream|lost {his} {colour} {obj}], and it was {F} who came and helped {him}.",
                "A week later, {H} needed help {self}. The first one who came was {F}.",
                "After that, whenever {H} needed a friend, {F} was there.",
            ],
        ],
    },
    "map": {
        "moral": "sharing",
        "subjects": ["a treasure", "an old map", "a treasure map", "an adventure", "a secret"],
        "beats": [
            [
                "One {weather} {time}, {H} found an old map {hiding}. There was a {colour} cross on it.",
                "{E} had kept an old map in a box for many years. On {day}, {Ehe} gave it to {H}.",
                "{H} was cleaning {his} room when a piece of paper fell out of a book. It was a map.",
            ],
            [
                '{he} showed it to {F}, a~ {Fadj} {Fkind}. "A treasure!" {Fhe} whispered. "Let us look for it."',
                '"The cross is near the {place}," said {H}\'s friend {F}, a~ {Fkind}. They set out at once.',
                '"We must go from the {place} to the {place2}," said {H} to {his} friend {F}, "and then take {m} steps to the north."',
            ],
            [
                "They walked past the {place} and climbed over a wall. The map was old, and they took two wrong turns.",
                'The way was longer than they had thought. {F} wanted to go back, but {H} said, "Only a little farther."',
                "They counted their steps: one, two, three, and so on. Once they had to begin again.",
            ],
            [
                "At last they came to the right place. They dug until [their arms hurt|it was nearly dark].",
                '"Here!" cried {F}. They pushed a big stone aside and dug a hole.',
                "They found the spot {hiding}, and {H} began to dig.",
            ],
            [
                'There was a small box. Inside lay a {colour} {obj} and a letter: "Whoever finds this shall share it."',
                "They found an old chest. It was not full of gold, but there were {m} coins and a {colour} {obj} in it.",
                'In a rusty tin there was a {obj} and a note: "The real treasure is the friend who came with you."',
            ],
            [
                "{H} and {F} looked at each other and laughed. They kept the {obj} in a secret place.",
                "They shared everything, half for {H} and half for {F}.",
                '"What shall we do with it?" asked {F}. "We will draw a new map," said {H}, "and hide something for the next one."',
            ],
        ],
    },
    "newcomer": {
        "moral": "kindness",
        "subjects": ["a new friend", "making a friend", "someone who was lonely", "being new"],
        "beats": [
            [
                "{H} had just come to a new place, and {he} did not know anybody.",
                "{H} was often alone. {he} watched the others play near the {place}, but {he} did not dare to ask.",
                "It was {his} first day [near|at] the {place}, and nobody spoke to {H}.",
            ],
            [
                "{he} had only a {colour} {obj} to play with.",
                "{he} sat down {hiding} and looked at {his} {colour} {obj}.",
                "{H} wished for just one friend.",
            ],
            [
                'Then {F} came along, a~ {Fadj} {Fkind}. "What do you have there?" {Fhe} asked. "A {obj}," said {H} softly.',
                'A~ {Fkind} named {F} stopped in front of {him}. "Why do you not play with us?" {Fhe} asked.',
                "{F}, a~ {Fkind} who was just as shy, sat down next to {him}. For a long time, neither of them spoke.",
            ],
            [
                '"Nobody asked me," said {H}. "Then I am asking you now," said {F}.',
                '{H} took all {his} courage. "Would you like to play with me?" {he} asked. "Yes!" said {F}.',
                '"I have {food}," said {H}. "Would you like some?" {F} smiled and nodded.',
            ],
            [
                "They played until the evening. {F} showed {H} the best places: the {place}, the {place2} and a secret path.",
                "{F} introduced {him} to all the others, and soon they were all playing together.",
                "They talked about everything, and they found that they both loved [rain|stars|old stories|{food}].",
            ],
            [
                '"Will you come again tomorrow?" asked {F}. "Of course," said {H}.',
                "On the way home, {H} [hummed a tune|skipped]. {he} was not alone any more.",
                '{E} asked how the day had been. "I have a friend," said {H}, and {his} eyes shone.',
            ],
        ],
    },
    "wish": {
        "moral": "sharing",
        "subjects": ["a wish", "three wishes", "a magic {obj}", "a {colour} {obj} that could grant wishes"],
        "beats": [
            [
                'One {time}, {H} found a {colour} {obj} {hiding}. "Rub me," said the {obj}, "and you have [one wish|a wish]."',
                '{H} once helped an old woman to cross the road. She gave {him} a {colour} {obj}. "It will grant you one wish," she said.',
                "On a~ {weather} night, {H} saw a falling star. It landed near the {place} and turned into a {colour} {obj}.",
            ],
            [
                "{H} could hardly believe it. A magic {obj}! {he} thought about what {he} wanted most.",
                '"I could wish for [a castle|a mountain of {food}|a ship]," thought {H}, and {he} could not decide.',
                "{he} carried the {obj} home and thought about {his} wish for {n} days.",
            ],
            [
                '{he} asked {E}. "Wish for something that lasts," said {E}.',
                '"What would you wish for?" {he} asked {F}, a~ {Fkind}. {F} looked down. "I wish that my [mother|sister|father] were well again," {Fhe} said.',
                "Then {he} saw {F}, a~ {Fadj} {Fkind}, who had not laughed for weeks because {Fhis} house had burned down.",
            ],
            [
                "{H} was silent. {his} own wishes seemed very small all at once.",
                "{H} looked at the {obj}, and then {he} looked at {F}. {he} knew what to do.",
                "That night, {H} lay awake for a long time. In the morning, {he} had decided.",
            ],
            [
                '{he} held the {obj} in both hands. "I wish that {F} may be happy," {he} said. The {obj} glowed and went dark.',
                '"My wish is for {F}," said {H}, and the {obj} shone like the sun.',
                '{he} gave the {obj} to {F}. "Take my wish," {he} said. "You need it more than I do."',
            ],
            [
                "And it came true. {F} laughed and danced, and {H} was happier than with any castle.",
                'The next day, {F} came running. "Everything is well!" {Fhe} cried. {H} only smiled.',
                "The {obj} was now only a {obj}, but {H} kept it all {his} life.",
            ],
        ],
    },
    "snow": {
        "season": "winter",
        "moral": "sharing",
        "subjects": ["winter", "a cold winter", "snow", "a snowy night", "a warm fire"],
        "beats": [
            [
                "That winter was [very cold|long and hard]. Snow lay on the {place}, and the {place2} was frozen.",
                "In the middle of winter, it snowed for {n} days, and {H} could hardly open the door.",
                "One {time}, {H} looked out and everything was white.",
            ],
            [
                "{H} had a warm fire and enough {food} for the winter.",
                "{H} had worked hard in summer, and now there were {food} on every shelf.",
                "Inside it was warm, and {H} was [cooking soup|reading|mending a {obj}].",
            ],
            [
                "Then there was a knock. Outside stood {F}, a~ {Fadj} {Fkind}, covered with snow.",
                "Through the window, {H} saw {F}, a~ {Fkind} who was trying to make {Fhis} way through the snow.",
                'In the evening, {Fthe} came to the door. "[My fire has gone out|My roof has fallen in|I have lost my way]," {Fhe} said.',
            ],
            [
                '"Come in, come in!" said {H}, and {he} put more wood on the fire.',
                '{H} thought of how little room there was. Then {he} opened the door wide. "There is always room for one more," {he} said.',
                "{H} gave {F} a {colour} blanket and a bowl of hot soup.",
            ],
            [
                "They ate {food} and told each other stories, and outside the wind howled.",
                "{F} stayed for {n} days. {Fhe} [swept the floor|sang in the evening|carved a {obj} for {H}].",
                "Soon more guests came, and in the end there were {m} of them around the fire.",
            ],
            [
                'When spring came, {F} went home. "I will never forget it," {Fhe} said.',
                "It was the coldest winter of all, and {H} remembered it as the warmest.",
                "When the snow melted, they planted a tree together to remember that winter.",
            ],
        ],
    },
}
