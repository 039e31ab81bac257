#!/usr/bin/env python3
"""Scores by plain Python implementations of the benchmarks' rules, on ordinary and hostile texts.

    python3 tests/golden/make_scores.py > tests/golden/scores.jsonl            # what is committed
    python3 tests/golden/make_scores.py --seed 7 --count 20000 > more.jsonl    # test_score more.jsonl

One case a line: suite, task, scorer, pred, outputs, score (float.hex, so every bit is compared). Written
from the rules in docs/benchmarks.md, independently of the C code; the Python that runs it must have the
Unicode version of eval/score/case_tables.c (Python 3.11) where letters are concerned.
"""
import argparse
import json
import random
import re
import string
import sys
from collections import Counter

PUNCTUATION = "\n:\"'.,?!{}"


def ruler(pred, refs, every):
    text = re.sub("[\x00-\x1f]", "\n", pred.strip()).strip().lower()
    hits = [ref.lower() in text for ref in refs]
    return sum(hits) / len(hits) if every else float(any(hits))


def spaced(text, characters):
    return "".join(" " if c in characters else c for c in text)


def squad_words(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return Counter(re.sub(r"\b(?:an|a|the)\b", " ", text).split())


def f1(pred, refs):
    best = 0.0
    said = squad_words(pred)
    for ref in refs:
        wanted = squad_words(ref)
        same = sum((said & wanted).values())
        if same:
            precision, recall = same / sum(said.values()), same / sum(wanted.values())
            best = max(best, 2 * precision * recall / (precision + recall))
    return best


def integer(pred, refs):
    found = re.search("[0-9]+", pred)
    return float((found.group() if found else "") == refs[0])


def word(pred, refs):
    return float(refs[0] in spaced(pred, PUNCTUATION).split())


def after_prefix(text, prefixes, words):
    """None: no prefix occurs."""
    for prefix in prefixes:
        head, found, tail = text.partition(prefix)
        if found:
            return bool(tail) and any(tail[1:].startswith(w) for w in words)
    return None


def last_letter(text, letters):
    for line in text.split("\n"):
        found = re.findall(rf"\b[{letters}]\b", line)
        if found:
            return found[-1]
    return None


def choice(pred, refs, loose):
    pred = pred.strip()
    if loose and last_letter(pred, "A-D") in refs:
        return 1.0
    if not pred:
        return 0.0
    if pred[0] in "ABCD":
        return float(pred[0] in refs)
    if pred in refs:
        return 1.0
    text = re.sub(" +", " ", spaced(pred, "\n\"'.,?!{}"))
    result = after_prefix(text, ["answer is:", "answer:", "answer is", "option is"], refs)
    if result is None:
        words = [w for w in text.split() if w in "ABCD"]
        result = bool(words) and words[0] in refs
    return float(result)


def debug(pred, refs, loose):
    name, letter = refs[0], refs[1]
    pred = pred.strip()
    if loose:
        if last_letter(pred, "A-J") == letter:
            return 1.0
    elif pred[:2] in (letter + ".", letter + ":"):
        return 1.0
    text = re.sub("[Oo]ption", " ", spaced(pred, "\n`'\"-*"))
    text = re.sub(" +", " ", text)
    if loose and (text.startswith(letter) or text.startswith(name)):
        return 1.0
    return float(bool(after_prefix(text, ["answer is:", "is:", "answer:", "correct option is:"],
                             [letter, name])))


def dialogue(pred, refs, loose):
    if loose:
        return float(any(ref.upper() in pred.strip().upper() for ref in refs))
    return float(refs[0] in [w.upper() for w in spaced(pred, PUNCTUATION).split()])


def number(pred, refs, loose):
    found = re.search(r"\d+\.\d+|\d+", pred)
    if not found:
        return 0.0
    try:
        if isinstance(refs[0], float):
            return float(float(found.group()) == refs[0])
        return float((int(float(found.group())) if loose else int(found.group())) == refs[0])
    except (ValueError, OverflowError):  # where the official script stops
        return 0.0


def apart(a, b):
    """Words to put in, leave out or replace between two lists."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        corner, row[0] = row[0], i + 1
        for j, y in enumerate(b):
            corner, row[j + 1] = row[j + 1], min(corner + (x != y), row[j] + 1, row[j + 1] + 1)
    return row[-1]


def near(pred, ref):
    if ref.lower() in pred.lower():
        return 1.0
    wanted = ref.lower().split()
    return max(0.0, 1 - apart(pred.lower().split(), wanted) / len(wanted)) if wanted else 0.0


def ruler2(pred, refs, how):
    if how == "2steps":
        pred = pred.split("\n\n")[-1]
    if how == "part":
        pred = re.sub(r"Document \d+:(?:.*\n)+?\n", "", pred)
        return max(near(pred, ref) for ref in refs)
    return sum(near(pred, ref) for ref in refs) / len(refs)


def multichoice(pred, refs):
    at = pred.rfind("\\boxed")
    said, depth = None, 0
    for i in range(at, len(pred)) if at >= 0 else ():
        depth += (pred[i] == "{") - (pred[i] == "}")
        if pred[i] == "}" and depth == 0:
            said = pred[at + 7:i] if pred.startswith("\\boxed{", at) else None
            break
    if said is not None and len(said) != 1:
        said = (re.findall(r"\b[A-J]\b", said) or [said])[-1]
    if said is None:
        said = (re.findall(r"(?i)[*_]{0,2}Answer[*_]{0,2}\s*:[\s*_]{0,2}\s*([A-Z])(?![a-zA-Z0-9])", pred) or [None])[-1]
    return float(said == refs[0])


RULES = {
    ("ruler", "vt", "all"): lambda p, r: ruler(p, r, True),
    ("ruler", "qa_1", "part"): lambda p, r: ruler(p, r, False),
}
for scorer, loose in (("official", False), ("string", True)):
    RULES.update({
        ("infinitebench", "longbook_qa_eng", scorer): f1,
        ("infinitebench", "longbook_choice_eng", scorer): lambda p, r, l=loose: choice(p, r, l),
        ("infinitebench", "longdialogue_qa_eng", scorer): lambda p, r, l=loose: dialogue(p, r, l),
        ("infinitebench", "passkey", scorer): integer,
        ("infinitebench", "number_string", scorer): integer,
        ("infinitebench", "kv_retrieval", scorer): word,
        ("infinitebench", "code_debug", scorer): lambda p, r, l=loose: debug(p, r, l),
        ("infinitebench", "math_find", scorer): lambda p, r, l=loose: number(p, r, l),
    })
RULES.update({
    ("ruler2", "mv_niah_easy", "all"): lambda p, r: ruler2(p, r, "all"),
    ("ruler2", "mv_niah_medium", "2steps"): lambda p, r: ruler2(p, r, "2steps"),
    ("ruler2", "qa_medium", "part"): lambda p, r: ruler2(p, r, "part"),
    ("ruler2", "mk_niah_hard", "multichoice"): multichoice,
})
SECOND = ["\n\n", "\n", " ", "Document 12:", "Document \u0663:", "Document 7: text", "Document x:", "\\boxed{A}", "\\boxed{(B) it}",
          "\\boxed{AB}", "\\boxed{{C}", "}", "{", "\\boxed C", "Answer: A", "**answer** : _b", "Answer:", "answer:  C1", "A", "D", "of the"]

# What texts are made of: words the rules look for, near misses, white space of every kind, letters whose
# case is special, digits of other scripts, half a surrogate pair.
PIECES = (["answer is:", "answer:", "answer is", "option is", "Option", "option", "is:", "The", "the", "a",
           "an", "A", "B", "C", "D", "AB", "BCD", "E", "J", "K", "A.", "B:", "C)", "-", "*", "`", "_", "correct option is:",
           "foo_bar", "Foo.bar", "king Lear", "LEAR", "Remo", "12345", "67", "3.5", "3.", ".5", "007", "88",
           "1234567890123456789012", "9" * 310, "1e3", "0", "don't", "it's", "e-mail", "x" * 40]
          + list(string.punctuation)
          + [" ", "  ", "\n", "\t", "\r\n", "\x0b", "\x1c", "\x1f", "\x07", "\x7f", "\x85", "\u00a0", "\u1680",
             "\u2003", "\u2028", "\u3000", "\u200b", "\ufeff"]
          + ["\u0130", "I\u0307", "\u00df", "\ufb01", "\u0149", "\u03a3", "\u03c3", "\u03c2", "\u039f\u0394\u039f\u03a3",
             "\u01c5", "\u1f88", "\u00c9", "e\u0301", "a\u0301", "\u2019", "\u00b2", "\u2167", "\u0663\u0667", "\uff11\uff12",
             "\U0001d7d9", "\U0001f600", "\ud83d", "\ude00", "\u4e00\u4e8c", "\ufffd", "\u212a", "\u0345"])


def text(rng, most):
    pieces = [rng.choice(PIECES) for _ in range(rng.randint(0, most))]
    return rng.choice(["", " "]).join(pieces)


def second(rng, most):
    """Texts for RULER v2."""
    return "".join(rng.choice([rng.choice(SECOND), text(rng, 3), rng.choice([" ", "\n"])]) for _ in range(rng.randint(0, most)))


def references(rng, task):
    if task == "mk_niah_hard":
        return [rng.choice("ABCD")]
    if task.startswith(("mv_", "qa_m")):
        return [rng.choice([second(rng, 4), " ".join(rng.choice(["the", "of", "A", "king", "12"]) for _ in range(6))])
                for _ in range(rng.randint(1, 4))]
    if task in ("longbook_choice_eng", "code_debug"):
        return [text(rng, 2), rng.choice("ABCDJ")]
    if task == "math_find":
        return [rng.choice([88, 0, 7, 67, 3, 3.5, 0.5, 12345, -7, 1234567890123456789012, 88.0, 1e3])]
    if task in ("passkey", "number_string"):
        return [rng.choice(["12345", "67", "007", "3", "", "88", text(rng, 1)])]
    if task == "kv_retrieval":
        return [rng.choice(["12345", "foo_bar", "king", "\u00e9", "don", "-", text(rng, 1)])]
    if task == "longdialogue_qa_eng" and rng.random() < 0.7:
        return [rng.choice(["LEAR", "REMO", "SS", "\u039f\u0394\u039f\u03a3", "\u02bcN", "Remo", "X"])] + ["KING LEAR"]
    return [text(rng, 3) for _ in range(rng.randint(1, 5))]


def case(rng, key):
    suite, task, scorer = key
    refs = references(rng, task)
    pred = second(rng, 12) if suite == "ruler2" else text(rng, 12)
    if suite == "ruler2" and rng.random() < 0.4:  # near misses
        pred += "\n" + " ".join(w for w in rng.choice(refs).split() if rng.random() < 0.8)
    if rng.random() < 0.5:  # make hits likely
        ref = str(rng.choice(refs))
        if key[1] in ("longbook_choice_eng", "code_debug") and rng.random() < 0.7:
            before = ["", " ", "\n", "The answer is: ", "answer:", "the answer is ", "It is: ", "Option "]
            behind = ["", ".", ":", ". ", " ", "\n", "x", ") "]
            ref = rng.choice(before) + ref + rng.choice(behind)
            pred = rng.choice(["", pred])
        else:
            ref = rng.choice([ref, ref.lower(), ref.upper(), ref.title()])
        at = rng.randint(0, len(pred))
        pred = pred[:at] + rng.choice(["", " "]) + ref + rng.choice(["", " ", "."]) + pred[at:]
    if not pred.strip(" \t\n\v\f\r"):
        pred += "."
    # As a reader sees it: two halves of a surrogate pair that met are one character then.
    pred, refs = json.loads(json.dumps([pred, refs]))
    return {"suite": suite, "task": task, "scorer": scorer, "pred": pred, "outputs": refs,
            "score": float(RULES[key](pred, refs)).hex()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=25, help="cases of every rule")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    for key in RULES:
        for _ in range(args.count):
            print(json.dumps(case(rng, key)))
    print(f"Python {sys.version.split()[0]}", file=sys.stderr)


if __name__ == "__main__":
    main()
