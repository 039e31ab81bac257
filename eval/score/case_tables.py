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


def specials(case):
    """Characters that become several, [(c, text)]; of all others utf8proc is asserted to have the case of Python, where both
    know the two characters."""
    simple = {"lower": utf8proc.utf8proc_tolower, "upper": utf8proc.utf8proc_toupper,
              "title": utf8proc.utf8proc_totitle}[case]
    several = []
    for c in ALL:
        text = getattr(chr(c), case)()
        if len(text) > 1:
            several.append((c, text))
        else:
            assert ord(text) == (simple(c) if chr(c).isprintable() and chr(simple(c)).isprintable() else c)
    return several


def main():
    assert specials("lower") == [(0x130, "i\u0307")]
    zeros = [c for c in ALL if unicodedata.decimal(chr(c), -1) == 0]
    for c in ALL:
        value = unicodedata.decimal(chr(c), -1)
        assert value < 0 or c - value in zeros
    print(f"/* Made by case_tables.py from Python {sys.version_info[0]}.{sys.version_info[1]}"
          f" (Unicode {unicodedata.unidata_version}). Do not edit. */")
    print("/* clang-format off */")
    print('#include "eval/score/pytext.h"\n\n#include <utf8proc.h>\n')
    for name in ("upper", "title"):
        table("struct dpe_case_special", f"{name}_special[]", specials(name), lambda r: "{%#x, {%s}}" % (
            r[0], ", ".join("%#x" % ord(ch) for ch in r[1])))
        print(f"const struct dpe_case_specials dpe_case_{name}_special = {{"
              f"\n    {name}_special, sizeof {name}_special / sizeof {name}_special[0]}};\n")
    table("uint32_t", "zeros[]", zeros, lambda c: "%#x" % c)
    print("const struct dpe_case_zeros dpe_case_digits = {zeros, sizeof zeros / sizeof zeros[0]};\n")
    # Digits that are no decimals (superscripts).
    digits = [c for c in ALL if chr(c).isdigit() and not chr(c).isdecimal()]
    numeric = [c for c in ALL if chr(c).isnumeric()]
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
    for name, points in (("other_digits", digits), ("other_numbers", more(numeric, "N")), ("new", new),
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
