#!/usr/bin/env python3
"""Writes the sample corpus: seeded prose of our own in the layout of PG-19.

    generate.py                write metadata.csv and test/<id>.txt beside this script
    generate.py --out DIR      write them to another folder
    generate.py --check        exit 1 unless the files here are what this script makes
    generate.py --train N      print N books that are not among the committed ones

A book follows a few people through a town.  A small world (who is where, who holds what, what
the weather is, who promised what) decides what can be said, so that a sentence often depends on
one that came pages before: that is what a small language model can learn from it.  The prose has
no digits, so the numbers of a needle are never confused with it.
"""

import argparse
import os
import sys

COMMITTED_SEED = 900000   # book number i of the corpus has the seed COMMITTED_SEED + i
TRAINING_SEED = 5000000   # training text starts here, so it never meets a committed book
BOOKS = 14
BOOK_BYTES = 40000


class Random:
    """64-bit multiplicative generator on integers only: the same stream on every platform."""

    def __init__(self, seed):
        self.state = (seed * 2862933555777941757 + 3037000493) & (2 ** 64 - 1)
        for _ in range(4):
            self.below(2)

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & (2 ** 64 - 1)
        x = self.state
        x ^= x >> 33
        x = (x * 0xff51afd7ed558ccd) & (2 ** 64 - 1)
        x ^= x >> 33
        return (x >> 11) % n

    def pick(self, items):
        return items[self.below(len(items))]

    def chance(self, percent):
        return self.below(100) < percent

    def sample(self, items, n):
        items = list(items)
        for i in range(n):
            j = i + self.below(len(items) - i)
            items[i], items[j] = items[j], items[i]
        return items[:n]


WOMEN = """Agnes Beatrix Clara Dorothy Edith Flora Grace Hester Ida Judith Lydia Mabel Nora Olive
Phoebe Rosalind Sybil Tabitha Ursula Winifred Margery Alma Bridget Cecily""".split()
MEN = """Albert Barnaby Conrad Duncan Edmund Felix Gilbert Hugh Isaac Jasper Lambert Matthew Nathan
Oswald Percy Ralph Silas Tobias Victor Walter Ambrose Bertram Cyril Edgar""".split()
FAMILIES = """Ashdown Barlow Cotterell Dunmore Fairley Garside Holloway Ingram Kettering Lockhart
Marlowe Northcote Ormsby Pennington Quill Radley Selwyn Thorne Underhill Vance Wexford Yarrow
Brackett Hale""".split()
TOWNS = """Aldermouth Brackenford Coldwater Dunsley Elmstead Fernleigh Greywick Hollinghurst
Kingsmere Lowbridge Marshgate Netherby Oakhampton Ravensea Stonebury Thornwick Westerham
Wintercombe""".split()
TRADES = {
    "baker": ["kneaded the dough", "raked the ashes out of the oven", "set the loaves to cool",
              "counted the sacks of flour"],
    "clockmaker": ["wound the tall clock", "filed a small wheel of brass", "polished the glass",
                   "listened to the beat of the pendulum"],
    "carpenter": ["planed a long board", "mended the leg of a chair", "swept up the shavings",
                  "sharpened the saw"],
    "schoolteacher": ["corrected the copybooks", "cut new pens", "read aloud from an old history",
                      "washed the slate"],
    "fisherman": ["mended the nets", "tarred the boat", "looked at the sky over the water",
                  "sorted the morning's catch"],
    "doctor": ["rolled the bandages", "wrote out a receipt for the cough", "ground some powder",
               "visited the sick in the lower street"],
    "weaver": ["threw the shuttle", "dyed a skein of wool", "measured the cloth",
               "tied the broken thread"],
    "miller": ["opened the sluice", "dressed the stone", "weighed the meal",
               "greased the great wheel"],
    "printer": ["set a page of type", "inked the press", "hung the wet sheets on a line",
                "looked for a missing letter"],
    "gardener": ["pruned the roses", "dug over the bean bed", "carried water to the seedlings",
                 "tied the vines to the wall"],
    "blacksmith": ["blew up the fire", "shod the grey mare", "beat out a hinge",
                   "plunged the iron into the tub"],
    "innkeeper": ["drew the ale", "trimmed the lamps", "scrubbed the long table",
                  "aired the best bedroom"],
}
PLACES = {
    "the harbour": ["the masts stood close together", "gulls quarrelled over the fish baskets",
                    "the tide was slapping against the steps"],
    "the old mill": ["the wheel turned with a heavy sound", "the air was white with meal",
                     "a cat slept on the sacks"],
    "the market square": ["the stalls were crowded", "a piper was playing for pennies",
                          "the fountain had run dry"],
    "the church": ["the bell rope hung quite still", "a cold light fell through the windows",
                   "somebody had left lilies by the door"],
    "the orchard": ["the boughs were bent with fruit", "the grass had grown as high as the gate",
                    "a thrush sang in the oldest tree"],
    "the library": ["the shelves rose up into the shadow", "a fire burned low in the grate",
                    "nobody spoke above a whisper"],
    "the bridge": ["the river ran brown beneath it", "two carts could not pass each other",
                   "boys were fishing from the wall"],
    "the inn": ["the parlour smelled of smoke and apples", "the benches were full",
                "a dog lay stretched before the hearth"],
    "the quarry": ["the stone lay in great grey steps", "water had gathered at the bottom",
                   "a crane stood idle on the edge"],
    "the station": ["the train was late again", "the porter sat upon a trunk",
                    "steam drifted across the platform"],
    "the castle": ["ivy had covered the broken tower", "the gate was fastened with a chain",
                   "jackdaws nested in the chimneys"],
    "the meadow": ["the hay lay in long rows", "a hare sat up and looked about",
                   "the brook was hidden by the reeds"],
    "the lighthouse": ["the lamp had not been lit", "the wind never ceased about the door",
                       "the stair went round and round"],
    "the schoolhouse": ["the benches stood in rows", "a map had fallen from the wall",
                        "the stove was smoking"],
}
MATERIAL = """silver brass wooden leather pewter crystal copper velvet painted carved rusty broken
green scarlet blue yellow tarnished heavy""".split()
THING = """lantern key watch compass flute locket box purse mirror ring spyglass knife teapot
bottle bell drum thimble candlestick whistle medal""".split()
WEATHER = {
    "rain": ["the rain fell steadily", "water ran in the gutters", "every roof was dripping"],
    "snow": ["the snow lay deep", "flakes drifted past the window", "the road was white"],
    "fog": ["fog lay over the roofs", "nothing could be seen across the street",
            "the lamps were dim in the fog"],
    "wind": ["the wind rattled the shutters", "dead leaves flew along the road",
             "the trees bent and groaned"],
    "sun": ["the sun shone upon the walls", "the sky was without a cloud",
            "the stones were warm to the hand"],
    "frost": ["frost whitened the fields", "the puddles were hard as glass",
              "one could see one's breath"],
}
OUTFIT = {"rain": "a dripping coat", "snow": "snow upon the boots", "fog": "a damp collar",
          "wind": "a hat held on with one hand", "sun": "a brown and cheerful face",
          "frost": "red fingers"}
TIMES = ["early in the morning", "a little before noon", "in the afternoon", "towards evening",
         "after supper", "late at night", "at daybreak", "when the clock struck the hour"]
LATER = ["The next day", "Two days afterwards", "On the following morning", "Before the week was out",
         "When Sunday came", "A few days later", "That same evening", "At the end of the month"]
MANNER = ["slowly", "in haste", "with a light step", "without a word", "quite alone", "on foot",
          "in very good spirits", "with a heavy heart", "by the shortest way", "as usual"]
FEELING = ["glad", "uneasy", "tired", "curious", "angry", "ashamed", "hopeful", "puzzled",
           "contented", "anxious", "grateful", "melancholy"]
TRAIT = ["patient", "proud", "absent-minded", "generous", "stubborn", "cautious", "talkative", "shy",
         "honest", "hot-tempered", "thrifty", "merry"]
LOOK = ["a long thin face", "a quick dark eye", "grey hair cut very short", "a limp in the left foot",
        "a voice like a rook", "broad shoulders", "freckles across the nose", "a slow smile",
        "a scar upon the chin", "very small hands"]
SAID = ["said", "answered", "replied", "cried", "whispered", "remarked", "observed", "muttered"]
FOOD = ["bread and cheese", "cold mutton", "a dish of eggs", "pea soup", "apple tart", "fried trout",
        "a boiled pudding", "bacon with onions", "a bag of chestnuts", "an oatcake with honey"]
NEWS = ["the bank had failed", "a ship had been lost off the point", "the bridge was to be rebuilt",
        "an uncle had come home from abroad", "the new road would pass through the valley",
        "the old squire was dying", "a stranger had taken the empty house",
        "the price of corn had doubled", "there had been a fire in the night",
        "the mayor meant to marry again"]
SAYING = ["A borrowed coat is never warm", "What is put off is half forgotten",
          "The longest road begins at the door", "Still water has a muddy bed",
          "He who counts the crows will never plough", "A closed hand catches nothing",
          "There is no lock without somebody to open it", "Every candle has its own shadow"]
DREAM = ["a house without any doors", "a white horse that could speak", "the sea rising in the street",
         "a letter written in an unknown hand", "a garden under the snow", "a great crowd of birds",
         "a staircase that led down for ever", "a table laid for somebody who never came"]


class Person:
    def __init__(self, r, name, woman, family, trade, home):
        self.name, self.woman, self.family, self.trade, self.home = name, woman, family, trade, home
        self.place = home
        self.things = []
        self.trait, self.look, self.food = r.pick(TRAIT), r.pick(LOOK), r.pick(FOOD)
        self.he, self.him, self.his = ("she", "her", "her") if woman else ("he", "him", "his")


def cap(s):
    return s[0].upper() + s[1:]


class Book:
    """The world of one book and the sentences that come out of it."""

    def __init__(self, seed):
        r = self.r = Random(seed)
        self.town, self.far = r.sample(TOWNS, 2)
        places = self.places = r.sample(sorted(PLACES), 8)
        families = r.sample(FAMILIES, 6)
        trades = r.sample(sorted(TRADES), 6)
        women, men = r.sample(WOMEN, 6), r.sample(MEN, 6)
        self.people = []
        for i in range(6):
            woman = r.chance(50)
            self.people.append(Person(r, (women if woman else men)[i], woman, families[i], trades[i],
                                      places[i]))
        things = r.sample(["%s %s" % (a, b) for a in MATERIAL for b in THING], 14)
        for p in self.people:
            p.things.append(things.pop())
        self.loose = things
        self.history = {}      # thing -> where its holder had it from, told again later
        self.lost = []         # (person, thing, place)
        self.promises = []     # (debtor, creditor, thing) or (person, None, place)
        self.weather = r.pick(sorted(WEATHER))
        self.last = None       # who was the subject of the last sentence, for pronouns
        hero = self.people[0]
        self.title = r.pick(["The %s of %s" % (cap(hero.trade), self.town),
                             "%s %s of %s" % (hero.name, hero.family, self.town),
                             "A Winter at %s" % self.town,
                             "The %s" % " ".join(map(cap, hero.things[0].split())),
                             "%s, or the %s's Promise" % (self.town, cap(hero.trade)),
                             "The House by %s" % " ".join(
                                 w if w == "the" else cap(w) for w in hero.home.split())])

    def subject(self, p):
        """A name, or a pronoun when the person was spoken of just before."""
        same, self.last = self.last is p, p
        if same and self.r.chance(70):
            return p.he
        return p.name if self.r.chance(80) else "the " + p.trade

    def other(self, *not_these):
        return self.r.pick([p for p in self.people if p not in not_these])

    def opening(self):
        """An adverbial that may open a sentence."""
        r = self.r
        return r.pick(["", "", "", cap(r.pick(TIMES)) + ", ", "When %s, " % r.pick(WEATHER[self.weather]),
                       "While %s, " % r.pick(WEATHER[self.weather]), "Then ", "Soon afterwards ",
                       "After a while "])

    def sentence(self, text):
        text = cap(text)
        return text if text[-1] in ".?!\"" else text + "."

    # Every method below returns a list of sentences about something that happens.

    def describe(self, p):
        r = self.r
        a = self.subject(p)
        return [self.sentence(s) for s in r.sample([
            "%s was the %s of %s, and lived near %s" % (p.name, p.trade, self.town, p.home),
            "%s had %s, and was thought %s by everyone" % (a, p.look, p.trait),
            "there was nothing %s liked so well as %s" % (p.name, p.food),
            "the %s, whose name was %s %s, owned %s"
            % (p.trade, p.name, p.family, "a " + p.things[0] if p.things else "little besides"),
        ], 2 + r.below(2))]

    def walk(self, p):
        r = self.r
        a = self.subject(p)
        place = r.pick([x for x in self.places if x != p.place])
        old, p.place = p.place, place
        out = [self.sentence(self.opening() + r.pick([
            "%s went %s to %s" % (a, r.pick(MANNER), place),
            "%s left %s and walked %s to %s" % (a, old, r.pick(MANNER), place),
            "%s set out for %s, where %s" % (a, place, r.pick(PLACES[place])),
            "%s came to %s with %s" % (a, place, OUTFIT[self.weather]),
        ]))]
        if r.chance(60):
            out.append(self.sentence(r.pick([
                "at %s %s" % (place[4:] if place.startswith("at ") else place, r.pick(PLACES[place])),
                "there %s, and %s" % (r.pick(PLACES[place]), r.pick(WEATHER[self.weather])),
                "%s, as on the day before" % r.pick(["it was very quiet", "it all looked the same",
                                                    "everything smelled of rain and old wood"])])))
        here = [q for q in self.people if q is not p and q.place == place]
        if here:
            q = r.pick(here)
            out += [self.sentence("%s was there already, and %s" % (q.name, r.pick(TRADES[q.trade]))
                                  if r.chance(30) else
                                  r.pick(["%s found %s there" % (cap(p.he), q.name),
                                          "the first person %s saw was %s" % (p.he, q.name)]))]
            out += self.talk(p, q)
        return out

    def work(self, p):
        r = self.r
        first, second = r.sample(TRADES[p.trade], 2)
        a = self.subject(p)
        p.place = p.home
        return [self.sentence(r.pick([
            "%s%s %s, and then %s" % (self.opening(), a, first, second),
            "all that day %s %s" % (a, first),
            "%s %s until it was too dark to see" % (a, first),
            "because %s, %s stayed at home and %s" % (r.pick(WEATHER[self.weather]), a, second),
        ]))]

    def find(self, p):
        r = self.r
        if not self.loose or len(p.things) > 2:
            return self.mention(p) if p.things else self.thought(p)
        a = self.subject(p)
        thing = self.loose.pop()
        where = r.pick(["under a stone near %s", "in a ditch behind %s", "at a stall by %s",
                        "in an old chest at %s"]) % p.place
        p.things.append(thing)
        self.history[thing] = "found " + where
        return [self.sentence("%s%s found a %s %s" % (self.opening(), a, thing, where)),
                self.sentence(r.pick(["nobody knew whose it was, so %s kept it" % p.he,
                                      "%s put the %s in %s pocket" % (p.he, thing.split()[1], p.his),
                                      "it was a %s of the old kind, and %s was %s to have it"
                                      % (thing.split()[1], p.he, r.pick(FEELING))]))]

    def give(self, p):
        r = self.r
        if not p.things:
            return self.work(p)
        q = self.other(p)
        thing = r.pick(p.things)
        p.things.remove(thing)
        q.things.append(thing)
        q.place = p.place
        self.history[thing] = "given to %s by %s" % (q.name, p.name)
        self.last = None
        return [self.sentence(self.opening() + r.pick([
            "%s gave the %s to %s" % (p.name, thing, q.name),
            "%s sold the %s to %s for a very small sum" % (p.name, thing, q.name),
            "%s, who was %s, made %s a present of the %s" % (p.name, r.pick(FEELING), q.name, thing)])),
            self.sentence(r.pick([
                "\"I have no more use for it,\" %s %s, \"and you have\"" % (r.pick(SAID), p.name),
                "\"Take good care of the %s,\" %s %s" % (thing.split()[1], r.pick(SAID), p.name),
                "%s thanked %s, and took the %s home" % (q.name, p.him, thing.split()[1])]))]

    def lose(self, p):
        r = self.r
        if not p.things:
            return self.find(p)
        a = self.subject(p)
        thing = r.pick(p.things)
        p.things.remove(thing)
        self.lost.append((p, thing, p.place))
        return [self.sentence("%s%s missed the %s" % (self.opening(), a, thing)),
                self.sentence(r.pick([
                    "%s looked for the %s in every corner, but it was gone" % (p.he, thing.split()[1]),
                    "%s was sure that it had been left at %s" % (p.he, p.place),
                    "\"Has anybody seen my %s?\" %s asked" % (thing, p.he)]))]

    def recover(self, p):
        r = self.r
        if not self.lost:
            return self.lose(p)
        owner, thing, place = self.lost.pop(r.below(len(self.lost)))
        owner.things.append(thing)
        self.last = None
        if p is owner:
            return [self.sentence("%s the %s which %s had lost came to light at %s"
                                  % (r.pick(["at last", "by good luck", "one day"]), thing, p.name,
                                     place))]
        self.history[thing] = "lost at %s and brought back by %s" % (place, p.name)
        owner.place = p.place
        return [self.sentence("%s the %s at %s, and knew that it belonged to %s"
                              % (p.name + " came upon", thing, place, owner.name)),
                self.sentence("%s carried it to %s, who was %s" % (p.he, owner.name, r.pick(FEELING)))]

    def mention(self, p):
        r = self.r
        if not p.things:
            return self.thought(p)
        a = self.subject(p)
        thing = r.pick(p.things)
        story = self.history.get(thing)
        tail = r.pick(["and looked at it for a long time", "and laid it upon the table",
                       "and rubbed it with a cloth", "and showed it to everyone who asked"])
        out = [self.sentence("%s took out the %s %s" % (a, thing, tail))]
        if story:
            out.append(self.sentence("it was the same %s that had been %s"
                                     % (thing.split()[1], story)))
        return out

    def promise(self, p):
        r = self.r
        place = r.pick([x for x in self.places if x != p.place])
        self.promises.append((p, place))
        day = r.pick(["tomorrow", "on Sunday", "before the week is out", "as soon as I can"])
        self.last = None
        return [self.sentence("\"I shall go to %s %s,\" %s %s" % (place, day, r.pick(SAID), p.name))]

    def keep_promise(self):
        p, place = self.promises.pop(0)
        p.place = place
        self.last = p
        return [self.sentence("%s %s went to %s, as %s had promised"
                              % (self.r.pick(LATER), p.name, place, p.he)),
                self.sentence("there " + self.r.pick(PLACES[place]))]

    def talk(self, p, q):
        """Question and answer; the answer is what the world says is true."""
        r = self.r
        kind = r.below(5)
        third = self.other(p, q)
        self.last = None
        verb, reply = r.pick(["asked", "inquired"]), r.pick(SAID)
        if kind == 0:
            return ["\"Where is %s?\" %s %s." % (third.name, verb, p.name),
                    "\"%s is at %s,\" %s %s." % (r.pick(["The " + third.trade, third.name, cap(third.he)]),
                                                 third.place, reply, q.name)]
        if kind == 1 and third.things:
            thing = third.things[-1]
            return ["\"Who has the %s now?\" %s %s." % (thing, verb, p.name),
                    "\"%s has it,\" %s %s, \"and will not part with it.\"" % (third.name, reply, q.name)]
        if kind == 2:
            return ["\"What sort of %s is this?\" %s %s." % (r.pick(["weather", "day"]), verb, p.name),
                    "\"I only know that %s,\" %s %s." % (r.pick(WEATHER[self.weather]), reply, q.name)]
        if kind == 3:
            return ["\"They say that %s,\" said %s." % (r.pick(NEWS), p.name),
                    "\"%s,\" %s %s, who was always %s." % (
                        r.pick(["I do not believe it", "I heard it from " + third.name,
                                "It is true enough", "What is that to us", "So it was said at the inn"]),
                        reply, q.name, q.trait)]
        return ["\"Will you eat with me?\" %s %s. \"There is %s.\"" % (verb, p.name, p.food),
                "\"%s,\" %s %s." % (r.pick(["With all my heart", "I like %s better" % q.food
                                           if q.food != p.food else "I like nothing better",
                                           "Another day", "You are very kind"]), reply, q.name)]

    def meeting(self, p):
        q = self.other(p)
        q.place = p.place
        a = self.subject(p)
        return [self.sentence(self.opening() + self.r.pick([
            "%s met %s at %s" % (a, q.name, p.place),
            "%s and the %s sat down together at %s" % (a, q.trade, p.place)]))
        ] + self.talk(p, q) + (self.talk(q, p) if self.r.chance(50) else [])

    def letter(self, p):
        r = self.r
        a = self.subject(p)
        return [self.sentence("%s a letter came for %s from %s, in which it was written that %s"
                              % (r.pick(LATER).lower(), a, self.far, r.pick(NEWS))),
                self.sentence(r.pick(["%s read it twice and put it in the fire" % p.he,
                                      "%s was %s, and told nobody" % (p.he, r.pick(FEELING)),
                                      "%s showed it to %s" % (p.he, self.other(p).name)]))]

    def thought(self, p):
        r = self.r
        q = self.other(p)
        a = self.subject(p)
        return [self.sentence(r.pick([
            "%s thought of %s, who must be at %s by now" % (a, q.name, q.place),
            "\"%s,\" as the %s of %s used to say" % (r.pick(SAYING), q.trade, self.far),
            "that night %s dreamed of %s" % (a, r.pick(DREAM)),
            "%s was %s, but would not have said so to %s" % (a, r.pick(FEELING), q.name),
            "it seemed to %s that nothing in %s had changed since the year of the great %s"
            % (p.name, self.town, r.pick(["flood", "fire", "frost", "comet", "fair"])),
            "if %s had been less %s, %s would have spoken then" % (p.name, p.trait, p.he),
        ]))]

    def sky(self, p):
        r = self.r
        old = self.weather
        self.weather = r.pick([w for w in sorted(WEATHER) if w != old])
        name = {"sun": "sunshine"}.get(old, old)
        self.last = None
        return [self.sentence(r.pick(["%s the %s was over, and %s" % (r.pick(LATER), name,
                                                                     r.pick(WEATHER[self.weather])),
                                      "the weather changed: %s, and %s"
                                      % tuple(r.sample(WEATHER[self.weather], 2)),
                                      "after so much %s the people of %s were glad when %s"
                                      % (name, self.town, r.pick(WEATHER[self.weather]))]))]

    def paragraph(self, p):
        r = self.r
        self.last = None
        out = []
        events = [self.walk, self.work, self.find, self.give, self.lose, self.recover, self.mention,
                  self.promise, self.meeting, self.letter, self.thought, self.sky, self.walk,
                  self.meeting, self.thought]
        for event in r.sample(events, 2 + r.below(3)):
            if self.promises and r.chance(35):
                out += self.keep_promise()
            else:
                out += event(p)
        return " ".join(out)

    def text(self, size):
        r = self.r
        parts = [self.title.upper()]
        ordinal = ["One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten",
                   "Eleven", "Twelve"]
        total, chapter = 0, 0
        while total < size:
            if chapter < len(ordinal) and total >= chapter * size // len(ordinal):
                p = self.people[chapter % len(self.people)]
                parts.append("\nChapter " + ordinal[chapter])
                chapter += 1
                self.last = None
                block = " ".join(self.describe(p) + self.sky(p))
            else:
                block = self.paragraph(r.pick(self.people))
            parts.append(wrap(block, 72))
            total += len(parts[-1]) + 2
        parts.append("THE END")
        return "\n\n".join(parts) + "\n"


def wrap(text, width):
    """Greedy line filling, spelt out so that it cannot differ between Python versions."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = line + " " + word if line else word
    return "\n".join(lines + [line])


def book(seed, size=BOOK_BYTES):
    b = Book(seed)
    return b.title, b.text(size)


def training_books(first=0):
    """Endless texts for training; their seeds never reach a committed book."""
    while True:
        yield book(TRAINING_SEED + first)[1]
        first += 1


def corpus():
    """Relative path -> bytes of every committed file."""
    rows, files = [], {}
    for i in range(BOOKS):
        title, text = book(COMMITTED_SEED + i)
        ident = str(COMMITTED_SEED + i)
        field = '"%s"' % title if "," in title else title
        rows.append("%s,%s,2026,https://example.org/dpe/sample/%s\n" % (ident, field, ident))
        files["test/%s.txt" % ident] = text.encode("utf-8")
    files["metadata.csv"] = "".join(rows).encode("utf-8")
    return files


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--out", default=here)
    ap.add_argument("--check", action="store_true")
    ap.add_argument("--train", type=int, metavar="N")
    args = ap.parse_args()
    if args.train is not None:
        books = training_books()
        for _ in range(args.train):
            sys.stdout.write(next(books))
        return 0
    bad = 0
    for name, data in sorted(corpus().items()):
        path = os.path.join(args.out, name)
        if args.check:
            try:
                with open(path, "rb") as f:
                    same = f.read() == data
            except OSError:
                same = False
            if not same:
                print("differs: " + name, file=sys.stderr)
                bad = 1
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(data)
    return bad


if __name__ == "__main__":
    sys.exit(main())
