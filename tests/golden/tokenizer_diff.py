#!/usr/bin/env python3
"""Compare our tokenizer with the reference on many texts; prints what differs, exits 1 if any does.

    python3 tests/golden/tokenizer_diff.py [--probe build/tests/tokenizer_probe] [--random 4000]
        TOKENIZER.json… [--texts FILE…] [--all-points] [--gguf]

Run by hand with a Python that has `tokenizers`. A *.model (SentencePiece) is turned into the two
tokenizer.json shapes by tokenizer_spm.py first. --gguf: ours reads the same tokenizer from the
metadata of a GGUF file that is written for the purpose. Texts: random Unicode of several kinds,
every code point alone and between letters (--all-points), whole files (--texts).
"""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

import tokenizer_spm

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import gguf_tokenizer  # noqa: E402
import gguf_writer  # noqa: E402

ADD, LITERAL, PARSE, REPLACE = 1, 2, 4, 8


class Probe:
    def __init__(self, program, path):
        self.process = subprocess.Popen([program, path], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def ask(self, what, flags, payload, count):
        pipe = self.process.stdin
        pipe.write(what + struct.pack("<II", flags, count) + payload)
        pipe.flush()
        head = self.process.stdout.read(8)
        if len(head) < 8:
            sys.exit(f"the probe died on {payload[:200]!r}")
        return struct.unpack("<II", head)

    def encode(self, text, flags):
        data = text if isinstance(text, bytes) else text.encode()
        status, n = self.ask(b"e", flags, data, len(data))
        if status:
            return self.process.stdout.read(n).decode(errors="replace")
        return list(struct.unpack(f"<{n}i", self.process.stdout.read(4 * n)))

    def decode(self, ids, flags):
        _, n = self.ask(b"d", flags, struct.pack(f"<{len(ids)}i", *ids), len(ids))
        return self.process.stdout.read(n).decode(errors="surrogateescape")


POOLS = [
    list(range(0x20, 0x7F)),
    [0x20, 0x20, 0x0A, 0x0D, 0x09, 0x61, 0x31, 0x27, 0x73, 0x2581],
    list(range(0x300, 0x370)) + [0x61, 0x65, 0x41],
    [0x41, 0x65, 0x0327, 0x0301, 0x0323, 0x0345, 0x3099, 0x0334, 0x1100, 0x1161, 0x11A8, 0xAC00],
    list(range(0x900, 0xA00)) + list(range(0xB80, 0xC00)) + [0x1112C, 0x11131, 0x11127],
    list(range(0x1D100, 0x1D180)) + list(range(0x11900, 0x11960)) + list(range(0x105C0, 0x105F0)),
    [0x20, 0xA0, 0x85, 0x180E, 0x200B, 0x2028, 0x3000, 0x1680, 0x0B, 0x0C, 0x1C, 0xFEFF, 0x61],
    list(range(0x30, 0x3A)) + [0x660, 0x0BE7, 0x2167, 0xB2, 0x1D7CE, 0x11DE0, 0x16FF4, 0x20],
    list(range(0x3040, 0x30FF)) + list(range(0x4E00, 0x4E80)) + [0x3002, 0x20],
    list(range(0x400, 0x460)) + [0x20, 0x2C],
    list(range(0x1F600, 0x1F650)) + [0x200D, 0xFE0F, 0x1F3FB, 0x1F3FC],
    [0x27, 0x73, 0x53, 0x17F, 0x74, 0x6C, 0x4C, 0x72, 0x65, 0x76, 0x64, 0x6D, 0x20, 0x212A],
]
ANY = [c for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF]
ASSIGNED = [c for c in ANY if chr(c).isprintable()]


def random_texts(rng, n, specials):
    for i in range(n):
        pools = [rng.choice(POOLS + [ANY, ASSIGNED, ASSIGNED]) for _ in range(rng.randint(1, 3))]
        parts = []
        for _ in range(rng.choice([1, 3, 10, 40, 120])):
            if specials and rng.random() < 0.04:
                parts.append(rng.choice(specials))
            if rng.random() < 0.1:
                parts.append(" " * rng.randint(0, 4) + "\n" * rng.randint(0, 2))
            parts.append(chr(rng.choice(rng.choice(pools))) * rng.choice([1, 1, 1, 1, 2, 3, 9]))
        yield "".join(parts)


def point_texts():
    """Every code point alone, and in runs with letters, digits, spaces and punctuation around."""
    for at in range(0, len(ANY), 64):
        block = ANY[at:at + 64]
        yield "".join(chr(c) for c in block)
        for form in ("a{0}b ", " {0}{0}1", "\n {0}.", "'{0} ", "e{0}\u0301{0}"):
            yield "".join(form.format(chr(c)) for c in block)


def broken_texts(rng, n):
    for _ in range(n):
        data = bytearray("añ€😀 x\u0301".encode() * rng.randint(1, 5))
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        yield bytes(data)


class Comparison:
    def __init__(self, name, program, path, ours):
        self.name, self.probe = name, Probe(program, ours)
        self.reference = Tokenizer.from_file(path)
        self.reference.no_truncation()
        self.reference.no_padding()
        self.texts = self.bytes = self.bad = 0

    def report(self, what, text, got, expected):
        self.bad += 1
        if self.bad <= 10:
            print(f"{self.name}: {what} of {text[:300]!r}\n  got      {got!r:.400}\n"
                  f"  expected {expected!r:.400}")

    def text(self, text, flags=ADD | PARSE):
        self.texts += 1
        valid = text if isinstance(text, str) else text.decode(errors="replace")
        self.bytes += len(valid.encode())
        self.reference.encode_special_tokens = bool(flags & LITERAL)
        expected = self.reference.encode(valid, add_special_tokens=bool(flags & ADD)).ids
        got = self.probe.encode(text, flags)
        if got != expected:
            self.report(f"encode({flags})", text, got, expected)

    def ids(self, ids, skip):
        self.texts += 1
        expected = self.reference.decode(ids, skip_special_tokens=skip)
        got = self.probe.decode(ids, int(skip))
        if got != expected:
            self.report(f"decode(skip={skip})", ids, got, expected)


def compare(name, path, options, ours=None):
    rng = random.Random(options.seed)
    c = Comparison(name, options.probe, path, ours or path)
    added = [t.content for t in c.reference.get_added_tokens_decoder().values()][:40]
    for text in random_texts(rng, options.random, added):
        c.text(text, rng.choice([PARSE, ADD | PARSE, LITERAL]))
    for text in broken_texts(rng, 500):
        c.text(text, ADD | PARSE | REPLACE)
    known = sorted(c.reference.get_vocab(with_added_tokens=True).values())
    for i in range(0, len(known), 50):
        c.ids(known[i:i + 50], False)
    for _ in range(1000):
        c.ids(rng.choices(known, k=rng.randint(0, 30)), rng.random() < 0.5)
    for length in (1000, 20000):
        for unit in (" ", "a", "^", "\u0301", "\n", "ab", "\u2581", "1"):
            c.text(unit * length)
    if options.all_points:
        for text in point_texts():
            c.text(text)
    for file in options.texts:
        with open(file, encoding="utf-8", errors="replace", newline="") as stream:
            c.text(stream.read(), PARSE)
    print(f"{name}: {c.texts} comparisons, {c.bytes} bytes of text, {c.bad} differ", flush=True)
    return c.bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--probe", default="build/tests/tokenizer_probe")
    parser.add_argument("--random", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts", nargs="*", default=[])
    parser.add_argument("--all-points", action="store_true")
    parser.add_argument("--gguf", action="store_true")
    options = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as scratch:
        for path in options.tokenizers:
            ours = os.path.join(scratch, "tokenizer.gguf") if options.gguf else None
            if path.endswith(".model"):
                if options.gguf:
                    gguf_writer.write(ours, gguf_tokenizer.sentence_piece(tokenizer_spm.pieces(path)), [])
                for name, made in tokenizer_spm.convert(path, scratch)[:1 if options.gguf else 2]:
                    bad += compare(name, made, options, ours)
            else:
                if options.gguf:
                    with open(path, encoding="utf-8") as stream:
                        gguf_writer.write(ours, gguf_tokenizer.byte_level(json.load(stream)), [])
                bad += compare(path, path, options, ours)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
