#!/usr/bin/env python3
"""Makes tables of every kind that dpe-report reads, with made-up numbers: report_tables.py DIR.

The layout is that of outputs/SCHEMA.md; the numbers are drawn, so that nothing here looks like a
measurement of a model. Some methods have names that mean harm in HTML or SVG.
"""
import hashlib
import os
import struct
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from checksum import add_checksum  # noqa: E402

TEXT = h5py.string_dtype("utf-8")
MODEL = "0123456789abcdef" * 4
LENGTHS = [512, 1024, 2048, 4096]
HOSTILE = [
    "rope",
    "<script>alert(1)</script>",
    "it's \"quoted\" & 100%s %d",
    "back\\slash `date` $(date) @x {/Bold b}_2^3",
    "line\nbreak\ttab\x01\x1b[31m\u202e\u2028\x7f",
    "dpe:window=32,masked,scales=1/4/16/8/4/2/2/1,and=so-on,and=so-on,and=so-on",
    "naïve 日本語 𝔘",
    "'",
]


def start(path, kind, model=MODEL, complete=1, **fields):
    file = h5py.File(path, "w", libver=("earliest", "v108"))
    for name, value in {
        "schema_name": "dpe-table", "schema_version": "9.0.0", "title": "Synthetic", "source": "test",
        "software": "dpe", "software_version": "0", "git": "", "identity": "f" * 64,
    }.items():
        file.attrs.create(name, value, dtype=TEXT)
    file.attrs["complete"] = np.int64(complete)
    file.attrs["n_rows"] = np.int64(0)
    identity = {"kind": kind, "model": model, "tokenizer": "t" * 64, "corpus": "c" * 64, **fields}
    put_text(file, "/identity/field", list(identity))
    put_text(file, "/identity/value", [str(v) for v in identity.values()])
    run = file.create_group("/run")
    run.attrs.create("created", "2026-01-01T00:00:00Z", dtype=TEXT)
    run.attrs.create("modified", "2026-01-01T00:01:00Z", dtype=TEXT)
    run.attrs.create("history", "2026-01-01T00:00:00Z: dpe-test", dtype=TEXT)
    run.attrs["peak_memory_bytes"] = np.int64(3 << 30)
    put_text(file, "/run/sessions/started", ["2026-01-01T00:00:00Z"])
    put_text(file, "/run/sessions/command", ["dpe-test '<b>%s' \"a\" \\ `x`"])
    put_text(file, "/run/sessions/cpu", ["a processor"])
    return file


def put(file, path, value, dtype=None):
    file.create_dataset(path, data=np.asarray(value, dtype=dtype))


def put_text(file, path, values):
    file.create_dataset(path, data=np.array(values, dtype=object), dtype=TEXT)


def attr(file, path, name, value):
    file.require_group(path).attrs.create(name, value, dtype=TEXT)


def intervals(file, folder, mean, width, low="ci_low", high="ci_high", name="mean"):
    put(file, f"{folder}/{name}", mean)
    put(file, f"{folder}/{low}", mean - width)
    put(file, f"{folder}/{high}", mean + width)


def put_tasks(file, suite, tasks, methods, n, rng):
    """tasks: (label, length, category or None)."""
    folder = f"/eval/{suite}"
    shape = (len(methods), len(tasks))
    put_text(file, f"{folder}/task", [f"{label}-{length}" for label, length, _ in tasks])
    put_text(file, f"{folder}/task_label", [t[0] for t in tasks])
    put(file, f"{folder}/task_length", [t[1] for t in tasks], np.int64)
    put(file, f"{folder}/sample", np.arange(n), np.int64)
    put_text(file, f"{folder}/plan", [[f"{m:02d}{t:030d}" for t in range(shape[1])]
                                      for m in range(shape[0])])
    put(file, f"{folder}/n_valid", np.full(shape, n), np.int64)
    difference = rng.normal(0, 0.2, shape)
    intervals(file, folder, difference, 0.1, "difference_low", "difference_high", "difference")
    put(file, f"{folder}/p_value", rng.uniform(0, 1, shape))
    put(file, f"{folder}/n_pairs", np.full(shape, n), np.int64)
    attr(file, folder, "interval_rule", "percentile bootstrap over samples")
    attr(file, folder, "difference_rule", "paired bootstrap")
    return folder, shape


def compare(path, methods=None, model=MODEL, lengths=LENGTHS):
    rng = np.random.default_rng(1)
    methods = methods or HOSTILE
    file = start(path, "eval", model)
    put_text(file, "/method", methods)
    attr(file, "/eval", "against", methods[0])
    file["/eval"].attrs["trained_length"] = np.int64(512)
    folder, shape = put_tasks(file, "niah", [("niah", l, None) for l in lengths], methods, 20, rng)
    attr(file, folder, "better", "higher")
    attr(file, folder, "score", "share of the values found")
    mean = np.sort(rng.uniform(0, 1, shape), axis=1)[:, ::-1]
    mean[-1, -1] = np.nan
    intervals(file, folder, mean, 0.06)
    put(file, f"{folder}/half_mean", mean)
    memory = np.round(np.add.outer(np.arange(shape[0]), np.asarray(lengths)) * 3e5)
    memory[-1, -1] = -1
    put(file, f"{folder}/memory", memory, np.int64)
    folder, shape = put_tasks(file, "ppl", [("ppl", l, None) for l in lengths], methods, 9, rng)
    attr(file, folder, "better", "lower")
    attr(file, folder, "score", "nats per token")
    mean = np.sort(rng.lognormal(1.5, 0.8, shape), axis=1)
    intervals(file, folder, mean, mean * 0.1)
    intervals(file, folder, mean ** 1.3, mean * 0.1, "word_ci_low", "word_ci_high", "word_mean")
    put(file, f"{folder}/position", [1 << b for b in range(12)], np.int64)
    put(file, f"{folder}/position_mean", rng.lognormal(1.5, 0.3, (*shape, 12)))
    labels = [f"task_{i}" for i in range(13)]
    categories = ["niah"] * 8 + ["vt", "aggregation", "aggregation", "qa", "qa"]
    tasks = [(label, l, c) for l in lengths[:2] for label, c in zip(labels, categories)]
    folder, shape = put_tasks(file, "ruler", tasks, methods, 5, rng)
    attr(file, folder, "better", "higher")
    attr(file, folder, "score", "share of the references found")
    attr(file, folder, "title", "RULER")
    attr(file, folder, "unit", "score (1 = all right)")
    attr(file, folder, "explanation", "RULER tests more than retrieval.")
    put_text(file, f"{folder}/task_category", [t[2] for t in tasks])
    mean = rng.uniform(0, 1, shape)
    intervals(file, folder, mean, 0.1)
    put_text(file, f"{folder}/category", ["niah", "vt", "aggregation", "qa", "overall"])
    put(file, f"{folder}/category_length", lengths[:2], np.int64)
    put(file, f"{folder}/category_mean", rng.uniform(0, 1, (len(methods), 5, len(lengths[:2]))))
    file.close()


def grid(path):
    rng = np.random.default_rng(2)
    file = start(path, "eval", grid=1)
    put_text(file, "/method", HOSTILE[:3])
    folder = "/eval/niah_grid"
    put(file, f"{folder}/depth", np.linspace(0, 1, 11))
    put(file, f"{folder}/length", LENGTHS, np.int64)
    put(file, f"{folder}/sample", np.arange(5), np.int64)
    mean = rng.uniform(0, 1, (3, 11, 4))
    mean[2, 3, 1] = np.nan
    intervals(file, folder, mean, 0.1)
    put(file, f"{folder}/n_valid", np.full(mean.shape, 5), np.int64)
    attr(file, folder, "better", "higher")
    file.close()


def ablate(path, what, values):
    rng = np.random.default_rng(3)
    methods = ["rope", "base"] + [f"{what} {v}" for v in values]
    compare_like = start(path, "eval", ablate=what)
    put_text(compare_like, "/method", methods)
    attr(compare_like, "/eval", "against", "rope")
    folder, shape = put_tasks(compare_like, "niah", [("niah", 2048, None)], methods, 20, rng)
    attr(compare_like, folder, "better", "higher")
    intervals(compare_like, folder, rng.uniform(0.1, 0.9, shape), 0.1)
    attr(compare_like, "/ablate", "what", what)
    attr(compare_like, "/ablate", "table", "detect.h5")
    put_text(compare_like, "/ablate/axis", ["rope", "base"] + [what] * len(values))
    put(compare_like, "/ablate/value", [np.nan, np.nan] + list(values), np.float64)
    compare_like.close()


def scaled_by_k(path):
    rng = np.random.default_rng(7)
    cells = [(length, k) for length in (64, 128, 256) for k in (0, 8, 16, 24, 32)]
    methods = ["rope", "base"] + [f"scaled {length}, top {k}" for length, k in cells]
    file = start(path, "eval", ablate="scaled-by-k")
    put_text(file, "/method", methods)
    attr(file, "/eval", "against", "rope")
    folder, shape = put_tasks(file, "niah", [("niah", 2048, None)], methods, 20, rng)
    attr(file, folder, "better", "higher")
    intervals(file, folder, rng.uniform(0.1, 0.9, shape), 0.1)
    attr(file, "/ablate", "what", "scaled-length")
    put_text(file, "/ablate/axis", ["rope", "base"] + ["scaled-length"] * len(cells))
    put(file, "/ablate/value", [np.nan, np.nan] + [c[0] for c in cells], np.float64)
    put(file, "/ablate/k", [-1, -1] + [c[1] for c in cells], np.int64)
    file.close()


def bucket_rows(file, rng, shape, names, books=3, tokens=2500):
    """Rows of perplexity with likelihoods by position: a plan for each cell, three to validate."""
    cells = shape[0] * shape[1]
    plans = [f"{i:032x}" for i in range(cells + 3)]
    put_text(file, "/plans/plan", plans)
    put_text(file, "/detect/plan", np.array(plans[:cells], dtype=object).reshape(shape))
    put_text(file, "/tasks/task", ["niah", "ppl", "validate-ppl"])
    put_text(file, "/validated_plan", names)
    put_text(file, "/validate/plan", plans[cells:])
    tasks = ["niah", "ppl", "validate-ppl"]
    rows = sorted([(2 if plan >= cells else 1, plan, book) for plan in range(cells + 3) for book in range(books)] +
                  [(0, 1, 0)])  # of needles: no buckets
    bounds = [min(tokens, 2 ** (b + 1) - 1) - 2 ** b + 1 for b in range(12)]
    data, sums = hashlib.sha256(), {}
    columns = {name: [] for name in ("status", "n_tokens", "bucket_count", "bucket_nll")}
    for at, (task, plan, book) in enumerate(rows):
        status = int(at == 7)
        nll = rng.lognormal(0.5, 0.2, 12) * bounds if task > 0 and not status else np.zeros(0)
        n_tokens = tokens if len(nll) > 0 else -1
        nan = np.float64("nan")
        fields = [(1, plans[plan].encode()), (2, tasks[task].encode())] + [
            (tag, np.array(value).astype(kind).tobytes()) for tag, value, kind in (
                (3, book, "<i8"), (4, status, "<i8"), (5, nan, "<f8"), (6, nan, "<f8"), (7, nan, "<f8"), (8, n_tokens, "<i8"),
                (9, -1, "<i8"), (10, -1, "<i8"), (11, -1, "<i8"), (12, 0, "<u8"), (13, -1, "<i8"), (17, -1, "<i8"))]
        fields += [(16, nll.astype("<f8").tobytes())] if len(nll) > 0 else []
        row = b"".join(struct.pack("<HI", tag, len(value)) + value for tag, value in fields)
        data.update(struct.pack("<Q", len(row)) + row)
        if len(nll) > 0:
            sums.setdefault(plan, []).append(nll)
        for name, value in zip(columns, (status, n_tokens, len(nll))):
            columns[name].append(value)
        columns["bucket_nll"].extend(nll)
    at = np.array([np.exp(np.sum(sums[plan], axis=0) / (len(sums[plan]) * np.array(bounds))) for plan in range(cells + 3)])
    for folder, values in (("/detect/ppl", at[:cells].reshape((*shape, 12))), ("/validate/ppl", at[cells:])):
        put(file, f"{folder}/position", 2 ** np.arange(12), np.int64)
        put(file, f"{folder}/perplexity_at", values)
    n = len(rows)
    attr(file, "/rows", "sha256", data.hexdigest())
    put(file, "/row", np.arange(n), np.int64)
    for name, values, kind in (("task", [r[0] for r in rows], np.int32), ("plan", [r[1] for r in rows], np.int32),
                               ("sample", [r[2] for r in rows], np.int64), ("status", columns["status"], np.int32),
                               ("n_tokens", columns["n_tokens"], np.int64), ("seed", [0] * n, np.uint64),
                               ("bucket_count", columns["bucket_count"], np.int32), ("layer", [-1] * n, np.int32),
                               ("bucket_nll", columns["bucket_nll"], np.float64), ("text_present", [0] * n, np.uint8)):
        put(file, f"/rows/{name}", values, kind)
    for name in ("score", "at_least_half", "nll_sum"):
        put(file, f"/rows/{name}", [np.nan] * n, np.float64)
    for name in ("n_words", "prompt_tokens", "new_tokens", "position"):
        put(file, f"/rows/{name}", [-1] * n, np.int64)
    put_text(file, "/rows/text", [""] * n)
    put(file, "/run/seconds", [np.nan] * n, np.float64)


def detect(path, flat=False, selected=False):
    rng = np.random.default_rng(4)
    file = start(path, "detect", length=4096, task="both", seed=int(flat))
    groups, lengths = 8, [32, 64, 128, 256, 512, 1024, 2048, 4096]
    shape = (groups, len(lengths))
    names = ["rope", "base", "<what>" if selected else "joint"]
    file.require_group("/model").attrs.create("model_type", "<script>\"'&%s`\\n", dtype=TEXT)
    put(file, "/length", lengths, np.int64)
    attr(file, "/detect", "criterion", "niah recall, higher is better")
    recall = np.full(shape, 0.25) if flat else rng.uniform(0, 1, shape)
    recall[2, 3] = np.nan
    put(file, "/detect/niah/recall_mean", recall)
    put(file, "/detect/niah/ci_low", recall - 0.05)
    put(file, "/detect/niah/ci_high", recall + 0.05)
    rank = np.argsort(np.argsort(-np.nan_to_num(recall), axis=1, kind="stable"), axis=1) + 1
    rank[5] = -1
    put(file, "/detect/rank", rank, np.int32)
    effective = np.array(lengths)[np.argmin(np.where(rank < 1, 99, rank), axis=1)]
    effective[5] = -1
    put(file, "/detect/effective_length", effective, np.int64)
    put(file, "/detect/informative", np.zeros(groups) if flat else [0, 1, 1, 1, 1, 0, 0, 1], np.uint8)
    put(file, "/detect/p_value", rng.uniform(0, 1, groups))
    perplexity = rng.lognormal(1, 0.2, shape)
    put(file, "/detect/ppl/perplexity", perplexity)
    put(file, "/detect/ppl/ci_low", perplexity * 0.9)
    put(file, "/detect/ppl/ci_high", perplexity * 1.1)
    put(file, "/detect/ppl/rank", np.argsort(np.argsort(perplexity, axis=1), axis=1) + 1, np.int32)
    put(file, "/detect/ppl/informative", [1] * groups, np.uint8)
    if not flat:
        bucket_rows(file, rng, shape, names)
    put(file, "/table/trained_length", 256, np.int64)
    put(file, "/table/evaluated_length", 4096, np.int64)
    put(file, "/table/group_edge", np.arange(9) * 4, np.int32)
    put(file, "/table/inv_freq", 10000.0 ** (-np.arange(32) / 32))
    put(file, "/table/scale_factor", np.maximum(1, 4096 // np.maximum(effective, 1)), np.float64)
    if selected:
        put(file, "/table/effective_length", [128, 64, 128, 256, 128, 128, 512, 128], np.int64)
        put(file, "/race/dropped_after", np.where(rng.uniform(0, 1, shape) < 0.3, 4, -1), np.int64)
        put(file, "/detect/niah/n_valid", np.full(shape, 10), np.int64)
    if "detect/plan" not in file:
        put_text(file, "/detect/plan", np.full(shape, "0" * 32, dtype=object))
    if "validated_plan" not in file:
        put_text(file, "/validated_plan", names)
    for folder, name, values in (("/validate/niah", "recall_mean", [0.0, 0.2, 0.6]),
                                 ("/validate/ppl", "perplexity", [40.0, 3.0, 2.5])):
        if selected and name == "recall_mean":
            values = [0.0, 1.0, 1.0]
        values = np.array(values)
        intervals(file, folder, values, 0.02 * values, name=name)
        put(file, f"{folder}/n_valid", [10] * 3, np.int64)
        put_text(file, f"{folder}/compared_with", ["rope", "base"])
        # A flat detection: the interval of the difference to the base holds 0.
        intervals(file, folder, np.array([0.6, 0.05 if flat else 0.4]), 0.1, "difference_low",
                  "difference_high", "difference")
        put(file, f"{folder}/p_value", [0.0001, 0.4 if flat else 0.02])
        put(file, f"{folder}/n_pairs", [10, 10], np.int64)
        attr(file, folder, "joint_against_base", "not distinguishable" if flat else "better")
        if flat:
            file[folder].attrs["samples_needed"] = np.int64(40)
        attr(file, folder, "samples", "not those of the sweep")
    if selected:
        attr(file, "/validate", "kept", names[2])
        for name, values in (("method", names), ("plan", ["0" * 32] * 3), ("kind", ["unchanged", "method", "searched"])):
            put_text(file, f"/search/{name}", values)
        for name, values, kind in (("heat", [0, 0, 0], np.int32), ("contexts", [1, 1, 2], np.int64), ("table", [1, 1, 1], np.uint8),
                                   ("no_adapter", [0, 1, 0], np.uint8), ("text_nll", [np.nan, 1.2, 1.0], np.float64)):
            put(file, f"/search/{name}", values, kind)
        intervals(file, "/search", np.array([0.0, 0.5, 0.9]), 0.05)
        file["/search"].attrs["contexts"] = np.int64(4)
    file.close()


def norms(path, layers=3, heads=4, pairs=32):
    rng = np.random.default_rng(5)
    file = start(path, "norms")
    mean = rng.lognormal(0, 1, (layers, heads, pairs))
    mean[0, 1] = np.nan
    put(file, "/norms/mean", mean)
    put(file, "/norms/sem", mean * 0.02)
    attr(file, "/norms", "contribution", "product-of-means")
    file.close()


def complete(file, folders, layers, heads, pairs):
    """What a table has besides the fields that a page shows."""
    for name, word in (("near_rule", "distance < local_window"), ("rounding", "separable"), ("angle_precision", "f32"),
                       ("pair_layout", "half-split")):
        attr(file, "/table", name, word)
    model = file.require_group("/model")
    attr(file, "/model", "model_type", "llama")
    attr(file, "/model", "fingerprint", MODEL)
    for name, value in (("layers", layers), ("heads", heads), ("kv_heads", heads), ("head_dim", 2 * pairs)):
        model.attrs[name] = np.int64(value)
    for folder in folders:
        put(file, f"{folder}/inv_freq", 10000.0 ** (-np.arange(pairs) / pairs))
        put(file, f"{folder}/attention_scaling", 1.0)


def table(path, layers=3, heads=4, pairs=32):
    rng = np.random.default_rng(6)
    file = start(path, "table")
    mask = np.zeros((layers, heads, pairs), np.uint8)
    for row in mask.reshape(-1, pairs):
        row[rng.permutation(pairs)[:24]] = 1
    put(file, "/table/mask", mask)
    put(file, "/table/scale_factor", [1, 2, 4, 8, 8, 4, 2, 1], np.float64)
    put(file, "/table/effective_length", [4096, 2048, 1024, 512, 512, 1024, 2048, -1], np.int64)
    put(file, "/table/group_edge", np.arange(9) * 4, np.int32)
    for name, value in (("local_window", 32), ("evaluated_length", 4096), ("trained_length", 256),
                        ("top_k", 24)):
        put(file, f"/table/{name}", value, np.int64)
    complete(file, ["/table"], layers, heads, pairs)
    file.close()


def several(path, lengths=(512, 2048), layers=3, heads=4, pairs=32):
    rng = np.random.default_rng(8)
    file = start(path, "table")
    put(file, "/table/length", lengths, np.int64)
    for i, length in enumerate(lengths):
        mask = np.zeros((layers, heads, pairs), np.uint8)
        for row in mask.reshape(-1, pairs):
            row[rng.permutation(pairs)[:16 + 8 * i]] = 1
        put(file, f"/table/{length}/mask", mask)
        put(file, f"/table/{length}/scale_factor", [1, 2, 4, length / 256], np.float64)
        put(file, f"/table/{length}/effective_length", [length, length // 2, length // 4, 256], np.int64)
        put(file, f"/table/{length}/group_edge", np.arange(5) * 8, np.int32)
        for name, value in (("local_window", 32 + i), ("evaluated_length", length),
                            ("trained_length", 256), ("top_k", 16 + 8 * i)):
            put(file, f"/table/{length}/{name}", value, np.int64)
    complete(file, [f"/table/{length}" for length in lengths], layers, heads, pairs)
    file.close()


def main():
    folder = sys.argv[1]
    compare(f"{folder}/compare.h5")
    compare(f"{folder}/other.h5", ["rope", "pi"], model="f" * 64)
    compare(f"{folder}/single.h5", ["rope"], lengths=[512])
    compare(f"{folder}/many.h5", HOSTILE + [f"method{i}" for i in range(9)])
    grid(f"{folder}/grid.h5")
    ablate(f"{folder}/rank.h5", "rank", range(1, 9))
    ablate(f"{folder}/topk.h5", "top-k", [0, 8, 16, 24, 32])
    ablate(f"{folder}/lastk.h5", "last-k", [0, 8, 16, 24, 32])
    scaled_by_k(f"{folder}/scaledk.h5")
    ablate(f"{folder}/scaled.h5", "scaled-length", [512, 1024, 2048, 4096])
    detect(f"{folder}/detect.h5")
    detect(f"{folder}/flat.h5", flat=True)
    detect(f"{folder}/guarded.h5", selected=True)
    table(f"{folder}/table.h5")
    several(f"{folder}/several.h5")
    norms(f"{folder}/norms.h5")
    norms(f"{folder}/large.h5", 32, 32, 64)

    for name in os.listdir(folder):
        if name.endswith(".h5"):
            add_checksum(f"{folder}/{name}")


main()
