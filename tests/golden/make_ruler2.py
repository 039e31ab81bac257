#!/usr/bin/env python3
"""Writes ruler2_niah.json: samples of RULER v2's mk_niah_basic and mv_niah_basic, drawn with Python's random as its generator draws
them, with the sentences of eval/templates/ruler2.json and a few words, in tokens of the bundled model.

    make_ruler2.py > tests/golden/ruler2_niah.json      (tokenizers)
"""
import json
import math
import pathlib
import random

from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).parent.parent.parent
SAY = json.loads((ROOT / "eval/templates/ruler2.json").read_text())
NOUNS = ["anchor", "basket", "candle", "engine", "garden", "kettle", "ladder", "b"]
ADJECTIVES = ["amber", "brave", "calm", "eager", "a", "a-b"]
WORDS = sorted({f"{a}-{n}" for a in ADJECTIVES for n in NOUNS})
TOKENIZER = Tokenizer.from_file(str(ROOT / "data/reference/tokenizer.json"))


class Draw:
    def __init__(self, values, length, seed):
        self.values, self.length, self.seed = values, length, seed
        self.random = random.Random(seed)

    def number(self):
        return str(self.random.randint(10 ** 9, 10 ** 10 - 1))

    def line(self, key, value):
        return SAY["needle"].format(key=key, value=value)

    def sample(self, n):
        key = self.random.choice(WORDS)
        values = [self.number() for _ in range(self.values)]
        needles = [self.line(key, value) for value in values]
        random.Random(self.seed).shuffle(needles)
        if self.values == 1:
            lines = [self.line(self.random.choice(WORDS), self.number()) for _ in range(n)]
        else:
            numbers = [self.number() for _ in range(n)]
            keys = [self.random.choice(WORDS) for _ in range(math.ceil(n / self.values))] * self.values
            lines = [self.line(k, v) for k, v in zip(keys, numbers)]
            self.random.shuffle(lines)
        for at, needle in zip(sorted(self.random.sample(range(n), len(needles)), reverse=True), needles):
            lines.insert(at, needle)
        self.random.sample(range(1), 1)  # which key is asked for
        many = "one" if self.values == 1 else "many"
        text = SAY["intro_" + many] + "\n".join(lines) + SAY["question_" + many].format(key=key)
        return text, values, len(TOKENIZER.encode(text, add_special_tokens=False).ids)

    def samples(self, n):
        step = 5
        low, high = step, int(self.length / (self.sample(step)[2] / step) * 3)
        high, size = max(high, 2 * step), step
        while low <= high:
            middle = (low + high) // 2
            if self.sample(middle)[2] <= self.length:
                size, low = middle, middle + 1
            else:
                high = middle - 1
        made = []
        while len(made) < n:
            used = size
            text, values, tokens = self.sample(used)
            while tokens > self.length:
                used -= step
                text, values, tokens = self.sample(used)
            made.append({"question": text, "expected_answer": values, "length": tokens})
        return made


def main():
    cases = [{"values": v, "length": length, "seed": seed, "samples": Draw(v, length, seed).samples(n)}
             for v, length, seed, n in ((1, 400, 42, 3), (4, 700, 42, 2), (4, 500, 7, 1))]
    random.seed(42)
    drawn = [random.getrandbits(32) for _ in range(3)] + [random.randrange(n) for n in (1, 2, 1000, 9 * 10 ** 9)]
    print(json.dumps({"nouns": NOUNS, "adjectives": ADJECTIVES, "words": len(WORDS), "drawn": drawn, "cases": cases}, indent=1))


if __name__ == "__main__":
    main()
