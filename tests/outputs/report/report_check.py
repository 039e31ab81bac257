#!/usr/bin/env python3
"""Looks at what dpe-report wrote: report_check.py PAGE.html [FIGURES TABLES].

The page parses, its tags close, ids are unique and links lead to them, nothing is loaded and nothing
runs; figures are well-formed SVG, inline and as files, and PNG; CSV numbers are those of the tables.
"""
import csv
import html.parser
import math
import os
import re
import struct
import sys
import xml.etree.ElementTree as ET

import h5py
import numpy as np

VOID = {"meta", "link", "br", "hr", "img"}
problems = []


def check(ok, text):
    if not ok:
        problems.append(text)


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.text = [], [], [], []

    def attributes(self, tag, attrs):
        for name, value in attrs:
            check(not name.startswith("on"), f"<{tag} {name}>: an event handler")
            if name == "id":
                self.ids.append(value)
            if name in ("href", "xlink:href", "src"):
                check(value.startswith(("#", "data:")), f"<{tag} {name}={value!r}> leads outside")
                if value.startswith("#"):
                    self.links.append(value[1:])
            check(value is None or "javascript:" not in value.lower(), f"<{tag} {name}>: a script")

    def handle_starttag(self, tag, attrs):
        check(tag not in ("script", "iframe", "object", "embed", "form", "base", "b"), f"<{tag}>")
        self.attributes(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes(tag, attrs)

    def handle_endtag(self, tag):
        check(self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}")
        if self.open:
            self.open.pop()

    def handle_data(self, data):
        self.text.append(data)


def check_page(path):
    with open(path, "rb") as file:
        raw = file.read()
    text = raw.decode("utf-8")
    page = Page()
    page.feed(text)
    page.close()
    check(not page.open, f"not closed: {page.open}")
    check(len(page.ids) == len(set(page.ids)),
          f"ids occur twice: {sorted(i for i in set(page.ids) if page.ids.count(i) > 1)}")
    for link in page.links:
        check(link in page.ids, f"#{link} leads nowhere")
    check("default-src 'none'" in text, "no content security policy")
    check(not re.search(r"url\(|@import|https?://(?!www\.w3\.org/)", text), "something is loaded")
    check("prefers-color-scheme" in text and "@media print" in text, "no dark, or no print")
    check(not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text), "control characters")
    check("nan" not in re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", text, flags=re.S).lower()
          .replace("nanosecond", ""), "a NaN is shown")
    for svg in re.findall(r"<svg.*?</svg>", text, flags=re.S):
        check_svg(svg, "inline")
    return text


def check_svg(text, name):
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        problems.append(f"{name}: not well-formed: {error}")
        return
    tags = {element.tag.split("}")[-1] for element in root.iter()}
    check("script" not in tags and "foreignObject" not in tags, f"{name}: {tags}")
    check(tags & {"path", "rect", "image"}, f"{name}: nothing is drawn")
    titles = [e for e in root if e.tag.split("}")[-1] == "title"]
    check(root.get("role") == "img" and len(titles) == 1 and (titles[0].text or "").strip() and
          root.get("aria-labelledby") == titles[0].get("id"), f"{name}: no text alternative")
    width, height = (float(root.get(key)) for key in ("width", "height"))
    for element in root.iter():
        for key, most in (("x", width), ("cx", width), ("y", height), ("cy", height)):
            value = float(element.get(key, "0"))
            check(0.0 <= value <= most or element.get("transform"),
                  f"{name}: {element.tag} {key}={value} outside")
        if element.get("text-anchor") == "middle" and not element.get("transform"):
            half = 0.25 * float(element.get("font-size")) * len(element.text)  # at least
            x = float(element.get("x"))
            check(half <= x <= width - half, f"{name}: {element.text!r} is cut off")
        check(not re.search(r"nan|inf", element.get("d", "")), f"{name}: a path without numbers")
    for element in root.iter():
        for key, value in element.attrib.items():
            if key.endswith("href"):
                check(value.startswith(("#", "data:image/png;base64,")), f"{name}: {value[:60]}")


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def same(a, b):
    return (math.isnan(a) and math.isnan(b)) or a == b


def check_values(rows, column, values, name):
    values = values.reshape(-1)
    check(len(rows) == len(values), f"{name}: {len(rows)} rows, {len(values)} values")
    for row, value in zip(rows, values):
        check(same(float(row[column]), float(value)), f"{name}: {row[column]} is not {value}")


def check_positions(folder, file):
    rows = read_csv(f"{folder}/detect-positions.csv")
    check_values(rows, "perplexity", file["/detect/ppl/perplexity_at"][()], "positions of groups")
    check([r["from position"] for r in rows[:4]] == ["1", "2", "4", "8"], "positions")
    rows = read_csv(f"{folder}/validate-positions.csv")
    check_values(rows, "perplexity", file["/validate/ppl/perplexity_at"][()], "positions of plans")
    check([r["plan"] for r in rows[::12]] == ["rope", "base", "joint"], "plans")


def check_figures(folder, tables):
    names = set(os.listdir(folder))
    for name in sorted(names):
        path = os.path.join(folder, name)
        if name.endswith(".svg"):
            with open(path, encoding="utf-8") as file:
                check_svg(file.read(), name)
            check(name[:-4] + ".png" in names and name[:-4] + ".csv" in names, f"{name} is alone")
        elif name.endswith(".png"):
            with open(path, "rb") as file:
                head = file.read(24)
            check(head[:8] == b"\x89PNG\r\n\x1a\n", f"{name}: no PNG")
            check(struct.unpack(">I", head[16:20])[0] == 840, f"{name}: width")
        else:
            check(name.endswith(".csv"), f"{name}: what is that?")
            check(len(read_csv(path)) > 0, f"{name}: no rows")
    expected = {"detect-recall", "detect-rank", "detect-perplexity", "detect-perplexity-rank",
                "norms", "norms-ranked", "norms-cumulative",
                "niah-lengths", "ppl-lengths", "ppl-positions",
                "ruler-tasks", "detect-positions", "validate-positions", "grid-1", "grid-2", "grid-3", "ablate-rank", "ablate-pairs",
                "ablate-scaled", "ablate-scaled-pairs", "table-pairs", "table-pairs-512", "table-pairs-2048"}
    check({row["method"] for row in read_csv(f"{folder}/glance.csv")} >= {"rope", "'"}, "glance")
    for name in expected:
        check(name + ".svg" in names, f"{name}.svg is missing")
    with h5py.File(f"{tables}/detect.h5") as f:
        rows = read_csv(f"{folder}/detect-recall.csv")
        check_values(rows, "recall_percent", f["/detect/niah/recall_mean"][()] * 100.0, "recall")
        check_values(rows, "recall_percent_low", f["/detect/niah/ci_low"][()] * 100.0, "recall_low")
        check_values(read_csv(f"{folder}/detect-perplexity.csv"), "perplexity",
                     f["/detect/ppl/perplexity"][()], "perplexity")
        check_values(read_csv(f"{folder}/validation.csv"), "recall_percent",
                     f["/validate/niah/recall_mean"][()] * 100.0, "validation")
        check_positions(folder, f)
    with h5py.File(f"{tables}/norms.h5") as f:
        check_values(read_csv(f"{folder}/norms.csv"), "contribution", f["/norms/mean"][()], "norms")
    with h5py.File(f"{tables}/compare.h5") as f:
        rows = read_csv(f"{folder}/niah-lengths.csv")
        check_values(rows, "score_percent", f["/eval/niah/mean"][()] * 100.0, "niah")
        check_values(rows, "score_percent_high", f["/eval/niah/ci_high"][()] * 100.0, "niah high")
        check({row["method"] for row in rows} >= {"<script>alert(1)</script>", "'"}, "names")
        rows = read_csv(f"{folder}/niah-memory.csv")
        memory = f["/eval/niah/memory"][()].astype(float)
        check_values(rows, "MiB of a sample", np.where(memory > 0, memory / 2**20, np.nan), "memory")
        check_values(rows, "recall_percent", f["/eval/niah/mean"][()] * 100.0, "recall over memory")
        positions = f["/eval/ppl/position_mean"][:, -1]
        check_values(read_csv(f"{folder}/ppl-positions.csv"), "perplexity", positions, "positions")
    with h5py.File(f"{tables}/grid.h5") as f:
        check_values(read_csv(f"{folder}/grid-2.csv"), "recall_percent", f["/eval/niah_grid/mean"][1] * 100.0,
                     "grid")
    with h5py.File(f"{tables}/table.h5") as f:
        shares = f["/table/mask"][()].reshape(3, 4, 8, 4).mean(axis=(1, 3))
        check_values(read_csv(f"{folder}/table-pairs.csv"), "share", shares, "table")
    with h5py.File(f"{tables}/several.h5") as f:
        for length in (512, 2048):
            shares = f[f"/table/{length}/mask"][()].reshape(3, 4, 4, 8).mean(axis=(1, 3))
            check_values(read_csv(f"{folder}/table-pairs-{length}.csv"), "share", shares, f"entry {length}")
            check_values(read_csv(f"{folder}/table-groups-{length}.csv"), "scale",
                         f[f"/table/{length}/scale_factor"][()], f"groups of entry {length}")
    with h5py.File(f"{tables}/scaledk.h5") as f:
        rows = read_csv(f"{folder}/ablate-scaled-pairs.csv")
        check_values([r for r in rows if r["varied"] == "128 tokens"], "score_percent",
                     f["/eval/niah/mean"][7:12, 0] * 100.0, "scaled by k")
    with h5py.File(f"{tables}/topk.h5") as f, h5py.File(f"{tables}/lastk.h5") as g:
        rows = read_csv(f"{folder}/ablate-pairs.csv")
        for table, axis in ((f, "top-k"), (g, "last-k")):
            check_values([r for r in rows if r["varied"] == axis], "score_percent",
                         table["/eval/niah/mean"][2:, 0] * 100.0, axis)


def main():
    text = check_page(sys.argv[1])
    if len(sys.argv) > 3:
        check("&lt;script&gt;alert(1)&lt;/script&gt;" in text, "the hostile name is not shown")
        check_figures(sys.argv[2], sys.argv[3])
    for problem in problems[:20]:
        print(f"{sys.argv[1]}: {problem}")
    sys.exit(1 if problems else 0)


main()
