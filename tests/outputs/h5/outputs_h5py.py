#!/usr/bin/env python3
"""Reads a table as a stranger would: outputs_h5py.py WRITER FOLDER. WRITER makes the table (its rows
are a function of their number, repeated here in Python). Exits with 125 when h5py is not there."""
import os
import subprocess
import sys

try:
    import h5py
    import numpy as np
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(125)

TEXTS = ["4711, 42", "", "Grüße, 世界\nzweite Zeile", None]


def fixture_row(i):
    """tests/outputs/outputs_fixture.h, fixture_row."""
    row = dict(plan="%032x" % (i % 3 + 10), task="niah" if i % 2 == 0 else "ppl", sample=i // 6,
               seed=2**64 - 1 - i, prompt_tokens=1000 + i, seconds=0.5 * i, status=0, score=np.nan,
               at_least_half=np.nan, nll_sum=np.nan, n_tokens=-1, n_words=-1, new_tokens=-1,
               layer=-1, position=-1, text=None, buckets=[])
    if i % 2 == 0:
        row.update(score=i / 7.0, at_least_half=float(i % 4 == 0), new_tokens=12,
                   text=TEXTS[i // 2 % 4])
    else:
        row.update(nll_sum=np.inf if i == 5 else 1e3 / (1 + i), n_tokens=5000000000 + i,
                   n_words=777, buckets=[np.nan if k == 2 else i + 0.1 * k for k in range(i % 5)])
    if i % 11 == 10:
        row.update(status=1, score=np.nan, layer=3, position=99)
    return row


def check_rows(f):
    want = sorted((fixture_row(i) for i in range(60)),
                  key=lambda r: (r["task"], r["plan"], r["sample"]))
    rows = f["rows"]
    assert f.attrs["n_rows"] == len(want) == len(f["row"])
    tasks, plans = f["tasks/task"].asstr()[:], f["plans/plan"].asstr()[:]
    assert [tasks[i] for i in rows["task"][:]] == [r["task"] for r in want]
    assert [plans[i] for i in rows["plan"][:]] == [r["plan"] for r in want]
    for name in ("sample", "status", "score", "at_least_half", "nll_sum", "n_tokens", "n_words",
                 "prompt_tokens", "new_tokens", "seed", "layer", "position"):
        got = rows[name][:]
        np.testing.assert_array_equal(got, np.array([r[name] for r in want], got.dtype), name)
    np.testing.assert_array_equal(f["run/seconds"][:], [r["seconds"] for r in want])
    texts = [t if there else None
             for t, there in zip(rows["text"].asstr()[:], rows["text_present"][:])]
    assert texts == [r["text"] for r in want]
    counts = rows["bucket_count"][:]
    np.testing.assert_array_equal(counts, [len(r["buckets"]) for r in want])
    np.testing.assert_array_equal(rows["bucket_nll"][:], sum((r["buckets"] for r in want), []))
    assert list(f["plans/name"].asstr()[:]) == ["dpe:window=32", "rope", "dpe:window=32"]


def check_filled(f):
    recall = f["detect/niah/recall"]
    np.testing.assert_array_equal(recall[:], [[0.0, 0.25, 0.5], [1.0, 1.0 / 3.0, 0.125]])
    assert recall.dims[0][0].name == "/group" and recall.dims[1][0].name == "/length"
    assert list(f["names"].asstr()[:]) == ["groß", "世界"]
    assert f["answer"][()] == 42 and f["answer"].dtype == np.int64
    assert f["norms/top"].dtype == np.uint16 and list(f["norms/top"]) == [65535, 7]
    np.testing.assert_array_equal(f["norms/mean"][:], np.array([1.5, -2.25, 1e-30], "f4"))
    assert f["detect/niah"].attrs["criterion"] == "Größe"
    assert f["detect/niah"].attrs["level"] == 0.1
    mask = f["table/mask"]
    assert mask.dtype == np.uint8 and list(mask.attrs["flag_values"]) == [0, 1]
    assert mask.attrs["flag_values"].dtype == np.uint8
    assert mask.attrs["flag_meanings"] == "no yes"


def check_conventions(name, item):
    if not isinstance(item, h5py.Dataset):
        return
    assert item.attrs["long_name"] and item.attrs["units"], name
    text = h5py.check_string_dtype(item.dtype)
    scale = h5py.h5ds.is_scale(item.id)
    if text is not None:
        assert text.encoding == "utf-8" and text.length is None, name
    elif item.shape != () and item.size > 0:
        assert item.chunks and item.shuffle and item.fletcher32, name
        assert item.compression == "gzip" and item.compression_opts == 4, name
    filled = text is None and not scale and item.dtype.kind in "fi"
    assert ("_FillValue" in item.attrs) == filled, name
    if filled:
        fill = item.attrs["_FillValue"]
        assert fill.dtype == item.dtype and (np.isnan(fill) if item.dtype.kind == "f" else fill == -1)
    if not scale:
        for axis in item.dims:
            assert len(axis) == 1, name
            folder = axis[0].name.rsplit("/", 1)[0]
            assert item.name.startswith(folder + "/"), name


def main(writer, folder):
    table = os.path.join(folder, "outputs_h5py.h5")
    if os.path.exists(table):
        os.remove(table)
    subprocess.run([writer, table], check=True)
    with h5py.File(table, "r") as f:
        assert f.attrs["schema_name"] == "dpe-table" and f.attrs["schema_version"] == "9.0.0"
        assert f.attrs["complete"] == 1 and len(f.attrs["identity"]) == 64
        names, values = f["identity/field"].asstr()[:], f["identity/value"].asstr()[:]
        assert dict(zip(names, values)) == dict(model="0123456789abcdef", task="niah", seed="1")
        assert f["run"].attrs["created"].endswith("Z") and table in f["run"].attrs["history"]
        assert f["run/sessions/threads"].asstr()[0] == "2"
        check_rows(f)
        check_filled(f)
        f.visititems(check_conventions)
    dump = subprocess.run(["h5dump", "-d", "/detect/niah/recall", table], check=True,
                          capture_output=True, text=True).stdout
    assert "(0,0): 0, 0.25, 0.5," in dump and '"/group"' in dump
    os.remove(table)


main(*sys.argv[1:])
