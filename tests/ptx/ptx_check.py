"""ptx_check.py NVCC ROOT CALLS GROUP ARCHITECTURE [faults]: compiles the kernels of a group to PTX, interprets the launches that
CALLS (ptx_calls.c) writes for it, and compares with NumPy. Prints what was interpreted. With faults it then plants faults into
the text, each of which has to be found. Exit status 1 where something is wrong, 125 without NumPy."""
import copy
import os
import re
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
except ImportError:
    sys.exit(125)

import ptx_matrix  # noqa: F401 (its instructions)
from ptx_instructions import from_bf16, to_bf16
from ptx_machine import Machine, Memory, Region, Translator, Wrong
from ptx_faults import FAULTS, MAP_FAULTS, change, change_maps
from ptx_read import Unreadable, kernel_texts, plain_name, read_kernel, shared_variables, without_comments

SOURCES = {"mma": "prefill/attention_mma", "wgmma": "prefill/attention_wgmma", "decode": "kernels/attention_decode",
           "products": "kernels/product_few", "small": "kernels/kernels",
           "rotate": "kernels/rotate", "recur": "kernels/recur"}
FAULTY = {"mma": "attention_mma", "wgmma": "attention_wgmma", "decode": "6decode"}  # the kernel that faults are planted into
GUARD = 64  # elements around results that nothing may write

# ----------------------------------------------------------------------------------------- what is called


class Case:
    def __init__(self, title):
        self.title, self.numbers, self.regions, self.launches = title, {}, {}, []

    def __getattr__(self, name):
        if name not in self.__dict__.get("numbers", {}):
            raise AttributeError(name)
        return self.numbers[name]


def read_cases(path):
    cases = []
    with open(path, "rb") as file:
        for line in iter(file.readline, b""):
            word, _, rest = line.decode().strip().partition(" ")
            if word == "case":
                case = Case(rest)
                cases.append(case)
            elif word == "number":
                name, value = rest.split()
                case.numbers[name] = int(float(value))
            elif word == "region":
                name, address, size, writable = rest.split()
                case.regions[name] = (int(address), file.read(int(size)), writable == "1")
            elif word == "launch":
                name, *numbers = rest.split()
                numbers = [int(n) for n in numbers]
                arguments = [file.read(int(file.readline().split()[1])) for _ in range(numbers[7])]
                case.launches.append((plain_name(name), tuple(numbers[:3]), tuple(numbers[3:6]), numbers[6], arguments))
    return cases


def floats(data, bf16):
    return (from_bf16(np.frombuffer(data, "<u2")) if bf16 else np.frombuffer(data, "<f2")).astype(float)


def rounded(x, bf16):
    return from_bf16(to_bf16(x.astype("f4"))).astype(float) if bf16 else x.astype("f2").astype(float)


# -------------------------------------------------------------------------------------- what it should be

def attention(case, keys_of):
    """Outputs and log-sum-exps of the plain formula in double, Σ p |v|, and by how much logits move where each product of a
    query's element and a key's is off by one part: Σ p factor √Σ q² k². keys_of(band, head): [keys][head_dim]."""
    d, heads, rows, n = case.head_dim, case.heads, case.rows, case.keys
    bands = np.frombuffer(case.regions["bands"][1], np.int8).reshape(rows, n)
    factor = np.frombuffer(case.regions["factor"][1], float)
    v = floats(case.regions["v"][1], case.bf16).reshape(case.kv_heads, case.capacity, d)[:, :n]
    out, size, lse = np.zeros((rows, heads, d)), np.zeros((rows, heads, d)), np.full((rows, heads), -np.inf)
    moves = np.zeros((rows, heads))
    for h in range(heads):
        logits, off = np.full((rows, n), -np.inf), np.zeros((rows, n))
        for b in range(case.n_bands):
            q = floats(case.regions[f"q{case.numbers[f'band{b}_q']}"][1], case.bf16).reshape(heads, rows, d)[h]
            k = keys_of(b, h)
            logits = np.where(bands == b, factor[:, None] * (q @ k.T), logits)
            off = np.where(bands == b, factor[:, None] * np.sqrt(q ** 2 @ k.T ** 2), off)
        if case.cap > 0:
            logits = np.where(np.isfinite(logits), case.cap * np.tanh(logits / case.cap), logits)
        some = np.isfinite(logits).any(axis=1)
        top = np.where(some, logits.max(axis=1), 0.0)
        p = np.exp(logits - top[:, None])
        total = p.sum(axis=1)
        p[some] /= total[some, None]
        lse[some, h] = top[some] + np.log(total[some])
        mine = v[h // (heads // case.kv_heads)]
        out[:, h], size[:, h], moves[:, h] = p @ mine, p @ np.abs(mine), (p * off).sum(axis=1)
    return out, lse, size, moves


def prefill_keys(case):
    def keys(b, h):
        copy, per_head = case.numbers[f"band{b}_k"], case.numbers[f"band{b}_per_head"]
        k = floats(case.regions[f"k{copy}"][1], case.bf16).reshape(-1, case.capacity, case.head_dim)
        return np.nan_to_num(k[h if per_head else h // (case.heads // case.kv_heads), :case.keys])
    return keys


def decode_keys(case):
    def keys(b, h):
        k = np.frombuffer(case.regions[f"keys{b}"][1], float).reshape(case.heads, case.keys, case.head_dim)[h]
        return rounded(k, case.bf16)
    return keys


def within(what, got, want, bound):
    """Nothing, or what is wrong, in words."""
    with np.errstate(invalid="ignore"):
        off = np.abs(got - want)
    off[(got == want)] = 0
    bad = ~(off <= bound)
    if not bad.any():
        return None, float((off / bound).max())
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(off), np.inf, off / bound))), off.shape)
    return (f"{what}: {int(bad.sum())} of {bad.size} are wrong, most at {tuple(int(i) for i in at)}: expected {want[at]:.6g} "
            f"within {bound[at]:.2g}, found {got[at]:.6g}"), np.inf


def guarded(memory, name, size):
    """The elements between the guards of a result, which must be as they were."""
    data = memory[name]
    if not ((data[:GUARD * size] == 0xff).all() and (data[-GUARD * size:] == 0xff).all()):
        raise Wrong(f"{name}: what lies around it was written")
    return data[GUARD * size:-GUARD * size]


def check_attention(case, memory):
    unit = 2.0 ** (-8 if case.bf16 else -11)  # of one rounding, relative
    decodes = "cache" in case.regions
    want, lse, size, moves = attention(case, decode_keys(case) if decodes else prefill_keys(case))
    got = floats(guarded(memory, "out", 2).tobytes(), case.bf16).reshape(want.shape)
    got_lse = guarded(memory, "lse", 4).view("<f4").astype(float).reshape(lse.shape)
    # Weights are rounded once, results once. Keys of a decoding are rounded before and after they are rotated, by a table in
    # half precision.
    bound = unit * size + unit * np.abs(want) + 1e-4
    lse_bound = np.full(lse.shape, 1e-4)
    if decodes:
        bound, lse_bound = bound + unit * moves[..., None] * size, lse_bound + unit * moves
    wrong, worst = within("out", got, want, bound)
    wrong_lse, _ = within("log-sum-exp", got_lse, lse, lse_bound)
    return wrong or wrong_lse, worst


def check_products(case, memory):
    read = (lambda data: np.frombuffer(data, "<f4").astype(float)) if case.size == 4 else (lambda data: floats(data, case.bf16))
    x = read(case.regions["x"][1]).reshape(case.rows, case.k)
    sums, sizes = [], []
    for i in range(case.n_weights):
        w = read(case.regions[f"w{i}"][1]).reshape(case.numbers[f"n{i}"], case.k)
        bias = np.frombuffer(case.regions[f"bias{i}"][1], "<f4").astype(float)
        sums.append(x @ w.T + bias)
        sizes.append(np.abs(x) @ np.abs(w.T) + np.abs(bias))
    if case.gated:
        sums = [sums[0] / (1 + np.exp(-sums[0])) * sums[1]]
        sizes = [sizes[0] * np.abs(sums[0]) + sizes[1]]
    worst = 0
    for i, (want, size) in enumerate(zip(sums, sizes)):
        of = (lambda data: np.frombuffer(data, "<f4").astype(float)) if case.out_size == 4 else (lambda d: floats(d, case.bf16))
        before = of(case.regions[f"out{i}"][1]).reshape(want.shape)
        want = want + (before if case.accumulate else 0)
        unit = 0 if case.out_size == 4 else 2.0 ** (-8 if case.bf16 else -11)
        wrong, off = within(f"out{i}", of(memory[f"out{i}"].tobytes()).reshape(want.shape), want,
                            unit * np.abs(want) + 2.0 ** -20 * size + 1e-6)
        worst = max(worst, off)
        if wrong:
            return wrong, worst
    return None, worst


def check_rotation(case, memory):
    got = floats(memory["to"].tobytes(), case.bf16).reshape(case.copies, -1)
    want = np.stack([floats(case.regions[f"q{i}"][1], case.bf16) for i in range(case.copies)])
    # [row][head] or [head][row]: q is as attention reads it. A float that rounds otherwise moves by a unit.
    return within("to", got, want, np.abs(want) * 2.0 ** (-7 if case.bf16 else -10) + 1e-5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# What a small kernel makes of a and b.
SMALL = {"rmsnorm": lambda a, b: a / np.sqrt(np.mean(a * a, axis=1, keepdims=True) + 1e-5) * b, "narrow": lambda a, b: a,
         "swiglu": lambda a, b: a * sigmoid(a) * b,
         "geglu": lambda a, b: 0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a ** 3))) * b,
         "clamped": lambda a, b: np.minimum(a, 7) * sigmoid(1.702 * np.minimum(a, 7)) * (np.clip(b, -7, 7) + 1)}


def check_small(case, memory):
    def read(data, single):
        return np.frombuffer(data, "<f4").astype(float) if single else floats(data, case.bf16)
    what = next(name for name in SMALL if name in case.numbers)
    single, shape = "a" in case.regions or case.size == 4, (case.rows, case.width)
    a = read(case.regions["a" if "a" in case.regions else "to"][1], single).reshape(shape)
    b = read(case.regions["b"][1], single) if "b" in case.regions else None
    want = SMALL[what](a, b if what in ("rmsnorm", "narrow") else b.reshape(shape))
    unit = 2.0 ** -20 if case.size == 4 else 2.0 ** (-8 if case.bf16 else -11)
    return within("to", read(memory["to"].tobytes(), case.size == 4).reshape(shape), want, unit * np.abs(want) + 1e-5)


def delta_rule(case, x, tail, state):
    """Outputs and states of a layer with a state (engine/model/config/recurrent.h), token by token in double. Tail and state change."""
    def silu(a):
        return a / (1 + np.exp(-a))

    heads, keys, d, e = case.value_heads, case.key_heads, case.key_dim, case.value_dim
    weights = np.concatenate([x["conv_" + part].reshape(-1, case.width) for part in "qkv"])
    rows = np.concatenate([x[part].reshape(case.rows, -1) for part in "qkv"], axis=1)
    made = np.zeros((case.rows, heads, e))
    for r in range(case.rows):
        window = np.concatenate([tail, rows[r:r + 1]])
        tail[:] = window[1:]
        mixed = silu((window.T * weights).sum(1))
        q, k, v = (part.reshape(-1, size) for part, size in zip(np.split(mixed, [keys * d, 2 * keys * d]), (d, d, e)))
        q, k = (part / np.sqrt((part ** 2).sum(1, keepdims=True) + 1e-6) for part in (q, k))
        for h in range(heads):
            of = h % keys if case.tiled else h // (heads // keys)
            decay = np.exp(x["rate"][h] * np.log1p(np.exp(x["decay"].reshape(-1, heads)[r, h] + x["step"][h])))
            beta = (2 if case.doubled else 1) / (1 + np.exp(-x["beta"].reshape(-1, heads)[r, h]))
            state[h] *= decay
            state[h] += np.outer(k[of], beta * (v[h] - state[h].T @ k[of]))
            o = state[h].T @ (q[of] / np.sqrt(d))
            made[r, h] = o / np.sqrt((o ** 2).mean() + 1e-6) * x["norm"] * silu(x["gate"].reshape(-1, heads, e)[r, h])
    return made


def check_recur(case, memory):
    single = ("rate", "step", "norm", "before")
    x = {name: np.frombuffer(data, "<f4").astype(float) if name in single or case.size == 4 else floats(data, case.bf16)
         for name, (_, data, _) in case.regions.items() if name not in ("workspace", "states")}
    channels = 2 * case.key_heads * case.key_dim + case.value_heads * case.value_dim
    rows = case.width - 1
    tail = x["before"][:rows * channels].reshape(rows, channels).copy()
    state = x["before"][rows * channels:].reshape(case.value_heads, case.key_dim, case.value_dim).copy()
    want = delta_rule(case, x, tail, state)
    data = memory["made"].tobytes()
    got = (np.frombuffer(data, "<f4").astype(float) if case.size == 4 else floats(data, case.bf16)).reshape(want.shape)
    # Products of halves have 16 bits of each float, others all of them; outputs are rounded once.
    unit = 2.0 ** -18 if case.size == 4 else 2.0 ** (-8 if case.bf16 else -11)
    wrong, worst = within("out", got, want, unit * np.abs(want) + (2.0 ** -16 if case.size == 4 else 2.0 ** -9))
    states = np.frombuffer(memory["states"].tobytes(), "<f4").astype(float)
    wrong_state, worst_state = within("state", states, np.concatenate([tail.ravel(), state.ravel()]),
                                      np.full(states.shape, (2.0 ** -17 if case.size == 4 else 2.0 ** -11) * np.abs(state).max()))
    return wrong or wrong_state, max(worst, worst_state)


def check(case, memory):
    if "recur" in case.numbers:
        return check_recur(case, memory)
    if any(name in case.numbers for name in SMALL):
        return check_small(case, memory)
    if "x" in case.regions:
        return check_products(case, memory)
    return check_rotation(case, memory) if "to" in case.regions else check_attention(case, memory)


# ----------------------------------------------------------------------------------------------- one run

class Program:
    """The PTX of a source: translates a kernel when it is launched."""

    def __init__(self, texts, shared):
        self.texts, self.shared, self.made = texts, shared, {}

    def kernel(self, name):
        if name not in self.made:
            if name not in self.texts:
                raise Wrong(f"no kernel {name} in the PTX")
            self.made[name] = Translator(read_kernel(self.texts[name]), self.shared).translate()
        return self.made[name]


def run_case(program, case, seed):
    """What is wrong, in words, or None; and the largest difference, of its bound."""
    memory, arrays = Memory(), {}
    for name, (address, data, writable) in case.regions.items():
        arrays[name] = np.frombuffer(data, np.uint8).copy()
        memory.add(Region(address, arrays[name], name, writable))
    machine = Machine(memory, program.kernel)
    try:
        for name, grid, block, shared, arguments in case.launches:
            machine.launch(name, grid, block, shared, arguments, seed)
        return check(case, arrays)
    except Wrong as e:
        return str(e), np.inf


def compile_ptx(nvcc, root, source, arch):
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "ptx")
        subprocess.run([nvcc, "-std=c++17", "-O3", "-I", root, f"-arch=compute_{arch}", "-ptx", "-o", path,
                        os.path.join(root, "engine/cuda", source + ".cu")], check=True)
        with open(path, encoding="utf-8") as file:
            return without_comments(file.read())


def calls(program, group):
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "calls")
        subprocess.run([program, path, group], check=True)
        return read_cases(path)


def check_cases(program, cases):
    wrong = 0
    for i, case in enumerate(cases):
        begin = time.monotonic()
        text, worst = run_case(program, case, i)
        print(f"{case.title}: " + (f"WRONG: {text}" if text else f"right, {worst:.2f} of its bound") +
              f" ({time.monotonic() - begin:.1f} s)", flush=True)
        wrong += text is not None
    return wrong


def say_kernels(program):
    ran, left = set(), set()
    for name, kernel in sorted(program.made.items()):
        for ins, seen in zip(kernel.code, kernel.visited):
            (ran if seen else left).add(ins.opcode)
        print(f"{name}: {sum(kernel.visited)} of {len(kernel.code)} instructions of its text ran")
    print(f"{len(ran)} kinds of instructions ran: {' '.join(sorted(ran))}")
    print(f"of these kernels' text no case runs: {' '.join(sorted(left - ran)) or 'none'}")


# ------------------------------------------------------------------------------------------ planted faults

def first_wrong(texts, shared, cases):
    """What one of the cases says of a program with a fault, under one of three orders of its warps."""
    for seed in range(3):
        for case in cases:
            try:
                wrong, _ = run_case(Program(texts, shared), case, seed)
            except Unreadable as e:
                wrong = str(e)
            if wrong:
                return wrong
    return None


def faults_of(group, program, cases):
    """(name, the kernels' texts, the cases) of each fault; those of a text are in the kernel that the cases ran."""
    texts, (kernel,) = program.texts, [k for name, k in program.made.items() if re.search(FAULTY[group], name)]
    for name, fault in FAULTS[group].items():
        yield name, {**texts, kernel.name: change(kernel, texts[kernel.name], *fault)}, cases
    for name, fault in MAP_FAULTS.get(group, {}).items():
        wrong = [copy.copy(case) for case in cases]
        for case in wrong:
            case.launches = [(*launch[:4], [change_maps(a, *fault) for a in launch[4]]) for launch in case.launches]
        yield name, texts, wrong


def plant(group, text, cases):
    program, n = Program(kernel_texts(text), shared_variables(text)), 0
    wrong = check_cases(program, cases)
    for name, changed, called in faults_of(group, program, cases):
        found = first_wrong(changed, program.shared, called)
        print(f"{name}: " + ("NOT FOUND" if found is None else "found: " + found.split("\n")[0]), flush=True)
        wrong += found is None
        n += 1
    print(f"{n} faults")
    return wrong


def main():
    nvcc, root, calls_program, group, arch, *faults = sys.argv[1:]
    text = compile_ptx(nvcc, root, SOURCES[group], arch)
    program = Program(kernel_texts(text), shared_variables(text))
    wrong = check_cases(program, calls(calls_program, group))
    say_kernels(program)
    if faults:
        wrong += plant(group, text, calls(calls_program, f"faults_{group}"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
