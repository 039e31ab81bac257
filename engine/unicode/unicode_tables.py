#!/usr/bin/env python3
"""Write unicode_tables.c: the character classes of the reference tokenizer, asked of itself.

Run with a Python that has `tokenizers` (the tables here: 0.23.3):
    python3 engine/unicode/unicode_tables.py > engine/unicode/unicode_tables.c

Every table is measured by feeding all 1,112,064 code points to the reference, because it mixes
several Unicode versions: its regular expressions know Unicode 16, its Digits pre-tokenizer a later
one, its normaliser one from before Unicode 13.
"""
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CATEGORIES = ["L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "P", "S"]
EXPECTED = {"L": 141028, "N": 1911, "s": 25}

nfc = normalizers.NFC().normalize_str
nfd = normalizers.NFD().normalize_str
nfkc = normalizers.NFKC().normalize_str


def regex_class(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    return [c for c in ALL if not split.pre_tokenize_str(chr(c))]


def numeric():
    """What the Digits pre-tokenizer cuts out."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    return [c for c in ALL if len(digits.pre_tokenize_str("a" + chr(c))) == 2]


def word():
    """What stands next to a single_word added token and makes it no match."""
    tokenizer = Tokenizer(models.BPE({"a": 0}, []))
    tokenizer.add_tokens([AddedToken("\x01", single_word=True, normalized=False)])
    token = tokenizer.token_to_id("\x01")
    return [c for c in ALL if c != 1 and token not in tokenizer.encode("\x01" + chr(c)).ids]


def combines(c):
    """Whether the reference gives the character a non-zero canonical combining class: then it
    changes places with U+0345 (class 240) before it or with U+0334 (class 1) behind it."""
    ch = chr(c)
    return nfd("\u0345" + ch)[0] != "\u0345" or nfd(ch + "\u0334")[-1] != "\u0334"


def normal_forms():
    """(active, first): characters that NFC may change, move, or join to the one before them; and
    those that may be the first of such a join."""
    active, first = set(), set()
    for c in ALL:
        ch, parts = chr(c), nfd(chr(c))
        if nfc(ch) != ch or combines(c):
            active.add(c)
        if len(parts) > 1 and nfc(ch) == ch:
            active.add(ord(parts[-1]))
            first.add(ord(nfc(parts[:-1])))
    return sorted(active), sorted(first)


def ranges(points):
    out = []
    for c in points:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def emit(name, points):
    spans = ranges(points)
    print(f"\n/* {len(points)} code points */")
    print(f"static const uint32_t {name}_ranges[][2] = {{")
    line = "   "
    for low, high in spans:
        item = f" {{0x{low:x}, 0x{high:x}}},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")
    print(f"const struct dpe_unicode_class dpe_unicode_{name} = {{")
    print(f"    {name}_ranges, sizeof {name}_ranges / sizeof {name}_ranges[0]}};")


def main():
    print(f"/* Made by unicode_tables.py from tokenizers {tokenizers.__version__}. Do not edit. */")
    print('/* clang-format off */\n#include "engine/unicode/unicode.h"')
    tables = {c: regex_class(rf"\p{{{c}}}") for c in CATEGORIES}
    tables["s"] = regex_class(r"\s")
    for key, count in EXPECTED.items():
        if len(tables[key]) != count:
            sys.exit(f"class {key}: {len(tables[key])} code points, expected {count}")
    for key, points in tables.items():
        emit("space" if key == "s" else key, points)
    emit("numeric", numeric())
    emit("word", word())
    active, first = normal_forms()
    emit("nfc_active", active)
    emit("nfc_first", first)
    # What a compatibility form begins with joins as its canonical twin does: the firsts are NFC's.
    emit("nfkc_active", sorted(set(active) | {c for c in ALL if nfkc(chr(c)) != chr(c)}))
    print("\n/* clang-format on */")


main()
