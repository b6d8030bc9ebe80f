"""The words that the corpus is made of, and the small facts that it states.

Plain tables, read by `stories.py` and `chat.py`. A row is split on spaces or
on `,` so that hundreds of words stay readable.
"""


def comma(text: str) -> list[str]:
    """The comma-separated items of `text`, trimmed."""
    return [item.strip() for item in text.split(",") if item.strip()]


def pairs(text: str) -> list[tuple[str, ...]]:
    """Rows `a: b` (or `a: b: c`), one per line or separated by `;`."""
    rows = text.replace("\n", ";").split(";")
    return [tuple(part.strip() for part in row.split(":")) for row in rows if row.strip()]


GIRLS = comma(
    "Anna, Lily, Mia, Zoe, Ruby, Nora, Ella, Clara, Ivy, Rosa, Tess, Maya, Lena, Sara, Molly, Daisy, Poppy, Hazel, "
    "Alma, Edith, Freya, Greta, Hana, Ines, Jana, Kira, Luna, Mara, Nina, Olga, Pia, Rita, Sofia, Tara, Uma, Vera, "
    "Willa, Yara, Zara, Amina, Bella, Cora, Dora, Elsa, Fiona, Grace, Heidi, Iris, June, Kate, Lucy, Mina, Nell, Olive"
)
BOYS = comma(
    "Tom, Ben, Max, Leo, Sam, Finn, Jack, Omar, Hugo, Noah, Eli, Oscar, Theo, Milo, Felix, Adam, Carl, Dan, Emil, "
    "Fred, George, Hans, Ivan, Jonas, Karim, Luke, Marco, Nico, Otto, Paul, Ravi, Simon, Toby, Victor, Will, Yusuf, "
    "Arlo, Boris, Cyrus, David, Ezra, Frank, Gus, Henry, Isaac, Jamal, Kai, Louis, Mateo, Ned, Owen, Peter, Rowan"
)
PETS = comma(
    "Pip, Biscuit, Pepper, Moss, Bramble, Nutmeg, Pebble, Acorn, Socks, Button, Ginger, Clover, Thistle, Maple, "
    "Whisker, Patch, Fern, Snowy, Rusty, Toffee, Bubbles, Hopper, Bean, Muffin, Dusty, Sunny, Willow, Juniper, Berry"
)
CHILD_ADJECTIVES = comma(
    "small, young, clever, curious, quiet, cheerful, brave, shy, kind, gentle, lively, thoughtful, careful, bold, "
    "friendly, honest, patient, merry, busy, stubborn, dreamy, hopeful, little, lonely, proud, playful, polite, "
    "strong, funny, calm, grumpy, sleepy, wise, lucky, nervous, cautious, daring, humble"
)
PERSON_KINDS = comma(
    "farmer, sailor, baker, shepherd, fisherman, gardener, painter, carpenter, tailor, miller, potter, knight, "
    "princess, prince, queen, king, wizard, teacher, doctor, postman, clockmaker, musician, lighthouse keeper, "
    "blacksmith, beekeeper, cook, explorer, inventor, librarian, robot, dragon, giant, fairy, pirate, astronaut, "
    "ghost, witch, mermaid, soldier, nurse, driver, pilot, firefighter, dancer, singer, writer, scientist, engineer, "
    "programmer, student, merchant, monk, elf, troll, snowman, scarecrow, clown, detective, hunter, weaver, goldsmith, "
    "juggler, captain, shoemaker, woodcutter, chimney sweep, night watchman, stonemason, bookseller"
)
ANIMALS = comma(
    "fox, rabbit, mouse, bear, owl, hedgehog, squirrel, badger, otter, frog, duck, cat, dog, pony, goat, lamb, hen, "
    "goose, crow, sparrow, robin, turtle, beaver, deer, mole, pig, donkey, wolf, lizard, snail, penguin, monkey, "
    "elephant, lion, tiger, camel, parrot, seal, raccoon, kangaroo, horse, cow, sheep, toad, swan, kitten, puppy, ant, bee, "
    "butterfly, spider, whale, dolphin, shark, dinosaur, unicorn, bat, chicken, rooster, moose, panda, giraffe, zebra, "
    "hippo, snake, crab, octopus, worm, eagle, peacock, llama, leopard, koala, hamster, weasel, rat, pelican, stork, "
    "ladybird, beetle, cricket, firefly, dragonfly, magpie, bull, ox, heron, salmon, lobster"
)
PEOPLE_HOMES = comma(
    "in a small village by the sea, in a little house at the edge of the forest, on a farm near the river, in a busy "
    "town with narrow streets, in a cottage on top of a hill, in a valley between two mountains, on a small island, "
    "in a stone house beside the mill, near the old harbour, in a quiet town by a lake, in a wooden cabin among the "
    "pines, at the end of a long road, above a small shop in the city, next to a wide green field, behind the old bridge"
)
ANIMAL_HOMES = comma(
    "in a hollow tree, at the edge of a quiet pond, in a green meadow, under the roots of an old oak, deep in the "
    "forest, on a sunny farm, in a cosy den, near a clear stream, behind a red barn, at the foot of a hill, among the "
    "tall reeds, in a garden full of flowers, beside a mossy wall, in a warm stable"
)
PLACES = comma(
    "forest, meadow, river, beach, hill, market, garden, orchard, park, lake, village, harbour, field, barn, mill, "
    "pond, bridge, town square, valley, playground, school, library, well, castle, cave, stream, farm, island, lighthouse"
)
COLOURS = comma("red, blue, green, yellow, white, black, brown, orange, purple, pink, grey, golden, silver")
LOSABLE = comma(
    "kite, ball, hat, scarf, key, ring, book, drum, flute, lantern, basket, map, whistle, coin, spoon, cup, mitten, "
    "boot, umbrella, bell, feather, shell, marble, compass, ribbon, necklace, watch, pencil, brush, doll, toy boat, "
    "toy train, blanket, bracelet, notebook, button, glove, backpack, cap, teddy bear, paper boat, mirror, violin, "
    "telescope, candle, hammer, needle, camera, radio, computer, phone, ladder, bucket, broom, pillow, teapot, bottle, "
    "box, bag, jar, stone, pearl, crown, sword, shield, mask, puppet, balloon, spinning top, skateboard, bicycle, "
    "letter, picture, painting, photograph, pen, ruler, ticket, purse, belt, shoe, sock, coat, shawl, apron, glass bead, "
    "hourglass, pocket knife, fishing rod, guitar, trumpet, harmonica, magnet, star, leaf, flower, egg, nut, cake, sandwich"
)
HIDING = comma(
    "under the bed, behind the door, in the tall grass, beneath a bench, on top of a wall, under a pile of leaves, in "
    "a bush, behind a big stone, between two barrels, at the bottom of a basket, under the old bridge, inside a "
    "hollow log, beside the well, on a low branch, in the hay, under a cart, next to the garden gate, in a puddle"
)
FOODS = comma(
    "apples, pears, plums, cherries, berries, carrots, nuts, pancakes, biscuits, grapes, melons, strawberries, tomatoes, "
    "eggs, potatoes, mushrooms, muffins, beans, chestnuts, turnips, figs, peaches, bread rolls, honey cakes, walnuts"
)
FRAGILE = comma("vase, bowl, jug, cup, plate, teapot, lamp, mirror, glass, clock, pot, bottle")
WEATHER = {
    "spring": comma("sunny, rainy, windy, warm, cloudy, bright, cool, misty, mild"),
    "summer": comma("sunny, hot, warm, bright, quiet, dry, clear, golden, still"),
    "autumn": comma("rainy, windy, cloudy, foggy, chilly, misty, grey, cool, golden"),
    "winter": comma("cold, snowy, frosty, icy, grey, chilly, clear, dark, windy"),
}
TIMES = comma("morning, afternoon, evening, day")
SEASONS = comma("spring, summer, autumn, winter")
DAYS = comma("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday")
MONTHS = comma("January, February, March, April, May, June, July, August, September, October, November, December")
NUMBER_WORDS = comma(
    "zero, one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen, "
    "sixteen, seventeen, eighteen, nineteen, twenty"
)

# Elders who help: how they are called (after "his/her" or "the"), and their pronoun.
RELATIVES = pairs(
    """grandmother: she; grandfather: he; mother: she; father: he; aunt: she; uncle: he; big sister: she
    big brother: he; cousin: he"""
)
NEIGHBOURS = pairs(
    """old baker: he; old fisherman: he; kind teacher: she; young doctor: she; village blacksmith: he
    old gardener: she; lighthouse keeper: he; friendly postman: he; tall farmer: she; old carpenter: he
    wise librarian: she; quiet shepherd: he; busy tailor: she; old clockmaker: he; kind nurse: she
    ferryman: he; miller: he; market woman: she; town mayor: she; old painter: she"""
)

# thing: part that breaks: what mends it
BREAKABLE = pairs(
    """cart: wheel: a hammer and a few nails
    kite: tail: some paper and string
    clock: spring: a tiny screwdriver
    boat: mast: strong rope and a new pole
    chair: leg: glue and a wooden peg
    doll: arm: a needle and thread
    bicycle: chain: oil and a small wrench
    lantern: glass: a new piece of glass
    basket: handle: thin willow twigs
    fence: gate: a hammer and some boards
    drum: skin: a piece of soft leather
    music box: handle: a drop of glue
    wagon: axle: a strong piece of oak
    umbrella: handle: glue and a bit of wire
    toy train: wheel: a drop of glue
    bench: seat: two boards and a few nails
    sledge: rope: a new piece of rope
    windmill: sail: a large piece of cloth
    backpack: strap: a needle and strong thread
    violin: string: a new string
    bridge: plank: a saw and a new plank
    bucket: bottom: a piece of tin
    teapot: lid: some careful glue
    swing: rope: a long piece of rope"""
)

# thing made: what it is made from: first step: second step: how it turns out
MAKEABLE = pairs(
    """soup: carrots, onions and a pot of water: cut the carrots and onions: stirred the pot for a long time: smelled wonderful
    kite: paper, two sticks and string: tied the two sticks together: glued the paper over them: flew high above the roofs
    loaf of bread: flour, water and salt: mixed the flour and water: kneaded the dough and let it rest: was golden and warm
    scarf: soft wool and two needles: wound the wool into a ball: knitted row after row: was long and warm
    birdhouse: wood and nails: sawed the boards: nailed them together and cut a round door: stood straight on its pole
    cake: eggs, butter and sugar: beat the eggs and sugar: put the tin into the hot oven: rose high and sweet
    lantern: thin paper and a candle: folded the paper: set the candle in the middle: glowed softly in the dark
    basket: long willow twigs: soaked the twigs in water: wove them over and under: was strong and round
    sandcastle: wet sand and shells: filled the bucket with sand: built four towers and a wall: looked like a real castle
    raft: logs and rope: rolled the logs to the water: tied them tightly with rope: floated without a wobble
    jar of jam: strawberries and sugar: washed the strawberries: cooked them slowly with the sugar: was thick and red
    puppet: cloth, buttons and thread: cut the cloth: sewed on two buttons for eyes: seemed to smile at everyone
    drum: an old pot and a piece of leather: stretched the leather over the pot: tied it down with cord: boomed like thunder
    tree house: boards, nails and a ladder: carried the boards up the ladder: nailed the floor and the walls: was cosy and safe
    crown: flowers and long grass: picked the flowers: braided them into a ring: was bright with colour
    snowman: fresh snow and a carrot: rolled three big balls of snow: pushed the carrot in for a nose: stood tall in the yard
    mask: paper, glue and feathers: shaped the paper: glued the feathers around the eyes: looked wild and grand
    apple pie: apples, flour and butter: peeled the apples: rolled out the dough: filled the house with a sweet smell
    wooden boat: a block of wood and a small knife: carved the wood slowly: added a sail of white cloth: sailed across the pond
    quilt: many pieces of old cloth: laid out the pieces: sewed them together one by one: was as bright as a garden
    clay bowl: soft clay and water: pressed the clay into a ball: turned and smoothed it: was smooth and round
    painting: paper, brushes and paint: drew the outline: filled it with blue and yellow paint: looked full of light
    garden bench: planks and screws: measured the planks: screwed them to four legs: held two people easily
    song: a small flute and a quiet hour: hummed a tune: played it again and again: made everyone tap their feet"""
)

# skill (to ...): doing it: the failure: the tip: the success
SKILLS = pairs(
    """swim: swimming: swallowed water and coughed: kick slowly and breathe out: crossed the whole pond
    ride a bicycle: riding: wobbled and fell on the grass: look ahead and not at the wheel: rode all the way down the lane
    whistle: whistling: blew only air: make your lips small and round: whistled a clear, high note
    play the flute: playing: made a squeak like a rusty door: blow softly, as if to cool your soup: played a whole song
    draw a horse: drawing: drew something that looked like a table: look longer than you draw: drew a horse that seemed to run
    tie a knot: tying knots: tangled the rope: go around twice and pull slowly: tied a knot that held fast
    bake bread: baking: burned the first loaf: wait until the dough has grown: took a golden loaf out of the oven
    fly a kite: flying a kite: let it crash into a hedge: wait for the wind and then let out the string: kept the kite in the sky
    climb a tree: climbing: slid down the trunk: hold on with three limbs and move one: sat on the highest branch
    dance: dancing: stepped on many toes: listen to the drum and count to four: danced without a single mistake
    skate: skating: sat down hard on the ice: bend your knees and lean forward: glided across the ice
    row a boat: rowing: went around in a circle: pull both oars together: rowed straight to the other side
    juggle: juggling: dropped every ball: throw each ball to the same height: kept three balls in the air
    read: reading: mixed up the letters: say each sound and then join them: read a whole page aloud
    sing: singing: began much too high: start low and breathe deeply: sang so well that the birds went quiet
    plant a tree: planting: dug a hole that was too small: give the roots a lot of room: planted a tree that grew new leaves
    write a letter: writing: made a large blot of ink: write as if you were talking to a friend: wrote a letter of two pages
    sew: sewing: pricked a finger: make small stitches and do not hurry: sewed a neat little bag
    fish: fishing: scared every fish away: sit still and be patient: caught a fine silver fish
    cook: cooking: put in far too much salt: taste before you add more: cooked a dinner that everyone praised"""
)

# animal: trouble: rescue: gentle care
TROUBLES = pairs(
    """bird: had hurt its wing and could not fly: wrapped the wing in a soft cloth: some seeds and a bowl of water
    kitten: was stuck high in a tree: climbed up and carried it down: a saucer of milk
    lamb: was caught in a thorn bush: bent the branches back one by one: a handful of sweet grass
    puppy: had fallen into a deep hole: lay flat and pulled it out: a warm blanket
    hedgehog: was tangled in an old net: cut the strings with great care: a few slices of apple
    duckling: had lost its mother: carried it along the stream to the other ducks: some crumbs of bread
    foal: could not get out of the mud: put boards under its feet: a bucket of clean water
    squirrel: was shivering in the cold rain: put it in a box with dry straw: a heap of nuts
    turtle: lay on its back and could not turn over: turned it over gently: a leaf of green salad
    fish: was trapped in a tiny pool on the beach: carried it to the sea in a bucket: a last kind word
    rabbit: had its foot caught under a root: lifted the root with a stick: a fresh carrot
    owl: had flown into the barn and could not find the way out: opened the big doors wide: a quiet place to rest
    calf: was trapped behind a broken fence: pulled away the loose boards: a long drink of milk
    bee: had fallen into a bucket of water: lifted it out with a leaf: a drop of honey
    goat: stood on a narrow ledge and was afraid to move: led it down step by step: a bunch of clover
    swan: had a fishing line around its neck: held it still and cut the line: some soft bread"""
)

# what the contest is: what one does to prepare: how the last moment goes
CONTESTS = pairs(
    """race: ran up and down the hill: ran faster than the wind
    singing contest: sang to the hens in the yard: sang the last note long and clear
    baking contest: tried a new recipe: put a perfect cake on the table
    kite contest: mended the kite and learned the winds: sent the kite up higher than the church tower
    drawing contest: drew everything in the house: drew the old bridge in the rain
    boat race: rowed across the lake: pulled the oars with all the strength that was left
    swimming race: swam from one shore to the other: swam the last part without a pause
    spelling contest: read a page of words: spelled the longest word of all
    chess game: thought about every move: found the one move that won
    pumpkin contest: watered the pumpkins: rolled a giant pumpkin onto the stage
    jumping contest: jumped over buckets and logs: jumped farther than ever before
    dance contest: danced in the kitchen: turned three times and landed on both feet"""
)

# No word occurs twice, so that each has one opposite.
OPPOSITES = pairs(
    """hot: cold; big: small; tall: short; fast: slow; up: down; left: right; day: night; happy: sad; old: young
    wet: dry; light: dark; hard: soft; open: closed; full: empty; high: low; loud: quiet; rich: poor; strong: weak
    early: late; near: far; thick: thin; clean: dirty; good: bad; black: white; front: back; in: out; on: off
    true: false; deep: shallow; sweet: sour; wide: narrow; brave: afraid; rough: smooth; first: last; begin: end
    push: pull; give: take; win: lose; buy: sell; laugh: cry; remember: forget; above: below; inside: outside
    yes: no; always: never; north: south; east: west; summer: winter; asleep: awake; before: after; more: less"""
)
COLOUR_FACTS = pairs(
    """a banana: yellow; the sky: blue; grass: green; snow: white; coal: black; a carrot: orange; a lemon: yellow
    blood: red; a strawberry: red; a tomato: red; an orange: orange; a frog: green; milk: white; chocolate: brown
    a leaf: green; the sun: yellow; the night sky: black; a cherry: red; a pumpkin: orange; a cucumber: green
    an elephant: grey; a flamingo: pink; a crow: black; a swan: white; the sea: blue; a pea: green; a plum: purple
    a polar bear: white; cheese: yellow; a fire engine: red; a pig: pink; salt: white; a blueberry: blue; honey: golden
    a lime: green; a raven: black; a rose: red; a potato: brown; a canary: yellow; a cloud: white; wood: brown"""
)
SOUNDS = pairs(
    """cat: meow; dog: woof; cow: moo; sheep: baa; duck: quack; pig: oink; horse: neigh; lion: roar; bee: buzz
    snake: hiss; owl: hoot; frog: croak; hen: cluck; rooster: cock-a-doodle-doo; mouse: squeak; crow: caw
    donkey: hee-haw; goose: honk; wolf: howl; bird: tweet; goat: maa; turkey: gobble; bear: growl; pigeon: coo"""
)
BABIES = pairs(
    """cat: kitten; dog: puppy; cow: calf; sheep: lamb; horse: foal; duck: duckling; hen: chick; pig: piglet
    goat: kid; bear: cub; lion: cub; frog: tadpole; deer: fawn; goose: gosling; swan: cygnet; kangaroo: joey; wolf: cub"""
)
HOMES = pairs(
    """bee: hive; bird: nest; dog: kennel; horse: stable; rabbit: burrow; spider: web; lion: den; fish: water
    pig: sty; hen: coop; cow: barn; bear: cave; ant: ant hill; snail: shell"""
)
LEGS = pairs(
    """cat: 4; dog: 4; spider: 8; bird: 2; hen: 2; horse: 4; ant: 6; bee: 6; cow: 4; snake: 0; fish: 0; duck: 2
    frog: 4; elephant: 4; person: 2; beetle: 6; fly: 6; pig: 4; sheep: 4; fox: 4; owl: 2; octopus: 0; goat: 4"""
)
# From small to big: the later is the bigger.
SIZES = comma("ant, bee, mouse, frog, bird, rabbit, cat, fox, dog, sheep, pig, lion, bear, cow, horse, elephant, whale")
GROUPS = {
    "fruit": comma("apple, banana, pear, plum, cherry, grape, orange, lemon, peach, strawberry, melon, mango, kiwi"),
    "vegetable": comma("carrot, potato, onion, tomato, pea, bean, cabbage, cucumber, pepper, pumpkin, leek, radish"),
    "animal": comma("cat, dog, horse, cow, fox, rabbit, bear, lion, owl, duck, sheep, goat, pig, wolf, mouse"),
    "bird": comma("owl, crow, robin, sparrow, duck, swan, goose, eagle, parrot, penguin, hen, pigeon"),
    "colour": comma("red, blue, green, yellow, white, black, brown, orange, purple, pink, grey"),
    "tool": comma("hammer, saw, screwdriver, wrench, drill, shovel, rake, axe, knife, ladder"),
    "instrument": comma("drum, flute, violin, piano, guitar, trumpet, harp, bell, horn"),
    "tree": comma("oak, pine, birch, maple, willow, beech, fir, apple tree, cherry tree"),
    "flower": comma("rose, tulip, daisy, lily, poppy, sunflower, violet"),
    "country": comma("France, Spain, Italy, Japan, Brazil, Canada, Egypt, India, Kenya, Norway, Peru, China, Germany"),
    "sport": comma("football, tennis, swimming, running, rowing, skating, cycling, basketball"),
    "drink": comma("water, milk, tea, coffee, juice, lemonade, cocoa"),
    "shape": comma("circle, square, triangle, rectangle, star, oval"),
    "planet": comma("Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus, Neptune"),
    "vehicle": comma("car, bus, train, boat, bicycle, truck, plane, tram, ship"),
    "piece of clothing": comma("hat, coat, shirt, sock, shoe, scarf, glove, dress, sweater, boot"),
}
PLURALS = {
    "fruit": "fruits", "cherry": "cherries", "berry": "berries", "country": "countries", "city": "cities",
    "mouse": "mice", "goose": "geese", "sheep": "sheep", "wolf": "wolves", "fox": "foxes", "fish": "fish",
    "child": "children", "foot": "feet", "tooth": "teeth", "leaf": "leaves", "box": "boxes", "bus": "buses",
    "lily": "lilies", "daisy": "daisies", "poppy": "poppies", "piece of clothing": "pieces of clothing",
    "dish": "dishes", "brush": "brushes", "man": "men", "woman": "women", "knife": "knives", "glass": "glasses",
    "potato": "potatoes", "tomato": "tomatoes", "peach": "peaches", "radish": "radishes", "puppy": "puppies",
    "pony": "ponies", "strawberry": "strawberries", "watch": "watches", "donkey": "donkeys", "deer": "deer",
}  # fmt: skip
CAPITALS = pairs(
    """France: Paris; Spain: Madrid; Italy: Rome; Japan: Tokyo; Canada: Ottawa; Egypt: Cairo; India: New Delhi
    Kenya: Nairobi; Norway: Oslo; Peru: Lima; China: Beijing; Germany: Berlin; Portugal: Lisbon; Greece: Athens
    Sweden: Stockholm; Poland: Warsaw; Austria: Vienna; Ireland: Dublin; Russia: Moscow; Turkey: Ankara; Cuba: Havana
    Finland: Helsinki; Denmark: Copenhagen; England: London; Hungary: Budapest; Belgium: Brussels; Brazil: Brasilia"""
)
# thing: what it is: what it is for
DEFINITIONS = pairs(
    """hammer: a tool: driving nails into wood; umbrella: a cover on a stick: staying dry in the rain
    spoon: a small bowl with a handle: eating soup; clock: a machine with hands: telling the time
    key: a shaped piece of metal: opening a lock; ladder: a frame with steps: climbing up high
    kite: a light frame with paper or cloth: flying in the wind; boat: a small ship: travelling on water
    lamp: a device that gives light: seeing in the dark; pencil: a thin stick with lead: writing and drawing
    map: a drawing of a place: finding the way; broom: a brush with a long handle: sweeping the floor
    saw: a tool with teeth: cutting wood; pillow: a soft bag: resting your head; bridge: a road over water: crossing a river
    scarf: a long piece of cloth: keeping your neck warm; bucket: a round container with a handle: carrying water
    book: a set of printed pages: reading; oven: a hot box: baking bread; needle: a thin piece of steel: sewing cloth
    drum: a round instrument: making a beat; telescope: a tube with lenses: looking at the stars
    bell: a hollow piece of metal: making a ringing sound; basket: a container made of twigs: carrying things
    compass: a small instrument with a needle: finding north; candle: a stick of wax: giving a little light
    server: a computer that answers requests: sharing work with other computers; computer: a machine that follows programs: working with data"""
)
SPELLABLE = comma(
    "cat, dog, sun, moon, tree, house, water, bread, apple, river, stone, light, green, happy, friend, school, garden, "
    "winter, summer, yellow, orange, flower, mother, father, window, market, bridge, cloud, horse, lemon, music, paper, "
    "story, table, train, voice, world, night, ocean, tiger, ship, lamp, rain, snow, wind, bird, fish, book, king, queen"
)
