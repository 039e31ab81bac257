"""DPE tables and DPE attention in plain PyTorch (1.13 and later) and NumPy.

    table = load_table("TABLE.h5")                      # or the JSON form
    entry = table.choose(prompt_tokens + new_tokens)    # None: run the model unchanged
    attention = Attention(entry)
    out = attention(q, k, v, layer)                     # q and k before rotation, full-attention layers only

The contract is outputs/SCHEMA.md; what makes a table valid is what outputs/table/dpe_table.c says. For
query m and key n, n <= m: when m - n < window both are rotated at their true positions; otherwise
the key pairs of the query head are rotated at floor(m / s) + window - floor(window / s) and
floor(n / s), s being the scale of the pair's group, and its other pairs at true positions. Where the
table is `unrounded` (Leaky ReRoPE), every floor is left out. Pairs rotate by applied_inv_freq, near
and far; it differs from the model's own inv_freq where the table holds YaRN or the like. The
logits of query m in layer l are multiplied by attention_scaling^2 logit_scale D(l) f(m) / sqrt(head_dim), D the Bezier
curve of logit_scale_first, logit_scale_middle and logit_scale_last over the depth (dpe_plan.py), f(m) =
max(1, ln(m + 1) / ln(log_n_length))^log_n_power, or 1 when log_n_length is 0; a log_n_decay B above 0 puts 1 - x^-B in the place of ln x;
what far positions contribute carries far_scale besides. A table with `bands` (LaMPE, DCA, Jet-Long …) has these in the place of window
and scales; dpe_table.h has their numbers. Where a part of the head rotates, the last pairs have the
frequency 0: they do not, and attention_scaling is not for them.
"""
import hashlib
import io
import itertools
import json
import math
import os
import re
import stat
import struct
import zlib

import numpy as np
import torch

from dpe_plan import Plan, good_groups, plan_of_table


class TableError(ValueError):
    """A file that is no DPE table, or one that must not be applied; the text says why."""


CONVENTIONS = {"near_rule": "distance < local_window", "rounding": "separable",
               "angle_precision": "f32", "pair_layout": "half-split"}
MODEL_SIZES = ("n_layers", "n_heads", "n_kv_heads", "head_dim")
SCHEMA = "9.0.0"
# The fields of an entry, as outputs/table/fields.c describes them (the test table_fields compares): kind, part, axes, the
# lowest and the highest that an element is, whether the lowest is excluded, what it is besides, and the number where
# the part is not there.
FIELDS = {
    "trained_length": ("whole", "core", "", 1, 2 ** 40, False, 1, 0),
    "evaluated_length": ("whole", "core", "", 1, 2 ** 40, False, 1, 0),
    "local_window": ("whole", "core", "", 0, 2 ** 40, False, 0, 0),
    "top_k": ("whole", "keys", "", 0, 2 ** 15, False, 0, 0),
    "group_edge": ("edge", "core", "edge", 0, 2 ** 15, False, 0, 0),
    "effective_length": ("real", "core", "group", 1, 2 ** 40, False, -1, 0),
    "scale_factor": ("real", "core", "group", 1, 2 ** 40, False, 1, 0),
    "attention_scaling": ("real", "core", "", 0, 2 ** 20, True, 1, 0),
    "logit_scale": ("real", "temperature", "", 0, 1024, True, 1, 1),
    "logit_scale_first": ("real", "temperature", "", 0, 1024, True, 1, 1),
    "logit_scale_middle": ("real", "temperature", "", 0, 1024, True, 1, 1),
    "logit_scale_last": ("real", "temperature", "", 0, 1024, True, 1, 1),
    "far_scale": ("real", "temperature", "", 0, 1024, True, 1, 1),
    "log_n_length": ("real", "temperature", "", 1, 2 ** 40, True, 0, 0),
    "log_n_power": ("real", "temperature", "", 0, 64, True, 1, 1),
    "log_n_decay": ("real", "temperature", "", 0, 64, False, 0, 0),
    "inv_freq": ("real", "core", "pair", 0, 1000000000, False, 0, 0),
    "mask": ("marks", "keys", "layer, head, pair", 0, 1, False, 0, 0),
    "unrounded": ("flag", "method", "", 0, 1, False, 0, 0),
    "applied_inv_freq": ("real", "method", "pair", 0, 1e+18, False, 0, 0),
    "bands": ("real", "bands", "band_number", -2 ** 40, 2 ** 40, False, -2 ** 40, 0),
    "head_scale": ("real", "heads", "layer, head", 0, 1024, True, 1, 0),
    "selection": ("text", "selection", "", 0, 0, False, 0, 0),
    "evidence_task": ("text", "evidence", "", 0, 0, False, 0, 0),
    "evidence_score": ("real", "evidence", "", 0, 2 ** 40, False, 0, 0),
    "evidence_low": ("real", "evidence", "", 0, 2 ** 40, False, -1, 0),
    "evidence_high": ("real", "evidence", "", 0, 2 ** 40, False, -1, 0),
    "evidence_samples": ("whole", "evidence", "", 1, 2 ** 40, False, 1, 0),
    "evidence_unchanged": ("real", "evidence", "", 0, 2 ** 40, False, -1, 0),
    "evidence_possible": ("real", "evidence", "", 0, 2 ** 40, False, -1, 0),
    "evidence_rival": ("text", "evidence", "", 0, 0, False, 0, 0),
    "evidence_rival_score": ("real", "evidence", "", 0, 2 ** 40, False, -1, 0),
    "evidence_short_loss": ("real", "evidence", "", 0, 64, False, -1, 0),
}
BAND_NUMBERS, MOST_BANDS = 11, 4
MOST_ENTRIES = 64
MOST_NUMBERS = 1 << 26  # of one dataset


class Table:
    """What a table says, checked. Attributes: those of the JSON form; the lists are float64 arrays
    (group_edge int64); mask is bool [n_layers, n_heads, n_pairs], None when all pairs are key pairs.
    Without the plan of another method unrounded is False and applied_inv_freq equal to inv_freq; bands are None, else float64
    [n_bands, 2, 11 + 2 n_pairs]. digest: of the bytes that it was read from and its length, for caches.
    `entries` are its entries by increasing length, each a Table of one entry. The attributes of a
    table of several are those of the longest. path: what it was read from.
    """
    path = "the table"

    def __init__(self, values):
        self.__dict__.update(values)
        self._entries = None
        self.n_pairs = self.head_dim // 2
        self.n_groups = len(self.scale_factor)
        if self.selection is not None:
            raise TableError("a plan that selects keys: applied by dpe-run, dpe-eval and dpe-serve alone")
        self._check_sizes()
        self._check_fields()
        self._check_groups()
        self._check_method()
        self._check_mask()
        self._check_bands()
        if self.head_scale is not None:
            self.head_scale = self.head_scale.reshape(self.n_layers, self.n_heads)

    def _check_bands(self):
        if self.bands is None:
            return
        row = BAND_NUMBERS + 2 * self.n_pairs
        if not 0 < self.bands.size <= 2 * MOST_BANDS * row or self.bands.size % (2 * row):
            raise TableError(f"bands holds {self.bands.size} numbers, expected two rows of {row} for 1 to {MOST_BANDS} bands")
        self.bands = self.bands.reshape(-1, 2, row)
        if self.unrounded or (self.scale_factor != 1).any() or self.bands[0, 0, 4]:
            raise TableError("a table of bands moves pairs by them alone: expected scales of 1, unrounded 0 and a first band "
                             "that is not by head")
        for band, side in np.ndindex(self.bands.shape[:2]):
            numbers, scale = self.bands[band, side, :BAND_NUMBERS], self.bands[band, side, BAND_NUMBERS:][:self.n_pairs]
            by, low, high, chunk, heads, floor, period, cap, most, rate, first = numbers
            good = not (np.delete(numbers, (7, 9)) % 1).any() and by in (0, 1, 2) and low >= 0 and (high == 0 or high > low) and \
                (numbers[:5] == self.bands[band, 0, :5]).all() and (chunk > 0) == (by == 1) and chunk >= 0 and \
                heads in (0, 1) and floor in (0, 1) and period >= 0 and cap >= 0 and good_groups(most, rate, first) and \
                ((scale == 0) | (scale >= 1)).all()
            if not good:
                raise TableError(f"bands: band {band}, {'keys' if side else 'queries'}: expected a range, a map and scales "
                                 f"from 1 on, found {numbers.tolist()}")

    def _check_sizes(self):
        self._check_model()
        self._check_ranges((("n_groups", 1, self.n_pairs), ("local_window", 1, self.evaluated_length),
                            ("top_k", 0, self.n_pairs)))

    def _check_ranges(self, ranges):
        for name, low, high in ranges:
            value = getattr(self, name)
            if not low <= value <= high:
                raise TableError(f"{name} is {value}, expected {low} to {high}")

    def _check_model(self):
        self._check_ranges((("n_layers", 1, 1 << 16), ("n_heads", 1, 1 << 16), ("n_kv_heads", 1, self.n_heads),
                            ("n_pairs", 1, 1 << 15), ("trained_length", 1, 1 << 40),
                            ("evaluated_length", 1, 1 << 40)))
        if self.head_dim % 2:
            raise TableError(f"head_dim is {self.head_dim}, expected an even number")
        if self.n_heads % self.n_kv_heads:
            raise TableError(f"expected a multiple of the {self.n_kv_heads} KV heads as query "
                             f"heads, found {self.n_heads}")

    def _check_fields(self):
        """Every element within the field's range; NaN is within none."""
        for name, (kind, _, axes, low, high, above, besides, _) in FIELDS.items():
            if kind == "marks" or getattr(self, name) is None:
                continue  # bool, and an entry without bands, factors of heads or evidence
            if kind == "text":
                if not re.fullmatch("[ -~]{1,200}", getattr(self, name)):
                    raise TableError(f"{name}: expected 1 to 200 printable ASCII characters")
                continue
            values = np.atleast_1d(np.asarray(getattr(self, name), np.float64))
            if axes and values.shape != (self._extent(axes),):
                raise TableError(f"{name} has shape {values.shape}, expected {self._extent(axes)}")
            good = ((values > low if above else values >= low) & (values <= high)) | (values == besides)
            if not good.all():
                i = int(np.argmin(good))
                where = f"{name}[{i}]" if axes else name
                raise TableError(f"{where} is {values[i]}, expected {'more than ' if above else ''}{low} to {high}"
                                 f"{'' if low <= besides <= high else f', or {besides}'}")

    def evidence(self):
        """What was measured under the entry, as the line of dpe_table_evidence; "" without."""
        if getattr(self, "evidence_task", None) is None:
            return ""
        needles = self.evidence_task != "perplexity"

        def score(value):
            return f"{100 * value:.0f} %" if needles else f"{value:.4g}"
        known = ((self.evidence_possible, "at the trained length"), (self.evidence_unchanged, "unchanged"),
                 (self.evidence_rival_score, f"with {self.evidence_rival}"))
        loss = self.evidence_short_loss
        bounds = "" if self.evidence_low < 0 else f" ({score(self.evidence_low)} to {score(self.evidence_high)})"
        return (f"{'finds' if needles else 'perplexity'} {score(self.evidence_score)}{bounds} at {self.evaluated_length} tokens" +
                "".join(f", {score(value)} {words}" for value, words in known if value >= 0) +
                ("" if loss < 0 else f"; short texts lose {loss:.3g} nats per token" if loss else "; short texts run unchanged") +
                f" ({self.evidence_samples} samples{', ' + self.evidence_task if needles else ''})")

    def _extent(self, axis):
        return {"group": self.n_groups, "edge": self.n_groups + 1, "pair": self.n_pairs,
                "band_number": np.size(self.bands), "layer, head": self.n_layers * self.n_heads}[axis]

    def _check_groups(self):
        edge = self.group_edge
        if edge[0] != 0 or edge[-1] != self.n_pairs or (np.diff(edge) <= 0).any():
            raise TableError(f"group_edge is {edge.tolist()}, expected to increase from 0 to "
                             f"{self.n_pairs}")
        moving = np.arange(self.n_pairs) < self.rotating_pairs()
        _expect_all("inv_freq", self.inv_freq, np.where(moving, self.inv_freq > 0, self.inv_freq == 0),
                    "positive numbers, then zeros")

    def _check_method(self):
        applied, own = self.applied_inv_freq, self.inv_freq
        near = (applied == 0) | (applied >= 1e-9 * own) & (applied <= 1e9 * own)
        _expect_all("applied_inv_freq", applied, near, "1e-9 to 1e9 times inv_freq, or 0")
        self.unrounded = bool(self.unrounded)

    def _check_mask(self):
        if self.mask is None:
            return
        counts = self.mask.sum(axis=2)
        wrong = counts != self.top_k if self.bands is None else counts > self.top_k
        if wrong.any():
            layer, head = np.argwhere(wrong)[0]
            raise TableError(f"mask of layer {layer}, head {head} marks {counts[layer, head]} pairs, "
                             f"top_k is {self.top_k}")
        if self.mask.all():
            self.mask = None

    @classmethod
    def of_entries(cls, entries):
        """One table of Tables that have one entry each: of one model, with the same groups."""
        if len(entries) == 1:
            return entries[0]
        entries = sorted(entries, key=lambda entry: entry.evaluated_length)
        for a, b in zip(entries, entries[1:]):
            pair = f"the entries for {a.evaluated_length} and {b.evaluated_length} tokens"
            for name in ("model_type",) + MODEL_SIZES + ("trained_length", "n_groups", "fingerprint"):
                if getattr(a, name) != getattr(b, name):
                    raise TableError(f"{pair} disagree on {name}")
            if (a.group_edge != b.group_edge).any():
                raise TableError(f"{pair} disagree on group_edge")
            # Pairs do not rotate faster in a longer text; slower where the model's scaling depends on the length.
            slower = (b.inv_freq <= a.inv_freq * (1 + 1e-9)) & ((a.inv_freq == 0) == (b.inv_freq == 0))
            if not slower.all() or b.inv_freq[0] < a.inv_freq[0] * (1 - 1e-9):
                raise TableError(f"{pair} disagree on inv_freq")
            if a.evaluated_length == b.evaluated_length:
                raise TableError(f"there are two entries for {a.evaluated_length} tokens")
        if entries[0].evaluated_length <= entries[0].trained_length:
            raise TableError(f"the entry for {entries[0].evaluated_length} tokens would never be used: "
                             f"up to the trained length, {entries[0].trained_length} tokens, the model "
                             "is run unchanged")
        table = cls.__new__(cls)
        table.__dict__.update(vars(entries[-1]), _entries=entries)
        return table

    @property
    def entries(self):
        return self._entries or [self]

    def choose(self, tokens):
        """The entry that a text of `tokens` (prompt and new tokens together) is run with; None: at most
        trained_length, the model is run unchanged."""
        if tokens <= self.trained_length:
            return None
        reach = [entry for entry in self.entries if entry.evaluated_length >= tokens]
        return reach[0] if reach else self.entries[-1]

    def check_model(self, model_type, **sizes):
        """Refuse a model of another type or of other sizes (n_layers, n_heads, n_kv_heads, head_dim).
        """
        found = dict(sizes, model_type=model_type)
        for name, value in found.items():
            if getattr(self, name) != value:
                raise TableError(f"{self.path} was made for a model with {name} {getattr(self, name)}, this one has {value}")

    def rotating_pairs(self):
        """How many pairs rotate: the first ones, up to the first with frequency 0 (the first of all
        always does)."""
        return 1 + int(np.argmax(np.append(self.inv_freq[1:], 0.0) == 0))

    def check_frequencies(self, inv_freq, attention_scaling):
        """Refuse a model whose pairs rotate at other frequencies: the same sizes, another model."""
        inv_freq, own = np.asarray(inv_freq, np.float64), self.inv_freq[:self.rotating_pairs()]
        if inv_freq.shape != own.shape or (np.abs(inv_freq / own - 1) > 1e-5).any() or \
                abs(attention_scaling / self.attention_scaling - 1) > 1e-5:
            raise TableError(f"{self.path} was made for a model with other rotation frequencies (rope base or rope scaling)")

    @property
    def plan(self):
        """What attention under it computes; of a table of several entries, under the longest."""
        return plan_of_table(self)

    def pair_scales(self):
        """The scale of each pair's group [n_pairs]."""
        return np.repeat(self.scale_factor, np.diff(self.group_edge))


NOT_MEASURED = "nothing was measured; dpe-detect --engine measures it"


def formula(trained_length, length, pairs, still=False):
    """What `dpe` without keys is for a text of `length` tokens (engine/plan/methods), in the fields of a table: of a model with
    `pairs` pairs that rotate, still: of which a plan moves none. Nothing was measured of it."""
    heat = {"log_n_length": float(trained_length), "log_n_power": 0.7}
    if still:
        return dict(heat, local_window=1, group_edge=[0, pairs], scale_factor=[1.0])
    groups, window = min(8, pairs), max(1, min(trained_length // 8, 1024))
    kept, scale = groups // 8, length / trained_length
    if length <= 2 * trained_length:
        half = max(1, trained_length // 2)
        kept, window, scale = 0, max(window, half), length / half
    elif length <= 16 * trained_length:
        window = window * 3 // 2
    else:
        heat.update(log_n_power=0.6, far_scale=1.1)
    return dict(heat, local_window=window, group_edge=[g * pairs // groups for g in range(groups + 1)],
                scale_factor=[1.0] * kept + [scale] * (groups - kept))


def trained_length_of(config):
    """Of a model's config.json, by the rule of dpe_config_trained (engine/model/config/config.h)."""
    longest, chunks = config.max_position_embeddings, getattr(config, "dual_chunk_attention_config", None) or {}
    before = chunks.get("original_max_position_embeddings") or chunks.get("chunk_size")
    qwen3 = 32768 if getattr(config, "model_type", "") in ("qwen3", "qwen3_moe") and longest == 40960 else 0
    return getattr(config, "dpe_trained_length", 0) or before or qwen3 or longest


def formula_lengths(trained_length, length):
    """The entries of a table of the formula: twice the trained length, four times, …, and `length`."""
    if length <= trained_length:
        raise TableError(f"the formula is for texts beyond the trained length, {trained_length} tokens: expected more, found {length}")
    doubled = (trained_length << i for i in range(1, MOST_ENTRIES))
    return list(itertools.takewhile(lambda one: one < length, doubled)) + [length]


def formula_table(trained_length, length, inv_freq, attention_scaling, model_type, **sizes):
    """A table of the formula's plans up to `length` tokens. inv_freq: of the pairs that rotate, none: a table for layers without
    positions; sizes: n_layers, n_heads, n_kv_heads, head_dim."""
    pairs, rotates = sizes["head_dim"] // 2, len(inv_freq) > 0
    own = np.append(np.asarray(inv_freq if rotates else [1.0], np.float64), np.zeros(pairs - max(1, len(inv_freq))))
    # A temperature alone too where every pair turns within the trained length (dpe_config.fast of engine/model/config).
    fast = rotates and model_type.startswith("gemma4") and 2 * math.pi <= trained_length * inv_freq[-1]
    shared = dict(sizes, schema_version=SCHEMA, model_type=model_type, fingerprint="")
    entries = []
    for one in formula_lengths(trained_length, length):
        found = {name: float(field[-1]) for name, field in FIELDS.items() if field[1] == "temperature"}
        found.update(trained_length=trained_length, evaluated_length=one, attention_scaling=float(attention_scaling), inv_freq=own,
                     **formula(trained_length, one, len(inv_freq), fast or not rotates))
        found["group_edge"] = np.array(found["group_edge"][:-1] + [pairs])
        found["scale_factor"] = np.array(found["scale_factor"])
        found["effective_length"] = one / found["scale_factor"]
        entries.append(Table(dict(shared, **_entry(shared, found.__contains__, lambda name, *_: found[name]))))
        entries[-1].applied_inv_freq = own * rotates
    return Table.of_entries(entries)


def _expect_all(name, values, good, expected):
    """NaN fails every comparison, so `good` need not think of it."""
    good = good & np.isfinite(values)
    if not good.all():
        i = int(np.argmin(good))
        raise TableError(f"{name}[{i}] is {values[i]}, expected {expected}")


# ------------------------------------------------------------------------------------------ reading

def load_table(path, unchecked=False, data=None):
    """Read TABLE.h5 or its JSON form, told apart by content, or `data`, the bytes of one, of which path then is the name.
    TableError says what is wrong. An HDF5 file ends with a checksum; one that has none is read only when `unchecked`: HDF5
    itself does not see every damage, and can crash on it."""
    try:
        data = _read_file(path) if data is None else data
        hdf5 = data[:8] == b"\x89HDF\r\n\x1a\n"
        if hdf5:
            _check_bytes(data, unchecked)
        entries = _read_h5(data) if hdf5 else _read_json(data)
        if not 1 <= len(entries) <= MOST_ENTRIES:
            raise TableError(f"expected 1 to {MOST_ENTRIES} entries, found {len(entries)}")
        made = Table.of_entries([_table_of(values, len(entries), data) for values in entries])
        made.path = path
        return made
    except TableError as error:
        raise TableError(f"{path}: {error}") from None
    except (OSError, RuntimeError, KeyError, MemoryError, RecursionError, TypeError, ValueError,
            OverflowError, AttributeError) as error:
        raise TableError(f"{path}: cannot be read: {type(error).__name__}: {error}") from error


def _read_file(path):
    """Its bytes, read once; what is no file, and could make a reader wait for ever, is refused."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise TableError("expected a regular file, found something else")
        return file.read()


def _crc32c(data):
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _check_bytes(data, unchecked):
    """The 24 bytes after the end of the HDF5 file: a magic, its length, its CRC-32C (SCHEMA.md)."""
    end = len(data) - 24
    if data[end:end + 8] != b"DPE-CRC\n":
        if not unchecked:
            raise TableError("has no checksum at its end: it is cut off, or another program wrote or changed "
                             "it; outputs/SCHEMA.md shows how to add one, load_table(path, unchecked=True) "
                             "reads it without")
        return
    length, expected = struct.unpack("<QQ", data[end + 8:])
    found = _crc32c(data[:end])
    if length != end or found != expected:
        raise TableError(f"is damaged: expected {length} bytes with CRC-32C {expected:08x}, found {end} with "
                         f"{found:08x}; copy it again")


def _table_of(values, n_entries, data):
    try:
        table = Table(values)
        of_entry = b"" if n_entries == 1 else b" %d" % table.evaluated_length
        table.digest = hashlib.sha256(data + of_entry).hexdigest()
        return table
    except TableError as error:
        if n_entries == 1:
            raise
        raise TableError(f"the entry for {values['evaluated_length']} tokens: {error}") from None


def _check_header(name, version):
    if name != "dpe-table":
        raise TableError(f"schema_name is {name!r}, expected 'dpe-table'")
    if not isinstance(version, str) or not version.startswith(SCHEMA.partition(".")[0] + "."):
        raise TableError(f"schema version {version}, this adapter reads {SCHEMA}; make the table again with the dpe that "
                         "this adapter came with")


def _check_moves(moves):
    if moves is not None:
        raise TableError("is a table of frequencies, which needs no adapter: dpe-export --format longrope writes it "
                         "as a config.json that transformers reads")


def _entry(shared, has, read):
    """The fields of an entry: all of a part of which there is one."""
    parts = {"core"} | {part for name, (_, part, *_) in FIELDS.items() if has(name)}
    values = {}
    for name, (kind, part, axes, *_, absent) in FIELDS.items():
        if part in parts:
            values[name] = read(name, kind, axes, dict(shared, **values))
        else:
            values[name] = None if axes or kind == "text" else absent if part != "evidence" else None
    if values["mask"] is None:  # a detection alone knows no key pairs: then all are
        values["top_k"] = shared["head_dim"] // 2
    if values["applied_inv_freq"] is None:
        values["applied_inv_freq"] = values["inv_freq"]
    if values["bands"] is not None and not values["bands"].size:
        values["bands"] = None
    return values


def _distinct(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        raise TableError("a key occurs twice in one object")
    return members


def _no_constant(text):
    raise TableError(f"{text} is no JSON number")


def _member(parent, name, kind, expected):
    value = parent.get(name) if isinstance(parent, dict) else None
    # type(), because True is an int to isinstance().
    if type(value) not in kind:
        raise TableError(f'"{name}": expected {expected}')
    return value


def _read_json(data):
    """The values of each entry."""
    root = json.loads(data.decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_no_constant)
    holder, name = rope_block(root)
    root = root if holder is None else holder[name]
    if isinstance(root, dict) and "model_type" in root and "schema_name" not in root:
        raise TableError("is the config.json of a model without a table, which transformers reads without this adapter; "
                         "dpe-export --format hf writes one with a table")
    text = ((str,), "a string")
    name, version = (_member(root, key, *text) for key in ("schema_name", "schema_version"))
    _check_header(name, version)
    _check_moves(root.get("moves"))
    for name, expected in CONVENTIONS.items():
        _check_convention(name, _member(root, name, *text), (expected,))
    model = _member(root, "model", (dict,), "an object")
    shared = {name: _member(model, name, *text) for name in ("model_type", "fingerprint")}
    shared.update((name, _member(model, name, (int,), "a whole number")) for name in MODEL_SIZES)
    shared["schema_version"] = version
    if "entries" not in root:
        return [dict(shared, **_json_entry(root, shared))]
    entries = _member(root, "entries", (list,), "a list")
    return [dict(shared, **_json_entry(entry, shared)) for entry in entries[:MOST_ENTRIES + 1]]


def rope_block(root):
    """Where a config.json of `dpe-export --format hf` holds its table, in the place of the rope scaling: the
    object that describes the language model, and the key. (None, None) when it has none."""
    config = root if isinstance(root, dict) else {}
    for holder in (config.get("text_config"), config):
        for name in ("rope_parameters", "rope_scaling"):
            block = holder.get(name) if isinstance(holder, dict) else None
            if isinstance(block, dict) and block.get("rope_type") == "dpe":
                return holder, name
    return None, None


def own_config(folder):
    """The bytes of the model's own config.json: the file's, or the text within one of `dpe-export --format hf`."""
    path = os.path.join(folder, "config.json")
    with open(path, "rb") as file:
        data = file.read()
    holder, name = rope_block(json.loads(data))
    if holder is None:
        return data
    if not isinstance(holder[name].get("config"), str):
        raise TableError(f"{path}: {name}: expected the model's own config.json as \"config\"; write it again with dpe-export")
    return holder[name]["config"].encode()


def _json_entry(root, shared):
    expected = {"whole": ((int,), "a whole number"), "real": ((int, float), "a number"), "flag": ((bool,), "true or false"),
                "text": ((str,), "a string")}

    def read(name, kind, axes, values):
        if kind == "marks":
            return _mask_of_lists(_member(root, "key_pairs", (list,), "a list"), values)
        return _json_list(root, name) if axes else _member(root, name, *expected[kind])

    return _entry(shared, lambda name: isinstance(root, dict) and ("key_pairs" if name == "mask" else name) in root, read)


def _json_list(root, name):
    numbers = _member(root, name, (list,), "a list of numbers")
    kind = (int,) if name == "group_edge" else (int, float)
    if any(type(number) not in kind for number in numbers):
        raise TableError(f'"{name}": expected {"whole " if name == "group_edge" else ""}numbers')
    return np.array(numbers, np.int64 if name == "group_edge" else np.float64)


def _mask_of_lists(layers, values):
    """"key_pairs": [layer][head] = pair indices."""
    pairs = values["head_dim"] // 2
    if len(layers) != values["n_layers"] or \
            any(type(heads) is not list or len(heads) != values["n_heads"] for heads in layers):
        raise TableError('"key_pairs": expected one list for each head of each layer')
    # Sizes of a hostile file are not allocated before they are known to be sane.
    if not 1 <= pairs <= 1 << 15:
        raise TableError(f"head_dim is {values['head_dim']}, expected 2 to 65536")
    mask = np.zeros((values["n_layers"], values["n_heads"], pairs), bool)
    for layer, heads in enumerate(layers):
        for head, indices in enumerate(heads):
            if type(indices) is not list or any(type(j) is not int or not 0 <= j < pairs
                                                for j in indices) or \
                    len(set(indices)) != len(indices):
                raise TableError(f'"key_pairs" of layer {layer}, head {head}: expected distinct pair '
                                 "indices below head_dim / 2")
            mask[layer, head, indices] = True
    return mask


def _check_convention(name, found, allowed):
    if found not in allowed:
        raise TableError(f'"{name}" is {found!r}, this adapter applies only {allowed[0]!r}')


def _h5_text(attributes, name):
    value = attributes[name]
    value = value.decode() if isinstance(value, bytes) else value
    if not isinstance(value, str):
        raise TableError(f"attribute {name}: expected a string")
    return value


def _h5_scalar(value, name, kinds):
    if getattr(value, "size", 1) != 1:
        raise TableError(f"{name}: expected one number, found {value.size}")
    value = value[()] if hasattr(value, "id") else value
    value = np.asarray(value)
    if value.size != 1 or value.dtype.kind not in kinds:
        raise TableError(f"{name}: expected one {'number' if 'f' in kinds else 'whole number'}")
    return value.reshape(()).item()


def _h5_has(group, name):
    """Whether there is a link of that name, wherever it leads: _h5_get refuses what leads out of the file."""
    return group.get(name, getlink=True) is not None


def _h5_get(group, name):
    """A group or dataset that lies in the file itself, as outputs/table/inside.h has it."""
    import h5py

    link = group.get(name, getlink=True)
    where = f"{group.name.rstrip('/')}/{name}"
    if link is None:
        raise TableError(f"{where}: is not there")
    found = group[name] if isinstance(link, h5py.HardLink) else None
    if found is None or isinstance(found, h5py.Dataset) and (found.external or found.is_virtual):
        raise TableError(f"{where}: points to another file or object, which is not followed; expected the object itself")
    if isinstance(found, h5py.Dataset) and not _is_whole(found):
        raise TableError(f"{where}: expected chunks of at most 64 KiB with the filters shuffle, deflate and fletcher32, and as "
                         "many bytes as the shape says, found others; h5repack -l CONTI -f NONE stores it without any")
    return found


DEFLATE, SHUFFLE, FLETCHER32 = 1, 2, 3  # HDF5's numbers


def _is_whole(dataset):
    """Whether every element has its bytes in the file, or a value where nothing is stored (inside.c has the same rules). What is
    missing HDF5 takes from its memory; and it unpacks whole chunks, whose size the file only claims."""
    import h5py

    created = dataset.id.get_create_plist()
    fills = created.get_fill_time() != h5py.h5d.FILL_TIME_NEVER and created.fill_value_defined() != h5py.h5d.FILL_VALUE_UNDEFINED
    if dataset.chunks is None:
        stored = dataset.id.get_storage_size()
        return stored == dataset.size * dataset.dtype.itemsize or stored == 0 and fills
    most = math.prod(dataset.chunks) * dataset.dtype.itemsize
    filters = [created.get_filter(i)[0] for i in range(created.get_nfilters())]
    if most > 65536 or not set(filters) <= {DEFLATE, SHUFFLE, FLETCHER32} or filters.count(DEFLATE) > 1 or \
            math.prod(-(-size // chunk) for size, chunk in zip(dataset.shape, dataset.chunks)) > 4096:
        return False
    for place in itertools.product(*map(range, [0] * dataset.ndim, dataset.shape, dataset.chunks)):
        info = dataset.id.get_chunk_info_by_coord(place)
        if info.byte_offset is None or info.size == 0:
            if not fills:
                return False
        elif info.filter_mask != 0 or info.size > most + most // 64 + 64 or \
                not _unpacks_to(most, info.size, filters, dataset, place):
            return False
    return True


def _unpacks_to(size, length, filters, dataset, place):
    """Whether the `length` bytes that are stored of a chunk (h5py may give out others) are `size` bytes once the filters are undone.
    h5py has room for `size` bytes where nothing is packed, whatever is stored: it is not asked for these."""
    for one in filters:  # as they are written
        size += 4 if one == FLETCHER32 else 0
        if one == DEFLATE:
            behind = 4 * filters[filters.index(DEFLATE):].count(FLETCHER32)
            stream = zlib.decompressobj()
            try:
                unpacked = stream.decompress(dataset.id.read_direct_chunk(place)[1][:length - behind], size + 1)
            except zlib.error:
                return False
            return stream.eof and len(unpacked) == size
    return length == size


def _h5_array(table, name, rank, kinds):
    data = _h5_get(table, name)
    if not hasattr(data, "shape") or len(data.shape) != rank or data.dtype.kind not in kinds or data.size > MOST_NUMBERS:
        raise TableError(f"/table/{name}: expected numbers of rank {rank}")
    return data


def _read_h5(data):
    """The values of each entry."""
    import h5py  # only this form needs it

    # From memory: what HDF5 reads is what the checksum was made of, and no lock of the file is needed.
    with h5py.File(io.BytesIO(data), "r") as file:
        version = _h5_text(file.attrs, "schema_version")
        _check_header(_h5_text(file.attrs, "schema_name"), version)
        if not _h5_has(file, "table") or not _h5_has(file, "model"):
            raise TableError("holds no /table and /model: make a DPE table with dpe-export")
        table, model = _h5_get(file, "table"), _h5_get(file, "model").attrs
        _check_moves(table.attrs.get("moves"))
        for name, expected in CONVENTIONS.items():
            # What follows a colon explains.
            _check_convention(name, _h5_text(table.attrs, name).partition(":")[0], (expected,))
        shared = {"schema_version": version, "model_type": _h5_text(model, "model_type"),
                  "fingerprint": _h5_text(model, "fingerprint")}
        for name in MODEL_SIZES:
            shared[name] = _h5_scalar(model[name.replace("n_", "", 1)], name, "iu")
        if not _h5_has(table, "length"):
            return [dict(shared, **_h5_entry(table, shared))]
        lengths = _h5_array(table, "length", 1, "iu")[:MOST_ENTRIES + 1].tolist()
        if any(after <= before for before, after in zip(lengths, lengths[1:])):
            raise TableError(f"/table/length is {lengths}, expected lengths that increase")
        entries = [dict(shared, **_h5_entry(_h5_get(table, str(length)), shared)) for length in lengths]
        for length, entry in zip(lengths, entries):
            if entry["evaluated_length"] != length:
                raise TableError(f"/table/{length}/evaluated_length is {entry['evaluated_length']}, "
                                 "expected the length in the name of its group")
        return entries


def _h5_entry(table, shared):
    def read(name, kind, axes, values):
        if kind == "marks":
            return _h5_mask(table, values)
        if kind == "text":
            return _h5_text(table.attrs, name)
        return _h5_list(table, name, axes) if axes else _h5_scalar(_h5_get(table, name), name, "iuf" if kind == "real" else "iu")

    return _entry(shared, lambda name: _h5_has(table, name) or FIELDS[name][0] == "text" and name in table.attrs, read)


def _h5_list(table, name, axes):
    edge, rank = name == "group_edge", axes.count(",") + 1
    return _h5_array(table, name, rank, "iu" if edge else "iuf")[()].astype(np.int64 if edge else np.float64).ravel()


def _h5_mask(table, values):
    data = _h5_array(table, "mask", 3, "iu")
    shape = (values["n_layers"], values["n_heads"], values["head_dim"] // 2)
    if data.shape != shape:
        raise TableError(f"/table/mask has shape {data.shape}, expected {shape}: one row for each "
                         "head of each layer")
    mask = data[()]
    if ((mask != 0) & (mask != 1)).any():
        raise TableError("/table/mask holds other values than 0 and 1")
    return mask.astype(bool)


# ---------------------------------------------------------------------------------------- attention

def fingerprint(folder):
    """Of a Hugging Face folder, as the engine computes it: config.json, name, size and header of each safetensors file, and
    256 blocks of 4096 bytes of its data (engine/model/model.c)."""
    digest = hashlib.sha256(own_config(folder))
    index = os.path.join(folder, "model.safetensors.index.json")
    names = ["model.safetensors"]
    if os.path.exists(index) and not os.path.exists(os.path.join(folder, names[0])):
        with open(index, encoding="utf-8") as file:
            names = sorted(set(json.load(file)["weight_map"].values()))
    shards = []
    for name in names:
        path = os.path.join(folder, name)
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            header = int.from_bytes(file.read(8), "little")
            if header > size - 8:
                raise TableError(f"{path}: a header of {header} bytes in a file of {size}")
            digest.update(name.encode() + b"\0" + size.to_bytes(8, "little") + file.read(header))
        shards.append((path, 8 + header, size))
    for path, data, size in shards:
        stride = max((size - data) // 256, 4096)
        with open(path, "rb") as file:
            for at in range(data, size, stride):
                file.seek(at)
                digest.update(file.read(4096))
    return digest.hexdigest()


class Rotations:
    """Cosines and sines [capacity, n_pairs] of each map of a plan, on one device; grown when a sequence is longer. They
    depend on no layer and no head. `order`: the model's component in each place of the table's order, None where they
    are the same."""

    def __init__(self, plan, order, device):
        self.plan, self.device, self.capacity = plan, device, 0
        self.order = None if order is None else torch.as_tensor(order, device=device)

    def _cos_sin(self, of, first, last):
        # The product is rounded to float32 as the checkpoint's training code rounds it; cosines of
        # such large angles are then taken in double.
        angle = (of.positions(first, last).astype(np.float32) * self.plan.inv_freq.astype(np.float32))
        angle = angle.astype(np.float64)
        cos, sin = np.cos(angle), np.sin(angle)
        # The logits' factor is of the pairs that rotate alone.
        cos[:, len(self.plan.inv_freq) - self.plan.n_still:] = self.plan.still_factor
        return tuple(torch.from_numpy((of.gain * part).astype(np.float32)).to(self.device) for part in (cos, sin))

    def grow(self, length):
        if length <= self.capacity:
            return
        self.capacity = max(256, 1 << (length - 1).bit_length())
        self.tables = [self._cos_sin(one, 0, self.capacity) for one in self.plan.maps]
        scales = self.plan.query_scales(0, self.capacity).astype(np.float32)
        self.query_scale = torch.from_numpy(scales).to(self.device)[:, None]

    def rotate(self, x, number, at, compute):
        """x [..., rows, head_dim], its rows being tokens at ..., or those of the positions `at` [rows], by map `number`; in
        the result pair j is components j, j + n_pairs."""
        rows = slice(at, at + x.shape[-2]) if isinstance(at, int) else at
        cos, sin = (part[rows] for part in self.tables[number])
        x = x if self.order is None else x.index_select(-1, self.order)
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(compute)


class Tokens:
    """Keys and values [batch, n_kv_heads, tokens, head_dim] of a text from position 0 on, keys before rotation. A runtime
    that has them in pages gives Attention.attend an object of its own with these two methods."""

    def __init__(self, k, v):
        self.k, self.v = k, v

    def keys(self, begin, end):
        return self.k[:, :, begin:end]

    def values(self, begin, end):
        return self.v[:, :, begin:end]


class _RotatedKeys:
    """The keys of one layer as each band has them, kept between decoded tokens. They are made again when the tokens
    before the last call's end are not the same."""

    def __init__(self):
        self.keys, self.tokens, self.rotated = None, 0, {}

    def update(self, k, bands, rotate):
        """Rotate what is new of k [batch, kv heads, tokens, dim]. bands: the kinds of rotated keys; rotate(kind, k, first)."""
        tokens, known = k.shape[2], self.tokens
        same = known <= tokens and self.keys is not None and self.keys.device == k.device and \
            self.keys.dtype == k.dtype and self.keys.shape[:2] == k.shape[:2] and \
            torch.equal(self.keys, k[:, :, :known])
        if not same:
            self.rotated, known = {}, 0
        for kind in bands if tokens > known else ():
            new = rotate(kind, k[:, :, known:], known)
            kept = self.rotated.get(kind)
            if kept is None or tokens > kept.shape[2]:
                room = new.new_empty(*k.shape[:2], max(256, tokens + tokens // 4), new.shape[3])
                if known:
                    room[:, :, :known] = kept[:, :, :known]
                self.rotated[kind] = kept = room
            kept[:, :, known:tokens] = new
        self.keys, self.tokens = k, tokens


class _Model:
    """What the model's own attention does with the logits: Attention.__call__ says which."""

    def __init__(self, scaling, softcap, sinks, late):
        self.scaling, self.softcap, self.sinks, self.late = scaling, softcap, sinks, late

    def scale(self, logits, query_scale):
        logits = logits * (query_scale * self.scaling)
        return logits if not self.softcap else torch.tanh(logits / self.softcap) * self.softcap


class Attention:
    """Causal attention under a plan: that of an entry of a table, or any other.

    query_block, key_block: tokens that are looked at together; the largest temporary is batch x
    heads x query_block x key_block float32, whatever the length. compute: dtype of the two matrix
    products (rotation and softmax are float32 always). keep_keys: while single tokens are decoded,
    rotated keys of the last text are kept for each layer (two to three times the KV cache's keys in
    `compute`), so that only new ones are rotated; forget() frees them. order: the model's component in
    each place of the table's, whose pair j is j and j + head_dim / 2; None: the model has that order.
    """

    def __init__(self, table, query_block=256, key_block=None, compute=torch.float32,
                 keep_keys=True, order=None):
        self.plan = table if isinstance(table, Plan) else table.plan
        self.compute, self.order = compute, order
        self.query_block, self.key_block, self.keep_keys = query_block, key_block, keep_keys
        self._rotations, self._selectors, self._kept = {}, {}, {}

    def forget(self):
        """Free the rotated keys of the last text."""
        self._kept = {}

    def __call__(self, q, k, v, layer, scaling=None, softcap=None, sinks=None, late=None):
        """q [batch, n_heads, rows, head_dim]: the last `rows` tokens; k, v [batch, n_kv_heads,
        tokens, head_dim]: all tokens from position 0 on; q and k unrotated. What the model's own
        attention has besides: scaling of the logits (None: 1 / sqrt(head_dim)), a soft cap of them (None
        or 0: none), a sink's logit for each query head [n_heads] (None: none), what rotated queries are
        multiplied by [head_dim], in the table's order of components (None: nothing). Returns the shape and
        dtype of q."""
        batch, heads, rows, dim = q.shape
        kv_heads, tokens = k.shape[1], k.shape[2]
        plan = self.plan
        if (heads, kv_heads, dim) != (plan.n_heads, plan.n_kv_heads, plan.head_dim) or \
                v.shape != k.shape or k.shape[::3] != (batch, dim) or rows > tokens or \
                not 0 <= layer < plan.n_layers:
            raise ValueError(f"layer {layer}, q {tuple(q.shape)}, k {tuple(k.shape)}, v "
                             f"{tuple(v.shape)} do not fit a table of {plan.n_layers} layers with "
                             f"{plan.n_heads} query and {plan.n_kv_heads} key/value heads of "
                             f"{plan.head_dim}")
        keep = rows == 1 and tokens > 1 and self.keep_keys
        kept = self._kept.setdefault(layer, _RotatedKeys()) if keep else None
        return self.attend(q, Tokens(k, v), tokens, layer, scaling, softcap, sinks, kept, late)

    def attend(self, q, text, tokens, layer, scaling=None, softcap=None, sinks=None, kept=None, late=None):
        """As a call, for a text of `tokens` tokens whose keys and values `text` gives in parts, as Tokens does."""
        batch, heads, rows, dim = q.shape
        kv_heads = self.plan.n_kv_heads
        if q.device not in self._rotations:
            self._rotations[q.device] = Rotations(self.plan, self.order, q.device)
        rotations = self._rotations[q.device]
        rotations.grow(tokens)
        q = self.plan.scale_heads(q, layer, 1)
        scaling = (1 / math.sqrt(dim) if scaling is None else scaling) * self.plan.depth(layer)
        model = _Model(scaling, softcap, None if sinks is None else
                       sinks.float().reshape(kv_heads, heads // kv_heads, 1, 1), late)
        run = _Run(self, rotations, self._selector(layer, q.device), model, text)
        if kept is not None:
            kept.update(text.keys(0, tokens), {run.kind(band) for band in self.plan.bands}, run.rotated_keys)
            run.kept = kept.rotated
        # The query heads of a key/value head become its rows: keys are never repeated.
        grouped = q.reshape(batch, kv_heads, heads // kv_heads, rows, dim)
        out = torch.empty_like(grouped)
        for begin in range(0, rows, self.query_block):
            end = min(rows, begin + self.query_block)
            out[..., begin:end, :] = run.block(grouped[..., begin:end, :], tokens - rows + begin)
        return out.reshape(batch, heads, rows, dim)

    def _selector(self, layer, device):
        """[n_kv_heads, group, 1, head_dim] float, 1 for components of key pairs; None: all are."""
        if self.plan.mask is None:
            return None
        if (layer, device) not in self._selectors:
            mask = torch.from_numpy(np.concatenate([self.plan.mask[layer]] * 2, axis=-1))
            self._selectors[layer, device] = mask.to(device).to(self.compute).reshape(
                self.plan.n_kv_heads, -1, 1, self.plan.head_dim)
        return self._selectors[layer, device]


class _Run:
    """One call of an Attention."""

    def __init__(self, attention, rotations, selector, model, text):
        self.plan, self.compute, self.key_block = attention.plan, attention.compute, attention.key_block
        self.rotations, self.selector, self.model, self.text = rotations, selector, model, text
        self.kept = {}

    def kind(self, band):
        """What tells the rotated keys of two bands apart: the map, and whether the first band's stand beside it."""
        return band.k_map, band.per_head and self.selector is not None

    def rotated_keys(self, kind, k, first):
        number, both = kind
        rotated = self.rotations.rotate(k, number, first, self.compute)
        if not both:
            return rotated
        # A key has two values for each pair, scaled and true; twice as wide a query picks with
        # zeros which of them its head sees, so that heads with different key pairs share keys.
        true = self.rotations.rotate(k, self.plan.bands[0].k_map, first, self.compute)
        return torch.cat((rotated, true), dim=-1)

    def _rotated_query(self, q, number, first):
        rotated = self.rotations.rotate(q, number, first, self.compute)
        return rotated if self.model.late is None else rotated * self.model.late.to(self.compute)

    def _query(self, q, band, first):
        rotated = self._rotated_query(q, band.q_map, first)
        if not self.kind(band)[1]:
            return rotated
        true = self._rotated_query(q, self.plan.bands[0].q_map, first)
        return torch.cat((rotated * self.selector, true * (1 - self.selector)), dim=-1)

    def block(self, q, first):
        """One block of queries [batch, kv, group, rows, dim] at positions first ..., over the keys that it sees in parts;
        their softmaxes are merged through running maxima and sums."""
        rows = q.shape[-2]
        queries = {}
        step = self.key_block or min(8192, max(1024, (1 << 18) // rows))
        best = q.new_full((*q.shape[:-1], 1), -math.inf, dtype=torch.float32)
        total, summed = torch.zeros_like(best), torch.zeros_like(q, dtype=torch.float32)
        for begin, end, bands in self.plan.spans(first, first + rows - 1, step):
            logits = self._logits(q, queries, first, begin, end, bands)
            peak = torch.maximum(best, logits.amax(dim=-1, keepdim=True))
            # A query that has seen nothing yet has the maximum -inf, and weights of 0.
            shift = torch.where(peak == -math.inf, torch.zeros_like(peak), peak)
            weights, fade = (logits - shift).exp(), (best - shift).exp()
            total = total * fade + weights.sum(dim=-1, keepdim=True)
            summed = summed * fade + self._product(weights, self.text.values(begin, end))
            best = peak
        if self.model.sinks is not None:
            peak = torch.maximum(best, self.model.sinks)
            fade = (best - peak).exp()
            total, summed = total * fade + (self.model.sinks - peak).exp(), summed * fade
        return (summed / total).to(q.dtype)

    def _logits(self, q, queries, first, begin, end, bands):
        """Logits [batch, kv, group, rows, keys] of keys begin ... end - 1, which lie in `bands`."""
        keys = None if self.kept else self.text.keys(begin, end)
        parts = {}
        for number in bands:
            if number < 0:
                continue
            band = self.plan.bands[number]
            if number not in queries:
                queries[number] = self._query(q, band, first)
            kind = self.kind(band)
            rotated = self.kept[kind][:, :, begin:end] if self.kept else self.rotated_keys(kind, keys, begin)
            parts[number] = self._product(queries[number], rotated.transpose(-1, -2))
        scale = self.rotations.query_scale[first:first + q.shape[-2]]
        if len(bands) == 1:
            return self.model.scale(parts[bands[0]], scale)
        at = self.plan.band_of(torch.arange(first, first + q.shape[-2], device=q.device)[:, None],
                               torch.arange(begin, end, device=q.device))
        logits = None
        for number, part in parts.items():
            logits = part if logits is None else torch.where(at == number, part, logits)
        return self.model.scale(logits, scale).masked_fill(at < 0, -math.inf)

    def _product(self, a, b):
        """a [batch, kv, group, rows, x] times b [batch, kv, x, y] in float32 out."""
        flat = a.to(self.compute).flatten(2, 3) @ b.to(self.compute)
        return flat.float().unflatten(2, a.shape[2:4])
