#!/usr/bin/env python3
"""Write unicode_tables.h: where the character classes of the reference tokenizer, asked of itself, are
others than utf8proc's properties, in the version here and in later ones.

Run with a Python that has `tokenizers` and `unicodedata2` (the tables here: 0.23.3 and 18.0.0), beside
utf8proc 2.8 (Unicode 15):
    python3 engine/text/unicode_tables.py > engine/text/unicode_tables.h

Every class is measured by feeding all 1,112,064 code points to the reference, because it mixes
several Unicode versions: its regular expressions know Unicode 16, its Digits pre-tokenizer a later
one, its normaliser one from before Unicode 13. Of a character that it does not know the tables say
so, whatever utf8proc knows of it.
"""
import ctypes
import functools
import sys

import tokenizers
import unicodedata2
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CATEGORIES = ["Lu", "Ll", "Lt", "Lm", "Lo", "M", "Nd", "N", "P", "S"]
EXPECTED = {"L": 141028, "N": 1911, "s": 25}
WORD = ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"]

FORMS = ["NFC", "NFD", "NFKC"]

utf8proc = ctypes.CDLL("libutf8proc.so.2")
utf8proc.utf8proc_category_string.restype = ctypes.c_char_p


def regex_class(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    return {c for c in ALL if not split.pre_tokenize_str(chr(c))}


def numeric():
    """What the Digits pre-tokenizer cuts out."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    return {c for c in ALL if len(digits.pre_tokenize_str("a" + chr(c))) == 2}


def word():
    """What stands next to a single_word added token and makes it no match."""
    tokenizer = Tokenizer(models.BPE({"a": 0}, []))
    tokenizer.add_tokens([AddedToken("\x01", single_word=True, normalized=False)])
    token = tokenizer.token_to_id("\x01")
    return {c for c in ALL if c != 1 and token not in tokenizer.encode("\x01" + chr(c)).ids}


def class_of(category):
    """Of the classes that are measured, the one of a general category; None: of no other use."""
    return category if category in CATEGORIES else category[0] if category[0] in "MNPS" else None


def categories(classes):
    """(seen, exceptions): the category of every character as the tables make it, and those of them
    that utf8proc or the later Unicode has in another class."""
    reference = {c: name for name in reversed(CATEGORIES) for c in classes[name]}
    seen, exceptions = {}, {}
    for c in ALL:
        ours = utf8proc.utf8proc_category_string(c).decode()
        fits = [category for category in (ours, unicodedata2.category(chr(c)))
                if class_of(category) == reference.get(c)]
        if len(fits) < 2:
            exceptions[c] = fits[0] if fits else "Cn"
        seen[c] = exceptions.get(c, ours)
    return seen, exceptions


def normal_forms(nfc, nfd, nfkc):
    """(seconds, active): what NFC joins to the character before it; and both of these, and what either
    form changes, or moves beside U+0345 (class 240) or U+0334 (class 1)."""
    firsts, seconds, active = set(), set(), set()
    for c in ALL:
        ch, parts = chr(c), nfd(chr(c))
        if len(parts) > 1 and nfc(ch) == ch:
            firsts.add(ord(nfc(parts[:-1])))
            seconds.add(ord(parts[-1]))
        if nfkc(ch) != ch or nfd("\u0345" + ch)[0] != "\u0345" or \
                nfd(ch + "\u0334")[-1] != "\u0334":
            active.add(c)
    return seconds, active | firsts | seconds


def ranges(points):
    """(low, high, value) of a dict, or (low, high) of a set."""
    out = []
    for c in sorted(points):
        value = (points[c],) if isinstance(points, dict) else ()
        if out and out[-1][1] == c - 1 and out[-1][2:] == value:
            out[-1] = (out[-1][0], c) + value
        else:
            out.append((c, c) + value)
    return out


def emit(declaration, rows):
    print(f"\nstatic const {declaration} = {{")
    line = "   "
    for low, high, *category in rows:
        item = f" {{0x{low:x}, 0x{high:x}{''.join(', ' + name.upper() for name in category)}}},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")


def main():
    classes = {c: regex_class(rf"\p{{{c}}}") for c in CATEGORIES}
    counts = {"L": regex_class(r"\p{L}"), "N": classes["N"], "s": regex_class(r"\s")}
    for key, count in EXPECTED.items():
        if len(counts[key]) != count:
            sys.exit(f"class {key}: {len(counts[key])} code points, expected {count}")
    seen, exceptions = categories(classes)
    print(f"/* Made by unicode_tables.py from tokenizers {tokenizers.__version__} and unicodedata2 "
          f"{unicodedata2.unidata_version}. Do not edit. */")
    print("/* clang-format off */\n#ifndef DPE_UNICODE_TABLES_H\n#define DPE_UNICODE_TABLES_H")
    print("\n#include <stdint.h>\n\n#include <utf8proc.h>")
    print("\n/* Characters whose category is not that of the reference in every version of utf8proc. */")
    names = sorted({name.upper() for name in exceptions.values()})
    print("enum {")
    for name in names:
        print(f"    {name} = UTF8PROC_CATEGORY_{name},")
    print("};")
    emit("struct exception {\n    uint32_t low, high, category;\n} exceptions[]", ranges(exceptions))
    seconds, active = normal_forms(*(getattr(normalizers, form)().normalize_str for form in FORMS))
    later = normal_forms(*(functools.partial(unicodedata2.normalize, form) for form in FORMS))[1]
    for name, points in {
            "space": counts["s"],
            "numeric": numeric() - classes["N"],
            "word": word() - {c for c in ALL if seen[c] in WORD},
            "nfc_second": {c for c in seconds if not unicodedata2.combining(chr(c))},
            "nfc_unknown": later - active}.items():
        emit(f"uint32_t {name}_ranges[][2]", ranges(points))
    print("\n/* clang-format on */\n\n#endif")


main()
