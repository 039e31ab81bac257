#!/usr/bin/env python3
"""Writes ruler2.json: samples of RULER v2's tasks, drawn with Python's random as its generator draws them, with the sentences of
eval/templates/ruler2.json, a few words and made-up sets in the form of MMLU and HotpotQA, in tokens of the bundled model.

    make_ruler2.py > tests/golden/ruler2.json      (tokenizers)
"""
import hashlib
import json
import math
import pathlib
import random
import re

from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).parent.parent.parent
SAY = json.loads((ROOT / "eval/templates/ruler2.json").read_text())
NOUNS = ["anchor", "basket", "candle", "engine", "garden", "kettle", "ladder", "b"]
ADJECTIVES = ["amber", "brave", "calm", "eager", "a", "a-b"]
WORDS = sorted({f"{a}-{n}" for a in ADJECTIVES for n in NOUNS})
TOKENIZER = Tokenizer.from_file(str(ROOT / "data/reference/tokenizer.json"))


def say(name, **values):
    """One pass, as a format does: what is filled in is not filled again."""
    return re.sub(r"\{(\w+)\}", lambda m: str(values.get(m[1], m[0])), SAY[name])


def made_up(count, seed):
    """Sets in the forms of the hub; every third line of HotpotQA in that of its authors' file."""
    draw = random.Random(seed)

    def words(low, high):
        return " ".join(draw.choice(NOUNS + ADJECTIVES) for _ in range(draw.randint(low, high)))

    def question(i):
        return {"question": f"Which  of\tthese\u00a0is {i}?\n {words(1, 4)}", "subject": "things",
                "choices": [words(1, 2), "a {question}", f"\n{i}", words(1, 2)], "answer": draw.randrange(4)}

    def paragraphs(i):
        titles = [f"Title {draw.randrange(2 * count)}" for _ in range(4)]
        titles = list(dict.fromkeys(titles))
        return titles, [[f"{t} is {t[-1]}. ", " It has {text}."][:1 + int(t[-1]) % 2] for t in titles]

    def document(i):
        titles, sentences = paragraphs(i)
        gold = draw.sample(titles, min(2, len(titles)))
        line = {"question": f"What is {i}?", "answer": words(1, 2)}
        if i % 3 == 0:
            return line | {"context": [list(p) for p in zip(titles, sentences)], "supporting_facts": [[t, 0] for t in gold]}
        return line | {"context": {"title": titles, "sentences": sentences}, "supporting_facts": {"title": gold, "sent_id": [0] * len(gold)}}

    return {"mmlu/test.jsonl": [question(i) for i in range(5)], "mmlu/auxiliary_train.jsonl": [question(100 + i) for i in range(count)],
            "hotpotqa/validation.jsonl": [document(i) for i in range(3)], "hotpotqa/train.jsonl": [document(100 + i) for i in range(count)]}


class Draw:
    """A task; step is the least number of things around, and what it shrinks by."""
    step = 5

    def __init__(self, length, seed):
        self.length, self.seed = length, seed
        self.random = random.Random(seed)

    def number(self, digits):
        return str(self.random.randint(10 ** (digits - 1), 10 ** digits - 1))

    def measured(self, index, n):
        text, answer = self.sample(index, n)
        return text, answer, len(TOKENIZER.encode(text, add_special_tokens=False).ids)

    def chosen(self, n):
        return range(n)

    def samples(self, n):
        step = self.step
        low, high = step, int(self.length / (self.measured(0, step)[2] / step) * 3)
        high, size = max(high, 2 * step), step
        while low <= high:
            middle = (low + high) // 2
            if self.measured(0, middle)[2] <= self.length:
                size, low = middle, middle + 1
            else:
                high = middle - 1
        made = []
        for index in self.chosen(n):
            used = size
            text, answer, tokens = self.measured(index, used)
            while tokens > self.length:
                used -= step
                text, answer, tokens = self.measured(index, used)
            made.append({"index": index, "question": hashlib.sha256(text.encode()).hexdigest(), "expected_answer": answer,
                         "length": tokens})
        return made


class Needles(Draw):
    def __init__(self, length, seed, values):
        super().__init__(length, seed)
        self.values = values

    def sample(self, _, n):
        key = self.random.choice(WORDS)
        values = [self.number(10) for _ in range(self.values)]
        needles = [say("needle", key=key, value=value) for value in values]
        random.Random(self.seed).shuffle(needles)
        if self.values == 1:
            lines = [say("needle", key=self.random.choice(WORDS), value=self.number(10)) for _ in range(n)]
        else:
            numbers = [self.number(10) for _ in range(n)]
            keys = [self.random.choice(WORDS) for _ in range(math.ceil(n / self.values))] * self.values
            lines = [say("needle", key=k, value=v) for k, v in zip(keys, numbers)]
            self.random.shuffle(lines)
        for at, needle in zip(sorted(self.random.sample(range(n), len(needles)), reverse=True), needles):
            lines.insert(at, needle)
        self.random.sample(range(1), 1)  # which key is asked for
        many = "one" if self.values == 1 else "many"
        return SAY["intro_" + many] + "\n".join(lines) + say("question_" + many, key=key), values


class Questions(Draw):
    step = 10

    def __init__(self, length, seed, sets, intro, problem, examples, same, answer):
        super().__init__(length, seed)
        self.asked, self.around = ([self.read(q) for q in sets[f"mmlu/{name}.jsonl"]] for name in ("test", "auxiliary_train"))
        self.intro, self.problem, self.examples, self.same, self.answer = intro, problem, examples, same, answer

    @staticmethod
    def read(line):
        text = line["question"] + "".join(f"\n{letter}. {choice}" for letter, choice in zip("ABCD", line["choices"]))
        return {"text": re.sub(r"\s+", " ", text), "letter": "ABCD"[line["answer"]]}

    def chosen(self, n):
        return self.random.sample(range(len(self.asked)), min(n, len(self.asked)))

    def sample(self, index, n):
        repeats = math.ceil(n / len(self.around)) if n > len(self.around) else 1
        context = [dict(q) for q in self.random.sample([q for q in self.around for _ in range(repeats)], n)]
        if self.same:
            numbers = [self.number(7) for _ in range(math.ceil((n + 1) / self.same))] * self.same
        else:
            numbers = [self.number(7) for _ in range(n + 1)]
        self.random.shuffle(numbers)
        for question, number in zip(context, numbers):
            question["number"] = number
        self.random.shuffle(context)
        examples = self.random.sample(context, self.examples)
        asked = dict(self.asked[index], number=numbers[n])
        context.insert(self.random.randint(0, n), asked)
        items = [say("item", number=q["number"], question=q["text"]) for q in context]
        which = [q for q in context if q["number"] == asked["number"]]
        at = next(i for i, q in enumerate(which) if q is asked) + 1
        ordinal = {1: "1st", 2: "2nd", 3: "3rd"}.get(at, f"{at}th")
        order = say("order", ordinal=ordinal) if self.same else ""

        def solved(q):
            copied = "\n" + say("item", number=q["number"], question=q["text"]) if self.problem == "solve_copied" else ""
            return say(self.problem, number=q["number"], order="") + copied + say("solution", answer=q["letter"])

        shown = say("examples", examples="\n\n".join(solved(q) for q in examples)) if examples else ""
        text = "\n\n".join([SAY[self.intro], *items, shown + say(self.problem, number=asked["number"], order=order)])
        answers = {"text": [asked["text"]], "texts": [q["text"] for q in which], "letter": asked["letter"]}
        return text, answers[self.answer]


class Documents(Draw):
    def __init__(self, length, seed, sets, intro, problem, answer):
        super().__init__(length, seed)
        pairs = [p for line in sets["hotpotqa/train.jsonl"] for p in self.paragraphs(line)]
        self.around = list(dict.fromkeys(text for _, text in pairs))
        self.asked = sets["hotpotqa/validation.jsonl"]
        self.intro, self.problem, self.answer = intro, problem, answer

    @staticmethod
    def paragraphs(line):
        context = line["context"]
        pairs = zip(context["title"], context["sentences"]) if isinstance(context, dict) else context
        return [(title, title + "\n" + "".join(sentences)) for title, sentences in pairs]

    def chosen(self, n):
        return range(min(n, len(self.asked)))

    def sample(self, index, n):
        line = self.asked[index]
        facts = line["supporting_facts"]
        titles = facts["title"] if isinstance(facts, dict) else [title for title, _ in facts]
        pairs = self.paragraphs(line)
        gold = [{"text": text, "number": self.number(7)} for title, text in pairs if title in titles]
        others = [{"text": text, "number": self.number(7)} for title, text in pairs if title not in titles]
        rest = len(self.around) - len({text for _, text in pairs})
        repeats = math.ceil(n / rest) if n > rest else 1
        drawn = self.random.sample([i for i in range(len(self.around)) for _ in range(repeats)], n)
        context = [{"text": self.around[i], "number": self.number(7)} for i in drawn] + gold + others
        self.random.shuffle(context)
        items = [say("document", number=d["number"], text=d["text"]) for d in context]
        problem = say(self.problem, text=gold[0]["text"], question=line["question"])
        answers = {"text": [gold[0]["number"]], "texts": [d["number"] for d in gold], "answer": [line["answer"]]}
        return "\n\n".join([SAY[self.intro], *items, problem]), answers[self.answer]


TASKS = {
    "mk_niah_basic": lambda length, seed, sets: Needles(length, seed, 1),
    "mv_niah_basic": lambda length, seed, sets: Needles(length, seed, 4),
    "mk_niah_easy": lambda *a: Questions(*a, "copy_intro", "copy", 0, 0, "text"),
    "mk_niah_medium": lambda *a: Questions(*a, "solve_intro", "solve_copied", 5, 0, "letter"),
    "mk_niah_hard": lambda *a: Questions(*a, "solve_intro", "solve", 5, 0, "letter"),
    "mv_niah_easy": lambda *a: Questions(*a, "copy_all_intro", "copy_all", 0, 4, "texts"),
    "mv_niah_medium": lambda *a: Questions(*a, "copy_intro", "copy_twice", 0, 4, "text"),
    "mv_niah_hard": lambda *a: Questions(*a, "copy_intro", "copy", 0, 4, "text"),
    "qa_basic": lambda *a: Documents(*a, "find_text_intro", "find_text", "text"),
    "qa_easy": lambda *a: Documents(*a, "find_intro", "find", "texts"),
    "qa_medium": lambda *a: Documents(*a, "read_intro", "read_copied", "answer"),
    "qa_hard": lambda *a: Documents(*a, "read_intro", "read", "answer"),
}


def main():
    # So few around that they are repeated, and so many that they are drawn as a set.
    made = [made_up(12, 1), made_up(95, 2)]
    cases = [{"task": task, "length": length, "seed": seed, "set": s, "samples": TASKS[task](length, seed, made[s]).samples(n)}
             for task, length, seed, s, n in (("mk_niah_basic", 400, 42, 0, 3), ("mv_niah_basic", 700, 42, 0, 2), ("mv_niah_basic", 500, 7, 0, 1))]
    cases += [{"task": task, "length": length, "seed": 42, "set": s, "samples": make(length, 42, made[s]).samples(n)}
              for task, make in TASKS.items() if not task.endswith("h_basic") for length, s, n in ((1500, 0, 2), (1200, 1, 9))]
    random.seed(42)
    drawn = [random.getrandbits(32) for _ in range(3)] + [random.randrange(n) for n in (1, 2, 1000, 9 * 10 ** 9)]
    samples = [{"n": n, "chosen": random.sample(range(n), k)} for n, k in ((21, 5), (22, 5), (85, 12), (86, 12), (7, 7), (3, 0))]
    print(json.dumps({"nouns": NOUNS, "adjectives": ADJECTIVES, "drawn": drawn, "samples": samples, "sets": made, "cases": cases}))


if __name__ == "__main__":
    main()
