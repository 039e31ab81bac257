#!/usr/bin/env python3
"""Write case_tables.c: what Python's str.lower, upper, title, repr(), the is…() methods and int() know of characters,
beyond what utf8proc and engine/text do.

    python3 eval/score/case_tables.py > eval/score/case_tables.c

The tables here are of Python 3.11 (Unicode 14). Scorers of benchmarks are Python programs, so their
numbers are those of these tables.
"""
import ctypes
import pathlib
import re
import sys
import unicodedata

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
TABLES = pathlib.Path(__file__).parents[2] / "engine/text/unicode_tables.h"
CASEFOLD = 1 << 10
IGNORABLE = ["Mn", "Me", "Cf", "Lm", "Sk"]
utf8proc = ctypes.CDLL("libutf8proc.so.2")
utf8proc.utf8proc_category_string.restype = ctypes.c_char_p
CATEGORY = {c: utf8proc.utf8proc_category_string(c).decode() for c in ALL}
for first, last, category in re.findall(r"{(\w+), (\w+), (\w+)}", TABLES.read_text()):
    CATEGORY.update((c, category.capitalize()) for c in range(int(first, 16), int(last, 16) + 1))


def known(*names):
    """Characters of general categories, or kinds of them, as engine/text has them (Unicode 16)."""
    return {c for c in ALL if CATEGORY[c].startswith(names)}


def ranges(points):
    """Inclusive ranges of an ascending list."""
    result = []
    for c in points:
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def is_cased(c):
    """Behind such a letter the final sigma becomes U+03C2. Always false where it looks past."""
    return (chr(c) + "\u03a3").lower()[-1] == "\u03c2"


def is_ignorable(c):
    """Whether the final sigma looks past the character."""
    return ("a" + chr(c) + "\u03a3").lower()[-1] == "\u03c2" and not is_cased(c)


def table(kind, name, rows, form):
    print(f"static const {kind} {name} = {{")
    line = "   "
    for row in rows:
        text = " " + form(row) + ","
        if len(line) + len(text) > 100:
            print(line)
            line = "   "
        line += text
    print(line)
    print("};\n")


def several(c, case):
    """What pytext.c makes of a character that its folding makes several; None where it is one."""
    simple = getattr(utf8proc, f"utf8proc_to{case}")
    parts = (ctypes.c_int32 * 3)()
    n = utf8proc.utf8proc_decompose_char(c, parts, 3, CASEFOLD, None)
    if n < 2 or CATEGORY[c] == "Lu" or (case == "title" and CATEGORY[simple(c)] == "Lt"):
        return None
    if case == "upper":
        return "".join(chr(simple(part)) for part in parts[:n])
    first = next(i for i in range(n) if simple(parts[i]) != parts[i])
    return "".join(chr(simple(part) if i <= first else 0x345 if part == 0x3B9 else part)
                   for i, part in enumerate(parts[:n]))


def check(case):
    """utf8proc has the case of Python of every character that is one in both, where both know the two; and those that
    become several are those of pytext.c."""
    simple = getattr(utf8proc, f"utf8proc_to{case}")
    for c in ALL:
        text = getattr(chr(c), case)()
        if case != "lower" and (len(text) > 1 or several(c, case)):
            assert text == several(c, case)
        elif (c, text) != (0x130, "i\u0307"):
            assert ord(text) == (simple(c) if chr(c).isprintable() and chr(simple(c)).isprintable() else c)


def main():
    for case in ("lower", "upper", "title"):
        check(case)
    for c in ALL:
        before = next(n for n in range(99) if unicodedata.category(chr(c - n)) != "Nd") if c > 99 else 0
        assert c < 100 or unicodedata.decimal(chr(c), -1) == (before - 1 if before == 0 else (before - 1) % 10)
    print(f"/* Made by case_tables.py from Python {sys.version_info[0]}.{sys.version_info[1]}"
          f" (Unicode {unicodedata.unidata_version}). Do not edit. */")
    print("/* clang-format off */")
    print('#include "eval/score/pytext.h"\n\n#include <utf8proc.h>\n')
    # Digits that are no decimals (superscripts).
    digits = [c for c in ALL if chr(c).isdigit() and not chr(c).isdecimal()]
    # What engine/text knows and this Python does not, and what other classes have beside those.
    new = [c for c in sorted(known("L", "M", "N", "P", "S", "Cf")) if unicodedata.category(chr(c)) == "Cn"]
    small = [c for c in ALL if chr(c).islower()]
    capital = [c for c in ALL if chr(c).isupper()]
    ignorable = [c for c in ALL if is_ignorable(c)]

    def more(points, *names):
        rest = set(points) - known(*names)
        assert set(points) == known(*names) - set(new) | rest
        return sorted(rest)

    assert set(map(chr, ALL)) - set(filter(str.isprintable, map(chr, ALL))) == (
        set(map(chr, ALL)) - set(map(chr, known("L", "M", "N", "P", "S") - set(new))) - {" "})
    assert not more([c for c in ALL if chr(c).isalnum()], "L", "N")
    cased = set(small) | set(capital) | set(known("Lt"))
    assert {c for c in ALL if is_cased(c)} == cased - set(ignorable)
    # U+1171E: a mark that later versions have in another category.
    ignorable = sorted(more(ignorable, *IGNORABLE) + [0x1171E])
    for name, points in (("other_digits", digits), ("new", new),
                         ("other_small", more(small, "Ll")), ("other_capital", more(capital, "Lu")),
                         ("ignorable", ignorable)):
        rows = ranges(points)
        print(f"/* {len(points)} code points */")
        table("uint32_t", f"{name}_ranges[][2]", rows, lambda r: "{%#x, %#x}" % tuple(r))
        print(f"const struct dpe_unicode_class dpe_case_{name} = {{"
              f"\n    {name}_ranges, sizeof {name}_ranges / sizeof {name}_ranges[0]",
              *(",\n    " + " |\n    ".join(f"1U << UTF8PROC_CATEGORY_{kind.upper()}" for kind in IGNORABLE)
                for _ in range(name == "ignorable")), "};\n", sep="")


if __name__ == "__main__":
    main()
