"""hostile_inputs.py: what hostile.py runs. A good world (models, corpora, tables, journals), what makes
a copy of it hostile, and the commands; all drawn from a random.Random."""

import copy
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import time
import zlib

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import world as world_py
from checksum import add_checksum

SECRET = b"this is for nobody's eyes "  # what no output may hold

METHODS = ["rope", "pi", "ntk", "yarn", "self-extend", "rerope", "leaky-rerope", "dca", "streaming-llm", "dpe", "string", "lampe",
           "cope", "dope", "hirope", "adagrope", "longrope", "dpe:log-n=64", "self-extend:logit-scale=1.2", "moba",
           "select:k=2,block=8,over=dpe"]


# ------------------------------------------------------------------------------------ a good world

def sweep(world, output, *more):
    return ["dpe-detect", "-m", world + "/model", "--corpus", world + "/corpus", "-l", "128", "--groups", "2",
            "--lengths", "8,64", "--seed", "5", "--threads", "1", "--samples", "1", "--select", "paper",
            "--temperature", "off", "-o", output, *more]


def profile(world, output, *more):
    return ["dpe-norms", "-m", world + "/model", "--corpus", world + "/corpus", "--lengths", "16",
            "--samples", "2", "--threads", "1", "-o", output, *more]


def compare(world, output, *more):
    return ["dpe-eval", "niah", "-m", world + "/model", "--corpus", world + "/corpus", "-l", "128",
            "--method", "rope", "--method", "pi", "--samples", "1", "--threads", "1", "-o", output, *more]


def make_world(bin_folder, world):
    """Good inputs of every kind; what hostile runs change is a copy of this folder."""
    read_options(bin_folder)
    world_py.make(world)
    name = sorted(os.listdir(world + "/corpus"))[0]
    os.makedirs(world + "/pg/test")
    shutil.copy(f"{world}/corpus/{name}", f"{world}/pg/test/7.txt")
    with open(world + "/pg/metadata.csv", "w", encoding="utf-8") as file:
        file.write('7,"A ""book""",1901,http://x/7\n')
    with open(world + "/template.txt", "w", encoding="utf-8") as file:
        file.write("<user>{prompt}</user>\n")
    table = world + "/table.h5"
    steps = [sweep(world, world + "/detect.h5"), profile(world, world + "/norms.h5"),
             compare(world, world + "/eval.h5"),
             ["dpe-export", world + "/detect.h5", world + "/norms.h5", "--top-k", "0.75", "-o", table],
             ["dpe-export", table, "-o", world + "/table.json"],
             ["dpe-export", table, "-o", world + "/table.yaml"],
             ["dpe-export", table, "-o", world + "/table.safetensors"],
             sweep(world, world + "/far.h5", "-l", "192"),
             ["dpe-export", world + "/far.h5", "-o", world + "/far_table.h5"],
             ["dpe-export", world + "/detect.h5", "-o", world + "/near_table.h5"],
             ["dpe-export", "--join", world + "/near_table.h5", world + "/far_table.h5", "-o", world + "/ladder.h5"],
             ["dpe-export", world + "/ladder.h5", "-o", world + "/ladder.json"]]
    for words in steps:
        ran = subprocess.run([os.path.join(bin_folder, words[0]), *words[1:]], capture_output=True, check=False)
        if ran.returncode != 0:
            sys.exit(f"the good world: {' '.join(words)}: exit {ran.returncode}: {ran.stderr.decode(errors='replace')}")
    make_benchmarks(bin_folder, world)
    # A run that is not complete: one that is stopped once it has saved something.
    journal = world + "/kept.h5.journal/rank-0000.journal"
    words = sweep(world, world + "/kept.h5", "--samples", "200")
    with subprocess.Popen([os.path.join(bin_folder, words[0]), *words[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as ran:
        while ran.poll() is None and not (os.path.exists(journal) and os.path.getsize(journal) > 2000):
            time.sleep(0.001)
        ran.terminate()
    if not os.path.exists(journal):
        sys.exit("the good world: no journal of a run that was stopped")


def answer(world, suite, *more):
    return ["dpe-eval", suite, "-m", world + "/model", "--corpus", world + "/corpus", "-l", "512", "--method", "rope",
            "--samples", "1", "--threads", "1", *more]


def make_benchmarks(bin_folder, world):
    """Samples, questions and answers in the formats of RULER, SQuAD, HotpotQA and InfiniteBench."""
    for words in (["dpe-eval", "data", "-m", world + "/model", "--corpus", world + "/corpus", "-l", "512", "--samples", "1",
                   "--tasks", "vt", "-o", world + "/data"],
                  answer(world, "ruler", "--tasks", "vt", "--predictions", world + "/answers", "-o", world + "/ruler.h5")):
        subprocess.run([os.path.join(bin_folder, words[0]), *words[1:]], capture_output=True, check=True)
    text = "The fox jumped over the dog. It went home. " + " ".join(f"Then came dog {i}." for i in range(100))
    questions = [{"id": "q", "question": "Who jumped?", "is_impossible": False, "answers": [{"text": "The fox", "answer_start": 0}]}]
    squad = {"version": "v2.0", "data": [{"title": "Fox", "paragraphs": [{"context": text, "qas": questions}]}]}
    hotpot = [{"_id": "h", "question": "Who jumped?", "answer": "The fox", "type": "bridge", "level": "easy",
               "context": [["Fox", [text]], ["Dog", ["A dog slept."]]], "supporting_facts": [["Fox", 0]]}]
    for name, value in (("squad.json", squad), ("hotpot.json", hotpot)):
        with open(f"{world}/{name}", "w", encoding="utf-8") as file:
            json.dump(value, file)
    os.makedirs(world + "/infinite")
    with open(world + "/infinite/passkey.jsonl", "w", encoding="utf-8") as file:
        file.write(json.dumps({"id": 0, "context": "The pass key is 71432. " * 20, "input": "What is the pass key?",
                               "answer": ["71432"], "options": []}) + "\n")


# ----------------------------------------------------------------------------------------- hostility

WORDS = [b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[2J", b"\n", b"-1", b"1e999", b"NaN", b"\"", b"}", b"]]]]",
         b"99999999999999999999", b"0x10", b"%s%n", b"../../x", b"\xef\xbb\xbf", b"\xe2\x80\xae", b"\\u0000", b" " * 3000]
VALUES = [None, True, 0, -1, 1, 2, 3, 7, 2**31, 2**31 - 1, 2**32, 2**53, 2**63, -2**63, 0.5, 1e-320, 1e30, 1e300,
          "", "x", "a\0b", "\x1b[31m", "\ud800", "ü" * 300, "../x", "/etc/passwd", [], {}, [[]], [0] * 50, {"type": "x"}]


def changed_bytes(draw, data):
    """Some of: flipped bits, cut, zeros at the end, words put in, a slice twice or gone."""
    data = bytearray(data)
    for _ in range(draw.choice([1, 1, 1, 2, 5, 30])):
        n = len(data)
        at = draw.randrange(n + 1)
        # Headers decide more than the rest.
        at = at if draw.random() < 0.5 else min(at, draw.choice([8, 64, 600]))
        kind = draw.randrange(7)
        if kind == 0 and n > 0:
            data[min(at, n - 1)] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data += b"\0" * draw.choice([1, 8, 4096])
        elif kind == 3:
            data[at:at] = draw.choice(WORDS)
        elif kind == 4:
            data[at:at] = data[at:at + draw.randrange(1, 200)]
        elif kind == 5:
            del data[at:at + draw.randrange(1, 200)]
        elif n >= 8:
            at = min(at, n - 8)
            data[at:at + 8] = draw.choice([b"\xff" * 8, b"\0" * 8, struct.pack("<Q", 2**63), struct.pack("<Q", n)])
    return bytes(data)


def places(value, found, depth=0):
    """(container, key) of everything within a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items)[:60]:
        found.append((value, key))
        if depth < 6:
            places(inner, found, depth + 1)
    return found


def changed_json(draw, data):
    value = json.loads(data)
    for _ in range(draw.choice([1, 1, 2, 4])):
        found = places(value, [])
        if not found:
            break
        container, key = draw.choice(found)
        kind = draw.randrange(5)
        if kind == 0:
            del container[key]
        elif kind == 1 and isinstance(container, dict):
            container[draw.choice(["x", "", "type", "a\0b", "\x1b]0;x\x07"])] = copy.deepcopy(draw.choice(VALUES))
        elif kind == 2 and isinstance(container[key], (int, float)) and not isinstance(container[key], bool):
            container[key] = container[key] * draw.choice([-1, 0, 2, 0.5, 1e9, 1000]) + draw.choice([0, 1])
        elif kind == 3:
            deep = 0
            for _ in range(draw.choice([3, 500, 3000])):
                deep = [deep]
            container[key] = deep if draw.random() < 0.2 else copy.deepcopy(draw.choice(VALUES))
        else:
            container[key] = copy.deepcopy(draw.choice(VALUES))
    sys.setrecursionlimit(20000)
    text = json.dumps(value, ensure_ascii=draw.random() < 0.5)
    if draw.random() < 0.1:
        text = text.replace("{", '{"model_type":"llama",', 1)
    if draw.random() < 0.05:
        text = text.replace("1", "NaN", 1)
    return text.encode("utf-8", "surrogatepass")


def change(draw, path):
    """A file becomes hostile: its content, or what it is."""
    kind = draw.random()
    if kind < 0.12:
        if os.path.isdir(path):
            return
        os.remove(path)
        what = draw.randrange(7)
        if what == 0:
            os.mkfifo(path)
        elif what == 1:
            os.mkdir(path)
        elif what == 2:
            os.symlink(path, path)
        elif what == 3:
            os.symlink("/nowhere/at/all", path)
        elif what == 4:
            os.symlink("/dev/zero", path)
        elif what == 5:
            open(path, "wb").close()
        return
    with open(path, "rb") as file:
        data = file.read()
    as_json = path.endswith(".json") and kind < 0.8
    data = changed_json(draw, data) if as_json else changed_bytes(draw, data)
    with open(path, "wb") as file:
        file.write(data)


def hostile_text(draw):
    parts = ["word ", "a", " ", "\n", "é", "e\u0301", "\u2581", "<s>", "</s>", "<|endoftext|>", "123", "\u200d", "👩\u200d🦰", "'ll"]
    if draw.random() < 0.2:
        return draw.choice(parts) * draw.choice([1, 1000, 200000])
    return "".join(draw.choice(parts) for _ in range(draw.choice([0, 1, 20, 3000])))


def component(draw, kind, depth=0):
    text = draw.choice(["a", " ", "\u2581", "", "ab", "é", "a" * 10])
    content = draw.choice(["", "a", "\u2581", "a" * 10, "b" * 1000, "\x1b", text])
    pattern = {draw.choice(["String", "Regex"]): draw.choice([text, "\\p{L}+", "(a+)+$", "(a|aa)+b", "[", "a{1,9999}", ".*"])}
    sets = {
        "normalizer": [{"type": "NFC"}, {"type": "Prepend", "prepend": content},
                       {"type": "Replace", "pattern": pattern, "content": content}],
        "pre_tokenizer": [{"type": "Digits", "individual_digits": draw.random() < 0.5},
                          {"type": "Split", "pattern": pattern, "invert": draw.random() < 0.5,
                           "behavior": draw.choice(["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"])},
                          {"type": "ByteLevel", "add_prefix_space": draw.random() < 0.5, "use_regex": draw.random() < 0.5},
                          {"type": "Metaspace", "replacement": draw.choice(["\u2581", text]), "prepend_scheme": draw.choice(["first", "always", "never", "x"])}],
        "decoder": [{"type": "ByteLevel"}, {"type": "ByteFallback"}, {"type": "Fuse"},
                    {"type": "Replace", "pattern": pattern, "content": content},
                    {"type": "Strip", "content": text, "start": draw.choice([0, 1, 99]), "stop": 0}],
    }
    lists = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
    if depth < 4 and draw.random() < 0.4:
        return {"type": "Sequence", lists[kind]: [component(draw, kind, depth + 1) for _ in range(draw.choice([0, 1, 2, 3, 8]))]}
    return draw.choice(sets[kind])


# ------------------------------------------------------------------------------------------ classes
# Each takes (draw, world): changes files of the world and returns the command; what it writes is below
# world/out.

def any_use(draw, world):
    """A command that reads the model, one of many."""
    out = world + "/out/o"
    model = ["-m", world + "/model"]
    if draw.random() < 0.01:  # it measures the machine first, for seconds
        return ["dpe-bench", "--shape", world + "/model", "-l", "32", "--new", "1", "--repeats", "1", "--threads", "1"]
    return draw.choice([
        ["dpe-run", *model, "--info"], ["dpe-run", *model, "-p", "The fox", "-n", "4"],
        ["dpe-run", *model, "--nll", world + "/corpus/900000.txt", "-c", "32", "--time-budget", "2"],
        ["dpe-run", *model, "--show-plan", "--method", draw.choice(METHODS)],
        ["dpe-run", *model, "--tokenize", "-p", hostile_text(draw)[:2000].replace("\0", "")],
        sweep(world, out + ".h5"), sweep(world, out + ".h5", "--dry-run"), profile(world, out + ".h5"),
        compare(world, out + ".h5"),
        ["dpe-export", world + "/table.h5", "-m", world + "/model", "--check"],
        ["dpe-export", world + "/table.h5", "-m", world + "/model", "--format", "hf", "-o", out + ".json"]])


def class_model(draw, world):
    names = ["config.json", "config.json", "config.json", "generation_config.json", "model.safetensors", "model.safetensors"]
    if draw.random() < 0.15:
        index = {"metadata": {}, "weight_map": {"model.norm.weight": draw.choice(["model.safetensors", "../x", "a/b", "", "nosuch"])}}
        with open(world + "/model/model.safetensors.index.json", "w", encoding="utf-8") as file:
            json.dump(index, file)
        if draw.random() < 0.5:
            os.remove(world + "/model/model.safetensors")
        return any_use(draw, world)
    if draw.random() < 0.3:
        path = world + "/model/config.json"
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        big = draw.choice([1e300, 1e-320, 1e30, -1, 0, 1, 2, 8, 2**31, 2**32])
        config[draw.choice(["rope_scaling", "rope_parameters"])] = {
            "rope_type": draw.choice(["linear", "dynamic", "yarn", "longrope", "llama3"]), "factor": draw.choice([2, 8, big]),
            draw.choice(["attention_factor", "mscale", "beta_fast", "low_freq_factor", "original_max_position_embeddings"]): big,
            "high_freq_factor": 4, "short_factor": [draw.choice([1, big])] * 8, "long_factor": [draw.choice([2, big])] * 8}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        return any_use(draw, world)
    change(draw, world + "/model/" + draw.choice(names))
    return any_use(draw, world)


def class_tokenizer(draw, world):
    path = world + "/model/tokenizer.json"
    if draw.random() < 0.6:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
        for kind in ("normalizer", "pre_tokenizer", "decoder"):
            if draw.random() < 0.5:
                value[kind] = component(draw, kind)
        if draw.random() < 0.2:
            value["added_tokens"].append({"id": draw.choice([2560, 5, -1, 2**32]), "content": draw.choice(["word", "", "a"]),
                                          "special": True, "single_word": True, "lstrip": True, "rstrip": True, "normalized": True})
        with open(path, "w", encoding="utf-8") as file:
            json.dump(value, file)
    else:
        change(draw, path)
    with open(world + "/text.txt", "w", encoding="utf-8") as file:
        file.write(hostile_text(draw))
    if draw.random() < 0.3:
        return any_use(draw, world)
    return ["dpe-run", "-m", world + "/model", "--tokenize", "--prompt-file", world + "/text.txt",
            *draw.choice([[], ["--raw"], ["--special-in-text", "parse"], ["--max-memory", "20M"]])]


def class_corpus(draw, world):
    folder = draw.choice(["corpus", "pg"])
    files = [os.path.join(at, name) for at, _, names in os.walk(f"{world}/{folder}") for name in names]
    for path in draw.sample(sorted(files), draw.choice([1, 1, len(files)])):
        change(draw, path)
    if draw.random() < 0.2:
        with open(os.path.join(os.fsencode(world), b"corpus", draw.choice([b"\xff.txt", b"\x1b[2J.txt", b"a\nb.txt", b".txt"])), "wb") as file:
            file.write(hostile_text(draw).encode())
    out = world + "/out/o.h5"
    words = draw.choice([sweep(world, out, "--task", "both"), profile(world, out), compare(world, out),
                         ["dpe-eval", "ppl", "-m", world + "/model", "--corpus", world + "/corpus", "-l", "64", "--method", "rope",
                          "--samples", "1", "--threads", "1", "-o", out],
                         ["dpe-eval", "data", "-m", world + "/model", "--corpus", world + "/corpus", "-l", "1024", "--samples", "1",
                          "--tasks", draw.choice(["vt", "niah_single_1", "cwe", "fwe"]), "-o", world + "/out"]])
    return [word.replace("/corpus", "/pg") if folder == "pg" else word for word in words]


def class_table(draw, world):
    name = draw.choice(["table.h5", "table.h5", "detect.h5", "norms.h5", "eval.h5", "table.json", "table.json",
                        "table.yaml", "table.yaml", "table.safetensors"])
    change(draw, f"{world}/{name}")
    path = f"{world}/{name}"
    out = world + "/out/o"
    form = draw.choice([".h5", ".json", ".yaml", ".safetensors", ".csv"])
    if name.endswith(".yaml"):
        return ["dpe-export", "--import-yaml", path, "-m", world + "/model", "--length", "192", "-o", out + form]
    if name in ("detect.h5", "norms.h5"):
        return draw.choice([["dpe-export", world + "/detect.h5", world + "/norms.h5", "-o", out + form],
                            ["dpe-report", world + "/detect.h5", world + "/norms.h5", "--no-figures", "-o", out + ".html"],
                            ["dpe-report", path, "--no-figures", "-o", out + ".html"],
                            ["dpe-export", world + "/detect.h5", world + "/norms.h5", "--top-k", "4", "-o", out + form]])
    if name == "eval.h5":
        return ["dpe-report", path, "--no-figures", "-o", out + ".html"]
    return draw.choice([["dpe-export", path, "--show"], ["dpe-export", path, "-o", out + form],
                        ["dpe-export", path, "-m", world + "/model", "--check"],
                        ["dpe-run", "-m", world + "/model", "--table", path, "-p", "The fox", "-n", "2"],
                        ["dpe-run", "-m", world + "/model", "--table", path, "--show-plan"],
                        ["dpe-report", path, "--no-figures", "-o", out + ".html"],
                        compare(world, out + ".h5", "--table", path)])


def class_pointing(draw, world):
    """A table with a sound checksum whose objects lie in another file."""
    name = draw.choice(["table.h5", "detect.h5", "norms.h5", "eval.h5", "ladder.h5"])
    path, whole = f"{world}/{name}", f"{world}/whole.h5"
    os.rename(path, whole)
    shutil.copy(whole, path)
    with open(world + "/secret", "wb") as file:
        file.write(SECRET * 4000)
    with h5py.File(path, "r+") as file:
        places = []
        file.visititems(lambda place, item: places.append(place))
        for place in draw.sample(places, draw.choice([1, 1, 2])):
            try:
                item = file[place]
            except (KeyError, RuntimeError):  # it went with its group, or its group points to itself
                continue
            numbers = isinstance(item, h5py.Dataset) and item.dtype.kind in "iuf"
            way = draw.choice(["soft", "external", "self", "storage", "virtual"] if numbers else ["soft", "external", "self"])
            shape, dtype = (item.shape, item.dtype) if numbers else (None, None)
            if way == "soft":
                away = "away_" + place.replace("/", "_")
                file.move(place, away)
                file[place] = h5py.SoftLink("/" + away)
                continue
            del file[place]
            if way == "external":
                file[place] = h5py.ExternalLink(draw.choice([whole, world + "/nowhere.h5", "/dev/zero"]), place)
            elif way == "self":
                file[place] = h5py.SoftLink(draw.choice(["/" + place, "/", "/" + place.rpartition("/")[0]]))
            elif way == "storage":
                file.create_dataset(place, shape, dtype, external=[(draw.choice([world + "/secret", world + "/nowhere", "/dev/zero"]), 0,
                                                                    h5py.h5f.UNLIMITED)])
            else:
                layout = h5py.VirtualLayout(shape, dtype)
                layout[...] = h5py.VirtualSource(draw.choice([whole, world + "/nowhere.h5"]), place, shape)
                file.create_virtual_dataset(place, layout)
    add_checksum(path)
    return any_reader(draw, world, path)


def any_reader(draw, world, path):
    """A command that reads the HDF5 table at `path`, or the one of another kind whose place it takes."""
    out = world + "/out/o"
    return draw.choice([["dpe-export", path, "-o", out + draw.choice([".h5", ".json", ".yaml", ".safetensors", ".csv", ".pt"])],
                        ["dpe-export", world + "/detect.h5", world + "/norms.h5", "-o", out + draw.choice([".h5", ".pt"])],
                        ["dpe-report", path, "--no-figures", "-o", out + ".html"],
                        ["dpe-run", "-m", world + "/model", "--table", path, "-p", "The fox", "-n", "2"],
                        ["dpe-export", world + "/detect.h5", world + "/norms.h5", "--top-k", "4", "-o", out + ".h5"],
                        compare(world, out + ".h5", "--table", path)])


ZEROS = {}  # by length: zeros that deflate has packed


def packed(n):
    if n not in ZEROS:
        packer = zlib.compressobj(9)
        ZEROS[n] = b"".join(packer.compress(bytes(min(1 << 20, n - at))) for at in range(0, n, 1 << 20)) + packer.flush()
    return ZEROS[n]


def put_bomb(draw, file, place, shape, dtype):
    """A dataset at `place` that is small in the file and large, or of many parts, for its reader."""
    many = draw.choice([1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 27, 1 << 31, 1 << 40])
    kind = draw.choice(["chunk", "chunk", "extent", "small", "contiguous", "filters", "strings", "rank"])
    shape = shape if shape and 0 not in shape else (4,)
    if kind == "strings":
        file.create_dataset(place, (draw.choice([1, 3, many]),), h5py.string_dtype("utf-8", draw.choice([8, 1 << 16, 1 << 27])),
                            chunks=(1,), compression=4)
        return
    if kind == "rank":
        shape = (2,) * draw.choice([6, 20, 32])
        file.create_dataset(place, shape, dtype, chunks=draw.choice([shape, (1,) * len(shape)]), compression=4)
        return
    large = shape[:-1] + (many,) if kind in ("extent", "small", "contiguous") else shape
    if kind == "contiguous":
        file.create_dataset(place, large, dtype)
        return
    chunk = {"chunk": tuple(min(draw.choice([1, 64, 4096, 1 << 20]) * n, (1 << 32) - 1) for n in shape),
             "extent": (1,) * (len(large) - 1) + (min(many, draw.choice([1, 256, 8192, 1 << 20])),),
             "small": (1,) * len(large), "filters": shape}[kind]
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    created.set_chunk(chunk)
    for _ in range(draw.choice([1, 2, 3]) if kind == "filters" else 1):
        created.set_filter(h5py.h5z.FILTER_DEFLATE, 0, (4,))
    dataset = h5py.h5d.create(file.id, place.encode(), h5py.h5t.py_create(dtype), h5py.h5s.create_simple(large, (h5py.h5s.UNLIMITED,) * len(large)),
                              created)
    right = math.prod(chunk) * dtype.itemsize
    bytes_of = draw.choice([right, right, 1 << 20, 1 << 28]) if right <= 1 << 28 else 1 << 28
    for i in range(draw.choice([0, 1, 3, 300]) if kind in ("extent", "small") else draw.choice([0, 1, 1])):
        at = (0,) * (len(large) - 1) + (i * chunk[-1],)
        if at[-1] < large[-1]:
            dataset.write_direct_chunk(at, packed(bytes_of) if bytes_of <= 1 << 20 or i == 0 else packed(8))


def class_bomb(draw, world):
    """A table with a sound checksum whose datasets take far more memory or time than their file has bytes."""
    name = draw.choice(["table.h5", "detect.h5", "norms.h5", "eval.h5", "ladder.h5", "kept.h5"])
    path = f"{world}/{name}" if name != "kept.h5" else f"{world}/out/o.h5"
    if name == "kept.h5":
        shutil.copy(world + "/detect.h5", path)
    with h5py.File(path, "r+") as file:
        places = []
        file.visititems(lambda place, item: places.append(place) if isinstance(item, h5py.Dataset) else None)
        for place in draw.sample(places, draw.choice([1, 1, 2, len(places)])):
            item = file[place]
            shape, dtype = item.shape, item.dtype if item.dtype.kind in "iuf" else np.dtype(draw.choice(["f8", "i8", "u1"]))
            del item, file[place]
            try:
                put_bomb(draw, file, place, shape, dtype)
            except (ValueError, OSError):
                pass  # HDF5 does not write this one: it is not there, or has no such chunk
    add_checksum(path)
    command = any_reader(draw, world, path) if name != "kept.h5" else sweep(world, path, *draw.choice([[], ["--force"], ["--samples", "2"]]))
    return command + (draw.choice([[], ["--max-memory", "100M"]]) if command[0] in ("dpe-run", "dpe-detect", "dpe-eval") else [])


def class_journal(draw, world):
    os.rename(world + "/kept.h5.journal", world + "/out/o.h5.journal")
    folder = world + "/out/o.h5.journal/"
    for name in draw.sample(sorted(os.listdir(folder)), draw.choice([0, 1, 1, 2])):
        if os.path.isfile(folder + name):
            change(draw, folder + name)
    if draw.random() < 0.3:
        if os.path.isdir(folder + "LOCK"):
            os.rmdir(folder + "LOCK")
        elif os.path.lexists(folder + "LOCK"):
            os.remove(folder + "LOCK")
        with open(folder + "LOCK", "w", encoding="utf-8") as file:
            file.write(draw.choice(["", "host x pid -1 start 0 boot y since z\n", "\x1b[2J" * 50, "host h pid 999999999999999999999"]))
    if draw.random() < 0.2:
        shutil.copy(world + "/table.h5", world + "/out/o.h5")
    return sweep(world, world + "/out/o.h5", *draw.choice([[], [], ["--force"],
                                                           ["--samples", "2"], ["--seed", "6"]]))


# What templates are made of: the blocks and expressions of real ones, and what they never hold.
PIECES = ["{% for message in messages %}", "{% endfor %}", "{% if loop.first %}", "{% else %}", "{% elif message.role == 'user' %}",
          "{% endif %}", "{{ message['content'] }}", "{{ messages[0].role | trim }}", "{{ bos_token }}", "{{- eos_token -}}",
          "{% set ns = namespace(x=0) %}", "{% set ns.x = ns.x + 1 %}", "{{ raise_exception('no') }}", "{%- set m = messages[::-1] %}",
          "{{ message | tojson(indent=4) }}", "<|im_start|>", "{{ strftime_now('%d %b %Y') }}", "{{ x.y.z[1:2] }}", "{{ 1 / 0 }}",
          "{{ 'a' * 1000000000 }}", "{{ range(10 ** 18) | list }}", "{{ cycler.__init__.__globals__ }}", "{% macro m(a) %}{{ m(a) }}{% endmacro %}",
          "{{ m(1) }}", "{% include '/etc/passwd' %}", "{{ ''.join(messages) }}", "{{", "%}", "{#", "-#}", "\x1b[2J", "\ud800", "((((" * 500,
          "{% if a %}" * 300, "{% for a in range(9999) %}" * 4, "{{ " + "-" * 3000 + "1 }}", "{{ not " * 200]


def class_chat(draw, world):
    """Chat templates: in the tokenizer's configuration, in a file of their own, or given by --chat-template."""
    good = "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{{ eos_token }}{% endfor %}<|assistant|>"
    text = "".join(draw.choice(PIECES) for _ in range(draw.choice([1, 2, 5, 30]))) if draw.random() < 0.6 else good
    config = {"chat_template": text, "bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": True}
    if draw.random() < 0.2:
        config["chat_template"] = [{"name": draw.choice(["default", "tool_use", "", "x"]), "template": text} for _ in range(draw.choice([0, 1, 2]))]
    encoded = json.dumps(config).encode()
    if draw.random() < 0.4:
        encoded = changed_json(draw, encoded) if draw.random() < 0.7 else changed_bytes(draw, encoded)
    with open(world + "/model/tokenizer_config.json", "wb") as file:
        file.write(encoded)
    if draw.random() < 0.3:
        with open(world + "/model/chat_template.jinja", "wb") as file:
            file.write(changed_bytes(draw, text.encode("utf-8", "surrogatepass")))
    run = ["dpe-run", "-m", world + "/model", "--chat", "-p", draw.choice(["hello", "", "{{ x }}", "<|im_end|>", hostile_text(draw)[:2000]]), "-n", "3"]
    return draw.choice([[*run, *draw.choice([[], ["--system", "Be short."], ["--json"], ["--special-in-text", "parse"]])], run,
                        compare(world, world + "/out/o.h5", "-l", "192", "--chat-template", "auto"),
                        sweep(world, world + "/out/o.h5", "-l", "192", "--chat-template", "auto")])


FAMILIES = ["qwen2", "qwen3", "qwen3_moe", "mistral", "mistral3", "ministral3", "phi3", "olmo2", "olmo3", "glm4", "granite", "smollm3",
            "gemma2", "gemma3_text", "gemma3", "gpt_oss", "glm4_moe", "minimax_m2", "seed_oss", "ernie4_5", "exaone4",
            "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "olmo_hybrid", "llama4", "cohere2", "deepseek_v3", "\x1b[2J", "x" * 300, None, 7]


def class_family(draw, world):
    """The configuration says that the model is of another family, with keys of its own."""
    path = world + "/model/config.json"
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["model_type"] = draw.choice(FAMILIES)
    if draw.random() < 0.9:
        del config["architectures"]
    keys = ["sliding_window", "layer_types", "num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size",
            "partial_rotary_factor", "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "embedding_multiplier",
            "attention_multiplier", "residual_multiplier", "logits_scaling", "no_rope_layers", "rope_local_base_freq", "rope_parameters",
            "n_routed_experts", "n_group", "topk_group", "n_shared_experts", "first_k_dense_replace", "rotary_dim", "scoring_func",
            "routed_scaling_factor", "text_config", "quantization_config", "head_dim", "attention_bias", "hidden_activation", "tie_word_embeddings"]
    for key in draw.sample(keys, draw.choice([0, 1, 2, 5])):
        config[key] = draw.choice([["full_attention"], ["sliding_attention"], [1], [0] * 3, {"rope_type": "default", "rope_theta": 1e4},
                                   {"full_attention": {"rope_type": "yarn", "factor": 4.0}, "sliding_attention": {"rope_theta": 1e4}},
                                   {"quant_method": draw.choice(["fp8", "gptq", "awq", "compressed-tensors", 5])}, *VALUES])
    if draw.random() < 0.2:
        config = {"model_type": config["model_type"], "text_config": config}
    with open(path, "wb") as file:
        file.write(json.dumps(config).encode())
    return any_use(draw, world)


def class_ladder(draw, world):
    """Tables with an entry for each of several lengths."""
    name = draw.choice(["ladder.h5", "ladder.json", "ladder.json", "near_table.h5"])
    change(draw, f"{world}/{name}")
    table, out = f"{world}/{name}", world + "/out/o"
    return draw.choice([["dpe-export", table, "--show"], ["dpe-export", table, "-o", out + draw.choice([".h5", ".json", ".yaml"])],
                        ["dpe-export", "--join", table, world + "/far_table.h5", "-o", out + ".h5"],
                        ["dpe-run", "-m", world + "/model", "--table", table, "-p", "The fox", "-n", draw.choice(["2", "100", "150", "400"])],
                        ["dpe-run", "-m", world + "/model", "--table", table, "--show-plan", "--length", draw.choice(["64", "100", "192", "9999"])],
                        compare(world, out + ".h5", "--table", table)])


def change_lines(draw, path):
    """As change, but mostly one JSON object of a file of lines."""
    with open(path, "rb") as file:
        lines = file.read().splitlines()
    if draw.random() < 0.3 or not lines:
        change(draw, path)
        return
    at = draw.randrange(len(lines))
    lines[at] = changed_json(draw, lines[at])
    with open(path, "wb") as file:
        file.write(b"\n".join(lines) + draw.choice([b"\n", b"", b"\r\n", b"\0"]))


def class_benchmark(draw, world):
    """Samples, questions, answers and templates of benchmarks."""
    out = world + "/out/o.h5"
    answers = world + "/answers/rope-512/vt.jsonl"
    what = draw.randrange(5)
    skip = draw.choice([[], ["--skip-bad"]])
    if what == 0:
        change_lines(draw, answers)
        return ["dpe-eval", "score", "--suite", draw.choice(["ruler", "ruler", "niah", "infinitebench"]), "--predictions",
                draw.choice([answers, world + "/answers/rope-512"]), *draw.choice([[], ["--task", "vt"]]), *skip]
    if what == 1:
        change_lines(draw, world + "/data/vt/validation.jsonl")
        return answer(world, "ruler", "--tasks", "vt", "--data", world + "/data", "-o", out, *skip)
    if what == 2:
        name, task, option = draw.choice([("squad.json", "qa_1", "--squad"), ("hotpot.json", "qa_2", "--hotpotqa")])
        change(draw, f"{world}/{name}")
        return answer(world, "ruler", "--tasks", task, option, f"{world}/{name}", "-o", out)
    if what == 3:
        change_lines(draw, world + "/infinite/passkey.jsonl")
        return answer(world, "infinitebench", "--tasks", "passkey", "--data", world + "/infinite", "-o", out, *skip)
    change(draw, world + "/template.txt")
    return answer(world, *draw.choice([["niah"], ["ruler", "--tasks", "vt"]]), "--chat-template", world + "/template.txt", "-o", out)


OPTIONS = {}  # by command: (name, takes a value)
TOOLS = [["dpe-run"], ["dpe-ask"], ["dpe-detect"], ["dpe-norms"], ["dpe-export"], ["dpe-report"], ["dpe-bench"], ["dpe-calibrate"],
         *[["dpe-eval", name] for name in
           ("niah", "ppl", "ruler", "compare", "ablate", "tune", "score", "data", "infinitebench")]]


def read_options(bin_folder):
    """The options that --help of every tool shows, with whether they take a value."""
    for words in TOOLS:
        text = subprocess.run([os.path.join(bin_folder, words[0]), *words[1:], "--help=all"], capture_output=True,
                              check=True, env=dict(os.environ, COLUMNS="200")).stdout.decode()
        found = re.findall(r"^\s+(?:-\w, )?(--[a-z-]+)(\[?=)?", text, re.M)
        OPTIONS[" ".join(words)] = sorted({(name, bool(value)) for name, value in found
                                           if name not in ("--device", "--force")})


def class_options(draw, world):
    words = draw.choice(TOOLS)
    known = OPTIONS[" ".join(words)]
    base = {"--model": world + "/model", "--corpus": world + "/corpus", "--output": world + "/out/o.h5", "--length": "128",
            "--shape": world + "/model", "--prompt": "The fox", "--method": "rope", "--suite": "niah", "--samples": "1",
            "--threads": "1", "--time-budget": "3", "--max-memory": "1500M", "--window": "8", "--top-k": "4"}
    numbers = ["0", "-1", "1", "2", "7", "0x10", "1e2", "1e-400", "0.5", "1.5", "nan", "inf", "", " 1", "99999999999999999999",
               "4294967296", "2147483648", "1K", "3,5", "8,32,64", "64,64", ",", "auto", "both", "ppl", "niah", "shared=2", "rope:x=1",
               "self-extend:window=0x10", "keys=2,values=9999", "json", "text", "literal", "h5", "rank", "30m"]
    paths = [world, world + "/table.h5", world + "/table.json", world + "/detect.h5", world + "/norms.h5", "/dev/null", "/nowhere/x",
             world + "/template.txt", world + "/out/x.html", world + "/out/x.json", "x" * 5000, b"\xff\xfe", "\x1b[2J", "-", "--", world + "/model"]
    if draw.random() < 0.9:
        base["--shape"] = "nosuch"
    command = list(words)
    if words[0] in ("dpe-export", "dpe-report"):
        command += draw.sample([world + "/table.h5", world + "/detect.h5", world + "/norms.h5", world + "/eval.h5"], draw.choice([0, 1, 1, 2]))
        base["--output"] = world + "/out/o" + draw.choice([".h5", ".json", ".yaml", ".csv", ".html"])
        base.pop("--length" if words[0] == "dpe-export" else "--samples")
    for name, value in known:
        usual = name in base and draw.random() < 0.9
        if not usual and draw.random() > 0.12:
            continue
        command.append(name)
        if value:
            command.append(base[name] if usual else draw.choice(numbers + paths))
    if draw.random() < 0.1:
        command.insert(draw.randrange(1, len(command) + 1), draw.choice(["x", "", "-", "--nosuch", "--", "-z", "--help", "--version", "--usage"]))
    return command


def class_environment(draw, world):
    """The surroundings are hostile, the command is good (`around` applies them)."""
    return any_use(draw, world)


try:
    import h5py  # python3-h5py, for the classes pointing and bomb
    import numpy as np
except ImportError:
    del class_pointing, class_bomb

CLASSES = {name[6:]: made for name, made in sorted(globals().items()) if name.startswith("class_")}
