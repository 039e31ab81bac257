"""The instructions of PTX for numbers, comparison, conversion, memory, and other threads of the warp and block."""
import numpy as np

from ptx_machine import LANES, SHARED_WINDOW, TYPES, Wrong, f2, f4, f8, i8, instruction, only, u1, u2, u4, u8
from ptx_read import Symbol, Unreadable


def of_one_type(t, ins, kind, function):
    """d = function(operands), all of one type."""
    put = t.target(ins.operands[0], kind)
    sources = [t.source(o, kind) for o in ins.operands[1:]]
    if len(sources) == 1:
        a, = sources
        return lambda w, m: put(w, function(a(w)), m)
    if len(sources) == 2:
        a, b = sources
        return lambda w, m: put(w, function(a(w), b(w)), m)
    return lambda w, m: put(w, function(*[s(w) for s in sources]), m)


# ------------------------------------------------------------------------------------------- arithmetic

def divide(a, b):
    """Towards zero; what division by zero gives is not said."""
    safe = np.where(b == 0, 1, b).astype(a.dtype)
    if a.dtype.kind == "u":
        return a // safe
    quotient = np.abs(a) // np.abs(safe)
    return np.where((a < 0) != (safe < 0), -quotient, quotient).astype(a.dtype)


def high_product(a, b):
    if a.itemsize == 8:
        return np.array([int(x) * int(y) >> 64 & (1 << 64) - 1 for x, y in zip(a, b)], u8).view(a.dtype)
    wide = np.dtype(f"{a.dtype.kind}{2 * a.itemsize}")
    return (a.astype(wide) * b.astype(wide) >> 8 * a.itemsize).astype(a.dtype)


def wide_product(a, b):
    wide = np.dtype(f"{a.dtype.kind}{2 * a.itemsize}")
    return a.astype(wide) * b.astype(wide)


def fused(a, b, c):
    """One rounding: the product of two floats is exact in double."""
    return (a.astype(f8) * b.astype(f8) + c.astype(f8)).astype(a.dtype)


def directed(function, mode):
    """The same rounded towards zero (rz) or down (rm), of floats by way of doubles."""
    def apply(*operands):
        exact = function(*[o.astype(f8) for o in operands])
        near = exact.astype(f4)
        past = np.abs(near.astype(f8)) > np.abs(exact) if mode == "rz" else near.astype(f8) > exact
        return np.where(past, np.nextafter(near, f4.type(0) if mode == "rz" else f4.type(-np.inf)), near)
    return apply


WHOLE = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "min": np.minimum, "max": np.maximum, "div": divide,
         "rem": lambda a, b: a - divide(a, b) * b, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
         "xor": lambda a, b: a ^ b, "not": lambda a: ~a, "neg": lambda a: -a, "abs": np.abs}
FLOATS = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
          "min": np.fmin, "max": np.fmax, "neg": lambda a: -a, "abs": np.abs, "fma": fused, "sqrt": np.sqrt,
          "rcp": lambda a: (1 / a).astype(a.dtype), "copysign": lambda a, b: np.copysign(b, a),
          "rsqrt": lambda a: (1 / np.sqrt(a)).astype(a.dtype), "lg2": np.log2, "tanh": np.tanh, "sin": np.sin, "cos": np.cos}
# Of what is approximate the exact value rounded is one of those that are allowed.
ROUNDINGS = {"add": ("rn",), "sub": ("rn",), "mul": ("rn",), "fma": ("rn",), "div": ("rn", "full"), "sqrt": ("rn",),
             "rcp": ("rn", "approx", "ftz"), "rsqrt": ("approx", "ftz"), "lg2": ("approx", "ftz"), "neg": ("ftz",),
             "abs": ("ftz",), "tanh": ("approx",), "sin": ("approx", "ftz"), "cos": ("approx", "ftz")}


@instruction("add", "sub", "min", "max", "div", "rem", "and", "or", "xor", "not", "neg", "abs", "fma", "sqrt", "rcp", "rsqrt",
             "lg2", "tanh", "sin", "cos", "copysign")
def arithmetic(t, ins, mods):
    name, kind = ins.opcode.split(".")[0], mods[-1]
    if mods in (["rz", "f32"], ["rm", "f32"]):
        return of_one_type(t, ins, kind, directed({"add": FLOATS["add"], "fma": lambda a, b, c: a * b + c}[name], mods[0]))
    if kind in ("f32", "f64"):
        only(mods[:-1], *ROUNDINGS.get(name, ()))
        return of_one_type(t, ins, kind, FLOATS[name])
    only(mods[:-1])
    return of_one_type(t, ins, kind, WHOLE[name])


@instruction("mul", "mad")
def products(t, ins, mods):
    name, kind = ins.opcode.split(".")[0], mods[-1]
    if kind in ("f32", "f64"):
        only(mods[:-1], "rn")
        return of_one_type(t, ins, kind, FLOATS["mul"] if name == "mul" else fused)
    only(mods[:-1], "lo", "hi", "wide")
    function = {"lo": lambda a, b: a * b, "hi": high_product, "wide": wide_product}[mods[0]]
    to = f"{kind[0]}{int(kind[1:]) * 2}" if mods[0] == "wide" else kind
    put, a, b = t.target(ins.operands[0], to), t.source(ins.operands[1], kind), t.source(ins.operands[2], kind)
    if name == "mul":
        return lambda w, m: put(w, function(a(w), b(w)), m)
    c = t.source(ins.operands[3], to)
    return lambda w, m: put(w, function(a(w), b(w)) + c(w), m)


@instruction("ex2")
def ex2(t, ins, mods):
    only(mods, "approx", "ftz", "f32")

    def power(a):
        y = np.exp2(a.astype(f8)).astype(f4)
        return np.where(np.abs(y) < f4.type(2.0 ** -126), f4.type(0), y) if "ftz" in mods else y
    return of_one_type(t, ins, "f32", power)


@instruction("shl", "shr")
def shifts(t, ins, mods):
    only(mods, "b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64")
    kind = mods[0]
    put, a, by = t.target(ins.operands[0], kind), t.source(ins.operands[1], kind), t.source(ins.operands[2], "u32")
    most = TYPES[kind].itemsize * 8

    def shift(x, n):
        n = np.minimum(n, most)  # "shift amounts greater than the register width N are clamped to N"
        some = np.minimum(n, most - 1).astype(x.dtype)
        if x.dtype.kind == "i":
            return x >> some
        moved = x << some if ins.opcode.startswith("shl") else x >> some
        return np.where(n == most, x.dtype.type(0), moved)
    return lambda w, m: put(w, shift(a(w), by(w)), m)


@instruction("shf")
def funnel(t, ins, mods):
    only(mods, "l", "r", "wrap", "clamp", "b32")
    put = t.target(ins.operands[0], "b32")
    low, high, by = (t.source(o, "b32") for o in ins.operands[1:])
    clamp, left = "clamp" in mods, "l" in mods

    def shift(w):
        n = (np.minimum(by(w), 32) if clamp else by(w) & 31).astype(u8)
        both = high(w).astype(u8) << u8.type(32) | low(w).astype(u8)
        # Of 64 bits: the upper word after a shift to the left, the lower one after one to the right.
        return ((both << n) >> u8.type(32) if left else both >> n).astype(u4)
    return lambda w, m: put(w, shift(w), m)


@instruction("lop3")
def lop3(t, ins, mods):
    only(mods, "b32")
    table = ins.operands[4]

    def look_up(a, b, c, _):
        out = np.zeros(32, u4)
        for i in range(8):
            if table >> i & 1:  # the table's bit of (a, b, c) = 4, 2, 1
                out |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
        return out
    return of_one_type(t, ins, "b32", look_up)


@instruction("bfe")
def bfe(t, ins, mods):
    only(mods, "u32", "s32")
    kind = mods[0]
    put, a = t.target(ins.operands[0], kind), t.source(ins.operands[1], kind)
    at, n = t.source(ins.operands[2], "u32"), t.source(ins.operands[3], "u32")

    def extract(x, first, length):
        first, length = (first & 255).astype(i8), (length & 255).astype(i8)
        x = x.astype(i8)
        kept = (x >> np.minimum(first, 63)) & ((1 << np.minimum(length, 32)) - 1)
        sign = (x >> np.minimum(np.minimum(first + length - 1, 31), 63)) & 1
        if kind == "s32":
            kept = np.where((length > 0) & (sign == 1), kept | -1 << np.minimum(length, 32), kept)
        return np.where(length == 0, 0, kept).astype(u8).astype(u4).view(TYPES[kind])
    return lambda w, m: put(w, extract(a(w), at(w), n(w)), m)


@instruction("bfi")
def bfi(t, ins, mods):
    only(mods, "b32")

    def insert(a, b, at, n):
        at, n = (at & 255).astype(u8), (n & 255).astype(u8)
        mask = ((u8.type(1) << np.minimum(n, 32)) - u8.type(1)) << np.minimum(at, 32)
        return (b & ~mask.astype(u4) | (a.astype(u8) << np.minimum(at, 32)).astype(u4) & mask.astype(u4))
    return of_one_type(t, ins, "b32", insert)


@instruction("popc", "clz", "brev", "bfind")
def bits_of_words(t, ins, mods):
    name = ins.opcode.split(".")[0]
    only(mods, "b32", "u32", "b64", "u64")
    kind = mods[-1]
    n = TYPES[kind].itemsize * 8
    put = t.target(ins.operands[0], kind if name == "brev" else "u32")
    a = t.source(ins.operands[1], kind)
    one = {"popc": lambda x: bin(x).count("1"), "clz": lambda x: n - x.bit_length(), "brev": lambda x: int(f"{x:0{n}b}"[::-1], 2),
           "bfind": lambda x: (x.bit_length() - 1) & 0xffffffff}[name]
    to = TYPES[kind] if name == "brev" else u4
    return lambda w, m: put(w, np.array([one(int(x)) for x in a(w)], to), m)


@instruction("prmt")
def prmt(t, ins, mods):
    """Bytes of {b, a} by the four nibbles of c; a nibble's top bit repeats the byte's sign."""
    only(mods, "b32")

    def permute(a, b, c):
        pool = np.stack([a, b], 1).astype("<u4").view(u1).reshape(32, 8)
        out = np.zeros((32, 4), u1)
        for i in range(4):
            nibble = (c >> u4.type(4 * i)) & u4.type(15)
            byte = pool[LANES, nibble & 7]
            out[:, i] = np.where(nibble & 8, np.where(byte & 0x80, 0xff, 0), byte)
        return out.view("<u4").reshape(32).astype(u4)
    return of_one_type(t, ins, "b32", permute)


# ---------------------------------------------------------------------------------- comparison, selection

COMPARE = {"eq": lambda a, b: a == b, "ne": lambda a, b: (a < b) | (a > b) if a.dtype.kind == "f" else a != b,
           "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
           "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b, "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b,
           "equ": lambda a, b: ~((a < b) | (a > b)), "neu": lambda a, b: a != b, "ltu": lambda a, b: ~(a >= b),
           "leu": lambda a, b: ~(a > b), "gtu": lambda a, b: ~(a <= b), "geu": lambda a, b: ~(a < b),
           "num": lambda a, b: (a == a) & (b == b), "nan": lambda a, b: (a != a) | (b != b)}
TOGETHER = {"and": lambda p, q: p & q, "or": lambda p, q: p | q, "xor": lambda p, q: p ^ q}


@instruction("setp")
def setp(t, ins, mods):
    kind, compare = mods[-1], COMPARE[mods[0]]
    only(mods[1:-1], "and", "or", "xor")
    pair = ins.operands[0] if isinstance(ins.operands[0], tuple) else (ins.operands[0], Symbol("_"))
    p, q = (t.target(o, "pred") for o in pair)
    a, b = t.source(ins.operands[1], kind), t.source(ins.operands[2], kind)
    c = t.source(ins.operands[3], "pred") if len(mods) == 3 else lambda w: np.ones(32, bool)
    join = TOGETHER[mods[1] if len(mods) == 3 else "and"]

    def run(w, m):
        result, other = compare(a(w), b(w)), c(w)
        p(w, join(result, other), m)
        q(w, join(~result, other), m)
    return run


@instruction("selp")
def selp(t, ins, mods):
    kind, = mods
    put, a, b = t.target(ins.operands[0], kind), t.source(ins.operands[1], kind), t.source(ins.operands[2], kind)
    p = t.source(ins.operands[3], "pred")
    return lambda w, m: put(w, np.where(p(w), a(w), b(w)), m)


# ---------------------------------------------------------------------------------------------- conversion

def to_bf16(x):
    """Nearest even, by the bits; NaN becomes 7fff."""
    bits = x.view(u4)
    rounded = (bits + u4.type(0x7fff) + (bits >> u4.type(16) & u4.type(1))) >> u4.type(16)
    return np.where(np.isnan(x), 0x7fff, rounded).astype(u2)


def to_f16(x):
    return np.where(np.isnan(x), u2.type(0x7fff), x.astype(f2).view(u2))


def from_bf16(bits):
    return (bits.astype(u4) << u4.type(16)).view(f4)


HALVES = {"bf16": to_bf16, "f16": to_f16}


def to_whole(x, rounding, t):
    """Saturates; NaN becomes 0."""
    x = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}[rounding](x.astype(f8))
    info = np.iinfo(t)
    inside = np.where(np.isnan(x) | (x < float(info.min)) | (x >= float(info.max)), 0, x).astype(t)
    return np.where(x >= float(info.max), t.type(info.max), np.where(x < float(info.min), t.type(info.min), inside))


@instruction("cvt")
def cvt(t, ins, mods):
    to, kind = mods[-2:]
    only(mods[:-2], "rn", "rzi", "rni", "rmi", "rpi", "ftz", "sat")
    if mods == ["sat", "f32", "f32"]:  # into [0, 1], NaN becomes 0
        return of_one_type(t, ins, "f32", lambda x: np.fmin(np.fmax(x, f4.type(0)), f4.type(1)))
    if "sat" in mods or (mods[:-2] == ["rn"] and to == kind):
        raise Unreadable(f"cvt {mods}")
    put, rounding = t.target(ins.operands[0], to), mods[0] if len(mods) > 2 else None
    if to in ("bf16x2", "f16x2"):  # "converted from a is stored in the upper half of d"
        half = HALVES[to[:-2]]
        a, b = (t.source(o, kind) for o in ins.operands[1:])
        return lambda w, m: put(w, half(a(w)).astype(u4) << u4.type(16) | half(b(w)), m)
    a, T = t.source(ins.operands[1], kind), TYPES[to]
    if to in HALVES and kind == "f32":
        return lambda w, m: put(w, HALVES[to](a(w)).view(T), m)
    if kind == "bf16":
        return lambda w, m: put(w, from_bf16(a(w)), m)
    if TYPES[kind].kind == "f" and T.kind in "ui":
        return lambda w, m: put(w, to_whole(a(w), rounding, T), m)
    if rounding in ("rzi", "rni", "rmi", "rpi"):
        whole = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}[rounding]
        return lambda w, m: put(w, whole(a(w)), m)
    return lambda w, m: put(w, a(w).astype(T), m)


@instruction("cvta")
def cvta(t, ins, mods):
    only(mods, "to", "shared", "global", "param", "u64")
    by = (SHARED_WINDOW if "shared" in mods else 0) * (-1 if "to" in mods else 1)
    put, a = t.target(ins.operands[0], "s64"), t.source(ins.operands[1], "s64")
    return lambda w, m: put(w, a(w) + i8.type(by), m)


@instruction("mov")
def mov(t, ins, mods):
    kind, = mods
    to, source = ins.operands
    if isinstance(to, tuple):  # the first element has the lowest bits
        each = f"b{TYPES[kind].itemsize * 8 // len(to)}"
        a, puts, T = t.source(source, kind), [t.target(o, each) for o in to], TYPES[each]

        def unpack(w, m):
            parts = a(w).astype(f"<u{TYPES[kind].itemsize}").view(T).reshape(32, len(puts))
            for i, put in enumerate(puts):
                put(w, parts[:, i].copy(), m)
        return unpack
    put = t.target(to, kind)
    if isinstance(source, tuple) and source[0] not in ("f32", "f64", "not"):
        each = f"b{TYPES[kind].itemsize * 8 // len(source)}"
        sources = [t.source(o, each) for o in source]
        return lambda w, m: put(w, np.stack([s(w) for s in sources], 1).view(TYPES[kind]).reshape(32), m)
    a = t.source(source, kind)
    return lambda w, m: put(w, a(w), m)


# -------------------------------------------------------------------------------------------------- memory

SPACES = ("shared", "shared::cta", "global", "param", "const")
HINTS = ("volatile", "relaxed", "acquire", "release", "weak", "gpu", "sys", "cta", "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt",
         "L1::no_allocate", "L2::128B", "b8", "b16", "b32", "b64", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f32",
         "f64", "v2", "v4")


def access(t, ins, mods, memory, value):
    only(mods, *SPACES, *HINTS)
    space = next((m.split("::")[0] for m in mods if m in SPACES), "generic")
    kind = mods[-1]
    parts = value if isinstance(value, tuple) and value[0] not in ("f32", "f64") else (value,)
    if len(parts) != int(next((m[1] for m in mods if m in ("v2", "v4")), 1)):
        raise Unreadable("elements of a vector")
    return space, kind, parts, t.address(memory)


@instruction("ld")
def ld(t, ins, mods):
    space, kind, parts, address = access(t, ins, mods, ins.operands[1], ins.operands[0])
    T, n = TYPES[kind], len(parts)
    puts, bits = [t.target(p, kind) for p in parts], np.dtype(f"u{T.itemsize}")

    def run(w, m):
        region, at = w.region(space, address(w) if m is None else address(w)[m])
        index = region.index(at, T.itemsize, T.itemsize * n)
        if n > 1:
            region.index(at, T.itemsize * n)
        view = region.views[T.itemsize]
        for i, put in enumerate(puts):
            got = view[index + i] if i else view[index]
            if m is not None:
                lanes = np.zeros(32, bits)
                lanes[m] = got
                got = lanes
            put(w, got.view(T), m)
    return run


@instruction("st")
def st(t, ins, mods):
    space, kind, parts, address = access(t, ins, mods, ins.operands[0], ins.operands[1])
    T, n = TYPES[kind], len(parts)
    sources, bits = [t.source(p, kind) for p in parts], np.dtype(f"u{T.itemsize}")

    def run(w, m):
        region, at = w.region(space, address(w) if m is None else address(w)[m])
        if not region.writable:
            raise Wrong(f"a write to {region.name}")
        index = region.index(at, T.itemsize, T.itemsize * n)
        if n > 1:
            region.index(at, T.itemsize * n)
        for i, source in enumerate(sources):
            value = source(w).view(bits)
            region.views[T.itemsize][index + i] = value if m is None else value[m]
        if region is w.block.shared:
            w.block.unfenced[region.bytes_at(at, T.itemsize * n)] = True
    return run


@instruction("atom", "red")
def atomics(t, ins, mods):
    only(mods, "global", "shared", "shared::cta", "relaxed", "acq_rel", "gpu", "cta", "add", "min", "max", "exch", "or", "and",
         "u32", "s32", "u64", "s64", "b32", "b64", "f32")
    kind = mods[-1]
    space = next((m.split("::")[0] for m in mods if m in SPACES), "generic")
    name = next(m for m in mods if m in ("add", "min", "max", "exch", "or", "and"))
    function = {"add": lambda a, b: a + b, "min": min, "max": max, "exch": lambda a, b: b, "or": lambda a, b: a | b,
                "and": lambda a, b: a & b}[name]
    red = ins.opcode.startswith("red")
    put = t.target(Symbol("_") if red else ins.operands[0], kind)
    address, value, T = t.address(ins.operands[0 if red else 1]), t.source(ins.operands[1 if red else 2], kind), TYPES[kind]

    def run(w, m):
        lanes, old = LANES if m is None else np.flatnonzero(m), np.zeros(32, T)
        region, at = w.region(space, address(w)[lanes])
        view = region.views[T.itemsize].view(T)
        values = value(w)
        for lane, i in zip(lanes, region.index(at, T.itemsize)):
            old[lane] = view[i]
            view[i] = function(view[i], values[lane])
        put(w, old, m)
    return run


# --------------------------------------------------------------------------- other threads of the warp, block

def mask_of(lanes):
    return (int(lanes) >> LANES & 1).astype(bool)


def members(w, source, active):
    """The lanes of a membermask, or None as long as some of them are elsewhere."""
    mask = source(w)
    at = LANES if active is None else np.flatnonzero(active)
    if (mask[at] != mask[at[0]]).any():
        raise Wrong("lanes of one instruction have different member masks")
    there = mask_of(mask[at[0]]) & w.alive
    here = np.ones(32, bool) if active is None else active
    if (here & ~mask_of(mask[at[0]])).any():
        raise Wrong("a lane that is not in its member mask")
    return None if (there & ~here).any() else there


@instruction("shfl", kind="waits")
def shfl(t, ins, mods):
    only(mods, "sync", "up", "down", "bfly", "idx", "b32")
    pair = ins.operands[0] if isinstance(ins.operands[0], tuple) else (ins.operands[0], Symbol("_"))
    put, valid = t.target(pair[0], "b32"), t.target(pair[1], "pred")
    a, b, c, mask = (t.source(o, "b32") for o in ins.operands[1:])
    mode = mods[1]

    def run(w, m):
        there = members(w, mask, m)
        if there is None:
            return False
        by, clamp = (b(w) & 31).astype(int), c(w).astype(int)
        segment = clamp >> 8 & 31
        clamp = clamp & 31
        most, least = LANES & segment | clamp & ~segment & 31, LANES & segment
        lane = {"up": LANES - by, "down": LANES + by, "bfly": LANES ^ by, "idx": least | by & ~segment & 31}[mode]
        good = lane >= most if mode == "up" else lane <= most
        lane = np.where(good, lane, LANES) & 31
        # From a lane that takes no part the result is undefined: NaN.
        put(w, np.where(there[lane], a(w)[lane], u4.type(0xffffffff)), m)
        valid(w, good, m)
        return True
    return run


@instruction("vote", kind="waits")
def vote(t, ins, mods):
    only(mods, "sync", "any", "all", "uni", "ballot", "pred", "b32")
    put = t.target(ins.operands[0], mods[-1])
    p, mask = t.source(ins.operands[1], "pred"), t.source(ins.operands[2], "b32")

    def run(w, m):
        there = members(w, mask, m)
        if there is None:
            return False
        yes = p(w) & there
        every = not (there & ~yes).any()
        value = {"any": yes.any(), "all": every, "uni": every or not yes.any(),
                 "ballot": int((yes * (1 << LANES)).sum())}[mods[1]]
        put(w, np.full(32, value, TYPES[mods[-1]]), m)
        return True
    return run


@instruction("redux", kind="waits")
def redux(t, ins, mods):
    only(mods, "sync", "add", "min", "max", "and", "or", "u32", "s32", "b32")
    put, a, mask = t.target(ins.operands[0], mods[-1]), t.source(ins.operands[1], mods[-1]), t.source(ins.operands[2], "b32")
    T = TYPES[mods[-1]]
    function = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or}[mods[1]]

    def run(w, m):
        there = members(w, mask, m)
        if there is None:
            return False
        put(w, np.full(32, function.reduce(a(w)[there]), T), m)
        return True
    return run


@instruction("bar", "barrier", kind="waits")
def bar(t, ins, mods):
    if mods[0] == "warp":
        only(mods, "warp", "sync")
        mask = t.source(ins.operands[0], "b32")
        return lambda w, m: members(w, mask, m) is not None
    only(mods, "sync", "arrive", "aligned", "cta")
    number, threads = t.source(ins.operands[0], "u32"), t.source(ins.operands[1], "u32") if len(ins.operands) > 1 else None

    def run(w, m):
        if not w.together(m):
            return False
        if w.waits is None:
            barrier = w.block.barriers[int(number(w)[0])]
            w.waits = barrier, barrier.turn
            barrier.arrive("all" if threads is None else int(threads(w)[0]))
            barrier.complete(w.block.live())
        barrier, turn = w.waits
        if "arrive" in mods:
            w.waits = None
            return True
        if barrier.turn == turn:
            return False
        w.waits = None
        return True
    return run


@instruction("activemask")
def activemask(t, ins, mods):
    put = t.target(ins.operands[0], "b32")
    return lambda w, m: put(w, np.full(32, 0xffffffff if m is None else int((m * (1 << LANES)).sum()), u4), m)


@instruction("membar", "fence")
def fences(t, ins, mods):
    only(mods, "proxy", "async", "shared::cta", "mbarrier_init", "release", "cluster", "gl", "cta", "sys", "acq_rel", "sc", "gpu")

    def run(w, m):
        if mods[:2] == ["proxy", "async"]:
            w.block.unfenced[:] = False
    return run


@instruction("trap")
def trap(t, ins, mods):
    def run(w, m):
        raise Wrong("trap")
    return run
