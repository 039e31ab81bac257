#!/usr/bin/env python3
"""own_attention.py TABLE LAYER IN OUT: attention of one layer under a DPE table, in NumPy and with no code of this project's but
read_table.py. This is all that a kernel of one's own has to do: find the band in which a query and a key meet, rotate both at the
positions that its maps give, multiply the logits by the query's factor, leave out what no band holds. It takes the table's longest
entry. outputs/SCHEMA.md says what each number means.

IN, OUT: float32. IN has q [tokens][heads][dim], then k and v, each [kv heads][tokens][dim], before rotation; components j and
j + dim/2 are pair j. OUT gets [tokens][heads][dim]."""
import sys

import numpy as np

from read_table import read


def band_maps(entry, pairs):
    """[(what the band goes by, low, high, chunk, by head, query map, key map)]; a map is a function of positions [tokens, 1]."""
    if not entry.get("bands"):  # the two of window and scales
        scale = np.repeat(entry["scale_factor"], np.diff(entry["group_edge"]))
        rounded = (lambda x: x) if entry.get("unrounded") else np.floor
        window = entry["local_window"]
        return [(0, 0, window, 0, 0, lambda x: x + np.zeros(pairs), lambda x: x + np.zeros(pairs)),
                (0, window, 0, 0, 1, lambda x: rounded(x / scale) + window - rounded(window / scale), lambda x: rounded(x / scale))]

    def map_of(row):
        floor, period, cap, most, _, _ = row[5:11]
        scale, offset = row[11:11 + pairs], row[11 + pairs:]
        assert most == 0, "groups along a curve: outputs/SCHEMA.md has the formula"

        def place(x):
            x = np.mod(x, period) if period else x
            x = np.where(scale == 0, 0, x / np.where(scale == 0, 1, scale))
            x = (np.floor(x) if floor else x) + offset
            return np.minimum(x, cap) if cap else x
        return place

    rows = np.reshape(entry["bands"], (-1, 2, 11 + 2 * pairs))
    return [(*both[0][:5], map_of(both[0]), map_of(both[1])) for both in rows]


def query_scale(entry, m, layer, layers):
    """What the logits of queries m are multiplied by, besides 1 / sqrt(dim)."""
    value, t = entry["attention_scaling"] ** 2 * entry.get("logit_scale", 1), layer / max(layers - 1, 1)
    first, middle, last = (entry.get("logit_scale_" + name, 1) for name in ("first", "middle", "last"))
    value *= (1 - t) ** 2 * first + 2 * t * (1 - t) * middle + t ** 2 * last
    if entry.get("log_n_length"):
        decay = entry["log_n_decay"]
        grown = (lambda x: -np.expm1(-decay * np.log(x))) if decay else np.log
        value = value * np.maximum(1, grown(m + 1) / grown(entry["log_n_length"])) ** entry["log_n_power"]
    return value + 0 * m


def rotate(x, positions, frequency):
    """x [tokens, dim], positions [tokens, pairs]; the angle is rounded to float32, as the model's own code has it."""
    angle = (positions.astype(np.float32) * frequency.astype(np.float32)).astype(np.float64)
    a, b = np.split(x, 2, axis=1)
    return np.concatenate((a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)), axis=1)


def attend(model, entry, layer, head, q, k, v):
    """One head: q, k, v [tokens, dim]."""
    pairs, tokens = model["head_dim"] // 2, len(q)
    frequency = np.asarray(entry.get("applied_inv_freq") or entry["inv_freq"])
    marks = np.zeros(pairs, bool)
    marks[entry["key_pairs"][layer][head] if "key_pairs" in entry else slice(None)] = True
    x = np.arange(tokens, dtype=np.float64)[:, None]
    m, n = x, x.T
    bands = band_maps(entry, pairs)
    logits = np.full((tokens, tokens), -np.inf)
    for band in reversed(range(len(bands))):  # the first that holds a pair of tokens wins
        by, low, high, chunk, by_head, q_map, k_map = bands[band]
        places = [np.where(marks | (not by_head), own(x), near(x)) for own, near in ((q_map, bands[0][5]), (k_map, bands[0][6]))]
        at = n + 0 * m if by == 2 else m // chunk - n // chunk if by == 1 else m - n
        inside = (n <= m) & (at >= low) & ((high == 0) | (at < high))
        longer = np.tile(np.where(marks | (not by_head), entry.get("far_scale", 1) if band else 1, 1), 2)
        logits = np.where(inside, longer * rotate(q, places[0], frequency) @ rotate(k, places[1], frequency).T, logits)
    heads = entry.get("head_scale") or np.ones(model["n_layers"] * model["n_heads"])
    factor = np.ravel(heads)[layer * model["n_heads"] + head] / np.sqrt(model["head_dim"])
    logits *= query_scale(entry, m, layer, model["n_layers"]) * factor
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v


def main(path, layer, given, made):
    model, entries = read(path)
    heads, kv, dim = model["n_heads"], model["n_kv_heads"], model["head_dim"]
    numbers = np.fromfile(given, np.float32).astype(np.float64)
    tokens = len(numbers) // ((heads + 2 * kv) * dim)
    q = numbers[:tokens * heads * dim].reshape(tokens, heads, dim)
    k, v = numbers[tokens * heads * dim:].reshape(2, kv, tokens, dim)
    out = [attend(model, entries[-1], int(layer), head, q[:, head], k[head * kv // heads], v[head * kv // heads]) for head in range(heads)]
    np.stack(out, axis=1).astype(np.float32).tofile(made)


if __name__ == "__main__":
    main(*sys.argv[1:])
