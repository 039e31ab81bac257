"""summary.py PARTS [card]: the figures of decide.sh's parts on a card against what they shall reach on an H200, as a Markdown
table. Without `card` none of them ran on one."""
import json
import os
import re
import sys

parts = sys.argv[1]


def lines(name):
    try:
        with open(os.path.join(parts, name)) as file:
            return file.read().splitlines()
    except OSError:
        return []


def attention(kernel, method="rope"):
    """length → TFLOP/s, time over that of rope: the best of what ran as that kernel."""
    best = {}
    for line in lines(f"attention-{kernel}.txt"):
        found = re.match(r" *(\d+)  .{32} (.{46}) +[\d.]+ ms +([\d.]+) TFLOP/s +([\d.]+) of rope", line)
        if found and found[2].split(":")[0].strip() == method:
            best[int(found[1])] = max(best.get(int(found[1]), (0, 0)), (float(found[3]), float(found[4])))
    return best


def add(what, value, unit, reach):
    print(f"| {what} | {'not run' if value is None or len(sys.argv) < 3 else f'{value:.4g} {unit}'} | {reach} |")


def measured(name):
    for line in lines(name):
        try:
            yield json.loads(line)
        except ValueError:  # cut off, or a text that is not a number
            continue


rows = {}
steps = {}
for name in ("bench.jsonl", "bench-64k.jsonl", "questions-32K.jsonl", "questions-128K.jsonl"):
    for row in measured(name):
        steps[row["method"], row["length"], row["branches"]] = row["token_s"]
        if row["branches"] == 1:
            rows[row["method"], row["length"]] = row
peers = {}
for line in lines("peers.txt"):
    found = re.match(r"(\w+) (\d+): [\d.]+ ms ([\d.]+) TFLOP/s(.*heads of 256)?", line)
    if found:
        peers[found[1] + " 256" * bool(found[4]), int(found[2])] = float(found[3])
ours, mma, dpe = attention("wgmma"), attention("mma"), attention("wgmma", "dpe")
print("| what | measured | reach |\n|---|---|---|")
for length in (32768, 131072):
    for method in ("rope", "dpe"):
        one = steps.get((method, length, 1))
        add(f"8B, a step of 1 question, {method}, {length}", one and 1e3 * one, "ms", "")
        for count in (2, 4, 8, 16, 32, 64):
            many = steps.get((method, length, count))
            add(f"the same of {count} over it", many / one if many and one else None, "", "≤ 1.3" if count == 32 else "")
for row in [row for row in measured("twenty-plans.jsonl") if "beside" in row] or [{"beside": 20}]:
    read, together, in_turn = (row.get(name) for name in ("read_s", "step_s", "in_turn_s"))
    add(f"8B, a step of {row['beside']} plans, a context of 32768 each", together and 1e3 * together, "ms", "")
    add("the same, one plan after another, over it", in_turn and in_turn / together, "", "> 1")
    add("contexts of 32768 of all plans with answers of 64 tokens, over reading them", read and (read + 64 * together) / read, "", "≤ 2")
for length, reach in ((16384, 560), (131072, 600)):
    rate = ours.get(length, (None,))[0]
    add(f"attention, bf16, d 128, causal, {length}", rate, "TFLOP/s", f"≥ {reach}")
    for peer, name, least in (("CUDNN_ATTENTION", "cuDNN's", "≥ 0.92"), ("FLASH_ATTENTION", "PyTorch's flash", "")):
        other = peers.get((peer, length))
        add(f"the same over {name}, {length}", rate / other if rate and other else None, "", least)
    add(f"mma.sync, {length}", mma.get(length, (None,))[0], "TFLOP/s", "≥ 320")
wide, other = attention("256").get(16384, (None,))[0], peers.get(("CUDNN_ATTENTION 256", 16384))
add("mma.sync, d 256, 16384", attention("256-mma").get(16384, (None,))[0], "TFLOP/s", "≤ 380")
add("attention, bf16, d 256, causal, 16384", wide, "TFLOP/s", "≥ 560")
add("the same over cuDNN's, 16384", wide / other if wide and other else None, "", "≥ 0.8 asked")
for length, reach in ((16384, 1.035), (131072, 1.02)):
    add(f"dpe / rope, pre-rotated, {length}", dpe.get(length, (None, None))[1], "", f"≤ {reach}")


def of(method, length, field):
    return rows[method, length][field] if (method, length) in rows else None


def ratio(length, field):
    a, b = of("dpe", length, field), of("rope", length, field)
    return a / b if a and b else None


for length, reach in ((8192, "≤ 1.08"), (32768, ""), (131072, "≤ 1.015")):
    add(f"dpe / rope, rotation included, {length}", ratio(length, "attention_s"), "", reach)
for length, reach in ((8192, 0.21), (32768, 1.15), (131072, 10.3)):
    add(f"8B prefill, {length}", of("rope", length, "prefill_s"), "s", f"≤ {reach}")
# Tokens a second of an 8B model's prefill: ours as measured on an H200, which an H100 should reach too (products and
# attention are bound by arithmetic, which is the same), and Jet-Long's fused kernel on an H100 (arXiv 2607.07740).
for length, ours_then, theirs in ((32768, 28900, 17837), (65536, 21000, 15605), (131072, 13600, 10339)):
    for method in ("rope", "dpe"):
        seconds = of(method, length, "prefill_s")
        add(f"8B prefill, {method}, {length}", seconds and length / seconds, "tokens/s", f"{ours_then}; Jet-Long {theirs}")


def step(version):
    """method, and questions where there are several → seconds of a token of the part step-VERSION.jsonl."""
    found = {}
    for line in lines(f"step-{version}.jsonl"):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        found[row["method"] + (f", {row['branches']} questions" if row["branches"] > 1 else "")] = row["token_s"]
    return found


for what, today, other in (("8B at 32768", "today", "launches"), ("bundled model at 1024", "small-today", "small-launches")):
    for method, time in step(today).items():
        launches = step(other).get(method)
        add(f"a step of the {what}, {method}", 1e3 * time, "ms", "")
        add("the same launch by launch, over it", launches and launches / time, "", "> 1, or graphs cost more than they save")
for name in sorted(os.listdir(parts)):
    if name.startswith("search-") and name.endswith(".done"):
        code, seconds, _ = lines(name)[0].split(" ", 2)
        add(f"16 texts of a search, {name[7:-5]}", int(seconds) if code == "0" else None, "s",
            "≤ 10 asked" if "smollm2" in name.lower() else "")
token, floor, memory = (of("rope", 131072, field) for field in ("token_s", "token_floor_s", "memory_bytes"))
add("8B decode at 131072", token and 1e3 * token, "ms", "≤ 8.4")
add("the same over bytes / bandwidth", token and token / floor, "", "≤ 1.12")
add("dpe / rope, decode at 131072", ratio(131072, "token_s"), "", "≤ 1.05")
add("8B at 131072, memory", memory and memory / 2**30, "GiB", "≤ 42 GB (39.1 GiB)")
