"""The instructions of matrices, of copies that run by themselves and of barriers in memory, from the words of the PTX manual:
"Matrix fragments for mma.m16n8k16", "ldmatrix", "Asynchronous warpgroup level matrix instructions" (fragments, canonical
layouts, matrix descriptor), "Tensor" (bounding box, swizzling modes), "mbarrier", "cp.async"."""
import struct

import numpy as np

from ptx_instructions import from_bf16
from ptx_machine import LANES, Wrong, f2, f4, i8, instruction, only, put_lanes, u1, u2, u4
from ptx_read import Unreadable

GROUP, OF_GROUP = LANES // 4, LANES % 4  # groupID and threadID_in_group of the manual


def halves(words, kind):
    """The two elements of each word as floats, the lower half first; one more axis."""
    bits = np.ascontiguousarray(words).astype("<u4").view(u2).reshape(*words.shape, 2)
    return from_bf16(bits) if kind == "bf16" else bits.view(f2).astype(f4)


def float_bits(x):
    return np.ascontiguousarray(x, f4).view(u4)


# ------------------------------------------------------------------------------------------- of one warp

def matrix_elements(transposed):
    """Rows and columns of the two elements of a matrix that each thread gets."""
    first, two = np.repeat(GROUP[:, None], 2, axis=1), 2 * OF_GROUP[:, None] + np.arange(2)
    return (two, first) if transposed else (first, two)


@instruction("ldmatrix", kind="waits")
def ldmatrix(t, ins, mods):
    """Threads 8i … 8i + 7 give the rows of matrix i; thread T gets of row T/4 the elements 2(T%4) and the next, or with .trans
    of column T/4."""
    only(mods, "sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16")
    n = int(next(m[1] for m in mods if m in ("x1", "x2", "x4")))
    puts, address = [t.target(o, "b32") for o in ins.operands[0]], t.address(ins.operands[1])
    if len(puts) != n:
        raise Unreadable("registers of ldmatrix")
    row, column = matrix_elements("trans" in mods)

    def run(w, m):
        if not w.together(m):
            return False
        shared, at = w.block.shared, address(w)[:8 * n]
        shared.index(at, 16)
        matrices = shared.data[shared.bytes_at(at, 16)].view("<u2").reshape(n, 8, 8)
        for matrix, put in zip(matrices, puts):
            put(w, np.ascontiguousarray(matrix[row, column]).view("<u4").reshape(32).astype(u4), m)
        return True
    return run


# Fragments of m16n8k16: word i of a thread has of A and B these rows and columns and the next column of A, row of B; element i
# of C this row and column.
A_ROW = np.stack([GROUP, GROUP + 8, GROUP, GROUP + 8])
A_COLUMN = np.stack([2 * OF_GROUP, 2 * OF_GROUP, 2 * OF_GROUP + 8, 2 * OF_GROUP + 8])
B_ROW, B_COLUMN = np.stack([2 * OF_GROUP, 2 * OF_GROUP + 8]), np.stack([GROUP, GROUP])
C_ROW = np.stack([GROUP, GROUP, GROUP + 8, GROUP + 8])
C_COLUMN = np.stack([2 * OF_GROUP, 2 * OF_GROUP + 1] * 2)


def a_fragment(words, kind):
    """[16][16] of four words a thread."""
    a = np.empty((16, 16), f4)
    two = halves(words, kind)
    a[A_ROW, A_COLUMN] = two[..., 0]
    a[A_ROW, A_COLUMN + 1] = two[..., 1]
    return a


@instruction("mma", kind="waits")
def mma(t, ins, mods):
    if mods[:5] != ["sync", "aligned", "m16n8k16", "row", "col"] or mods[5] != "f32" or mods[8] != "f32" or mods[6] != mods[7]:
        raise Unreadable(f"mma {mods}")
    kind = {"f16": "f16", "bf16": "bf16"}[mods[6]]
    d = [t.target(o, "f32") for o in ins.operands[0]]
    a, b = ([t.source(o, "b32") for o in ins.operands[i]] for i in (1, 2))
    c = [t.source(o, "f32") for o in ins.operands[3]]
    if (len(d), len(a), len(b), len(c)) != (4, 4, 2, 4):
        raise Unreadable("registers of mma")

    def run(w, m):
        if not w.together(m):
            return False
        left = a_fragment(np.stack([s(w) for s in a]), kind)
        right, sums = np.empty((16, 8), f4), np.empty((16, 8), f4)
        two = halves(np.stack([s(w) for s in b]), kind)
        right[B_ROW, B_COLUMN], right[B_ROW + 1, B_COLUMN] = two[..., 0], two[..., 1]
        sums[C_ROW, C_COLUMN] = np.stack([s(w) for s in c])
        result = (left @ right + sums)[C_ROW, C_COLUMN]
        for put, value in zip(d, result):
            put(w, np.ascontiguousarray(value), m)
        return True
    return run


# --------------------------------------------------------------------------------- cp.async, a thread's own

def async_copy(t, ins, mods):
    only(mods[1:], "ca", "cg", "shared", "shared::cta", "global", "L2::128B", "L2::256B")
    to, source, size = t.address(ins.operands[0]), t.address(ins.operands[1]), ins.operands[2]
    real = t.source(ins.operands[3] if len(ins.operands) > 3 else size, "u32")

    def run(w, m):
        lanes = np.ones(32, bool) if m is None else m
        shared, at, n = w.block.shared, to(w), real(w).astype(int)
        if (n[lanes] > size).any():
            raise Wrong("cp.async of more bytes than it has")
        shared.index(at[lanes], size)
        shared.data[shared.bytes_at(at[lanes], size)] = 0xff  # what is read before it lands
        w.copies.append([lanes, at, source(w), n, size, w.committed])
    return run


@instruction("cp", kind="waits")
def cp(t, ins, mods):
    if mods[:2] == ["async", "bulk"]:
        return tensor_copy(t, ins, mods)
    if mods[1:] == ["commit_group"]:
        def commit(w, m):
            w.committed = w.committed + (1 if m is None else m)
        return commit
    if mods[1:] in (["wait_group"], ["wait_all"]):
        keep = ins.operands[0] if mods[1:] == ["wait_group"] else -1

        def wait(w, m):
            lanes = np.ones(32, bool) if m is None else m
            for copy in w.copies:
                ready = copy[0] & lanes & (copy[5] < w.committed - keep)
                copy[0] = copy[0] & ~ready
                land(w, ready, *copy[1:5])
            w.copies = [copy for copy in w.copies if copy[0].any()]
        return wait
    return async_copy(t, ins, mods)


def land(w, lanes, to, source, real, size):
    """The rest of the bytes becomes zero."""
    shared = w.block.shared
    some = lanes & (real > 0)
    data = np.zeros((32, size), u1)
    if some.any():
        region, at = w.region("global", source[some])
        region.index(at, size)
        data[some] = np.where(np.arange(size) < real[some][:, None], region.data[region.bytes_at(at, size)], 0)
    if lanes.any():
        shared.data[shared.bytes_at(to[lanes], size)] = data[lanes]


# ----------------------------------------------------------------------------------------------- mbarrier

class MemoryBarrier:
    """"Phase of the mbarrier object", pending arrivals, tx-count."""

    def __init__(self, count):
        self.expected = self.pending = count
        self.bytes = self.phase = 0

    def complete(self):
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.expected

    def arrive(self, n, size=0):
        if self.pending < n:
            raise Wrong("more arrivals at an mbarrier than it expects")
        self.bytes += size
        self.pending -= n
        self.complete()

    def bring(self, size):
        self.bytes -= size
        self.complete()


def barrier_at(block, address):
    if address not in block.mbarriers:
        raise Wrong(f"no mbarrier at {address:#x}")
    return block.mbarriers[address]


@instruction("mbarrier", kind="waits")
def mbarrier(t, ins, mods):
    only(mods, "init", "arrive", "expect_tx", "try_wait", "test_wait", "parity", "shared", "shared::cta", "b64", "release",
         "acquire", "cta")
    name = mods[0]
    result = name in ("arrive", "try_wait", "test_wait")
    address = t.address(ins.operands[1 if result else 0])
    rest = [t.source(o, "u32") for o in ins.operands[2 if result else 1:]]

    def each(w, m):
        at = address(w)
        for lane in LANES if m is None else np.flatnonzero(m):
            if at[lane] % 8:
                raise Wrong("an mbarrier at no multiple of 8")
            yield lane, int(at[lane])

    def init(w, m):
        for lane, at in each(w, m):
            w.block.shared.index(np.array([at], i8), 8)
            w.block.mbarriers[at] = MemoryBarrier(int(rest[0](w)[lane]))

    def arrive(w, m):
        for lane, at in each(w, m):
            barrier_at(w.block, at).arrive(1, int(rest[0](w)[lane]) if rest else 0)

    def wait(w, m):
        """True where the phase of this parity, the current one or the one before, is complete. Else try_wait is suspended, for
        a time that the manual does not say: it ends at once the first time, and later when there is something to say."""
        done = np.zeros(32, bool)
        for lane, at in each(w, m):
            done[lane] = barrier_at(w.block, at).phase % 2 != int(rest[0](w)[lane]) % 2
        if name == "try_wait" and not done.any() and w.pc in w.tried:
            return False
        (w.tried.discard if done.any() else w.tried.add)(w.pc)
        put(w, done, m)
        return True

    if name == "init":
        return init
    if name == "arrive":
        if getattr(ins.operands[0], "name", "") != "_" or ("expect_tx" in mods) != bool(rest):
            raise Unreadable("a form of mbarrier.arrive")
        return arrive
    if "parity" not in mods:
        raise Unreadable("a form of a wait")
    put = t.target(ins.operands[0], "pred")
    return wait


# ------------------------------------------------------------------------------------------ tensor copies

# The parameters of cuTensorMapEncodeTiled, as ptx_calls.c writes them into the 128 bytes of a map.
MAP = struct.Struct("<4s I Q 4Q 3Q 4I 4I I B B B B")
F16, BF16 = 6, 9  # CUtensorMapDataType
SWIZZLES = {0: 0, 1: 1, 2: 3, 3: 7}  # CUtensorMapSwizzle: none, 32, 64, 128 bytes; how many of the bits above turn


class TensorMap:
    def __init__(self, data):
        magic, self.rank, self.base, *rest = MAP.unpack(bytes(data[:MAP.size]))
        self.dims, self.strides, self.box, steps = rest[:4], rest[4:7], rest[7:11], rest[11:15]
        self.type, interleave, self.swizzle, _, fill = rest[15:]
        inner = self.box[0] * 2
        if magic != b"tmap" or self.rank != 4 or self.type not in (F16, BF16) or interleave or fill or set(steps) != {1}:
            raise Wrong("no tensor map of a kind that is interpreted")
        # What the driver asks of them.
        if (self.base % 16 or any(s % 16 or s >= 1 << 40 for s in self.strides) or any(not 0 < b <= 256 for b in self.box) or
                inner % 16 or inner > {0: 1 << 20, 1: 32, 2: 64, 3: 128}[self.swizzle] or
                any(not 0 < d <= 1 << 32 for d in self.dims)):
            raise Wrong("a tensor map that the driver refuses")


def map_at(w, address):
    region, at = w.region("generic", np.array([address], i8))
    if address % 64:
        raise Wrong("a tensor map at no multiple of 64")
    return TensorMap(region.data[int(at[0]) - region.base:])


def turn(addresses, swizzle):
    """The 16-byte chunk of an address (bits 4 to 6) is XORed with bits 7 to 9, as many as the mode has."""
    return addresses ^ (addresses >> 7 & SWIZZLES[swizzle]) << 4


def box_bytes(memory, tensor, first):
    """The box at these coordinates, innermost first, as it lies without swizzling: rows of box[0] elements."""
    places = [c + np.arange(b) for c, b in zip(first, tensor.box)]
    inside = [(p >= 0) & (p < d) for p, d in zip(places, tensor.dims)]
    x, y, z, v = np.meshgrid(*places, indexing="ij")
    good = np.ones(x.shape, bool)
    for axis, mask in enumerate(inside):
        good &= mask.reshape([-1 if i == axis else 1 for i in range(4)])
    at = tensor.base + 2 * x + tensor.strides[0] * y + tensor.strides[1] * z + tensor.strides[2] * v
    out = np.zeros(x.shape, u2)
    if good.any():
        region = memory.find(int(at[good].min()))
        out[good] = region.views[2][region.index(at[good].astype(i8), 2)]
    return out.transpose(3, 2, 1, 0).reshape(-1)


def tensor_copy(t, ins, mods):
    if mods != ["async", "bulk", "tensor", "4d", "shared::cluster", "global", "tile", "mbarrier::complete_tx::bytes"]:
        raise Unreadable(f"cp {mods}")
    to, source, barrier = (t.address(o) for o in ins.operands)
    coordinates = [t.source(c, "s32") for c in ins.operands[1].coordinates]

    def run(w, m):
        for lane in LANES if m is None else np.flatnonzero(m):
            block, tensor = w.block, map_at(w, int(source(w)[lane]))
            start, bar = int(to(w)[lane]), int(barrier(w)[lane])
            first = [int(c(w)[lane]) for c in coordinates]
            size = 2 * int(np.prod(tensor.box))
            if start % 128 or (tensor.swizzle == 3 and start % 1024):
                raise Wrong("a tensor copy to shared memory that is not aligned for its swizzle")
            where = turn(start + 2 * np.arange(size // 2), tensor.swizzle)
            index = block.shared.index(where, 2)
            if block.unfenced[index * 2].any():
                raise Wrong("a tensor copy over what threads wrote, without fence.proxy.async")
            block.shared.views[2][index] = 0xffff
            barrier_at(block, bar)

            def arrive(block=block, index=index, tensor=tensor, first=first, bar=bar, size=size):
                block.shared.views[2][index] = box_bytes(block.machine.memory, tensor, first)
                barrier_at(block, bar).bring(size)
            block.under_way.append(arrive)
        return True
    return run


@instruction("prefetch")
def prefetch(t, ins, mods):
    only(mods, "tensormap")
    address = t.address(ins.operands[0])

    def run(w, m):
        for lane in LANES if m is None else np.flatnonzero(m):
            map_at(w, int(address(w)[lane]))
    return run


@instruction("setmaxnreg", kind="waits")
def setmaxnreg(t, ins, mods):
    only(mods, "inc", "dec", "sync", "aligned", "u32")
    n = ins.operands[0]
    if n % 8 or not 24 <= n <= 256:
        raise Unreadable(f"setmaxnreg of {n}")
    return lambda w, m: w.together(m)


# -------------------------------------------------------------------------------- products of a warpgroup

# The swizzle of a matrix descriptor (bits 62, 63) → that of a map, and the bytes of a row of its pattern.
DESCRIPTOR_SWIZZLES = {0: (0, 16), 1: (3, 128), 2: (2, 64), 3: (1, 32)}


def canonical_offsets(swizzle, transposed, n, leading, stride):
    """[n][16] bytes from the start, before swizzling, of element (row, k) of an operand with n rows (or columns) of 16
    terms of 2 bytes each. "Strides of canonical layouts": T = 8 elements are 16 bytes.

    K-major, no swizzle  ((8,n),(T,2)) : ((1T,SBO),(1,LBO));  with one: ((8,n),(T,2)) : ((rT,SBO),(1,T)), rT a pattern's row
    MN-major, no swizzle ((T,1,n),(8,2)) : ((1,T,SBO),(1T,LBO));  with one: ((T,r,n),(8,2)) : ((1,T,LBO),(rT,SBO))"""
    row = DESCRIPTOR_SWIZZLES[swizzle][1]
    mn, k = np.arange(n)[:, None], np.arange(16)[None, :]
    if not transposed:
        return mn % 8 * row + mn // 8 * stride + (k % 8 * 2 + k // 8 * (leading if swizzle == 0 else 16))
    if swizzle == 0:
        return mn % 8 * 2 + mn // 8 * stride + (k % 8 * 16 + k // 8 * leading)
    per_row = row // 2
    return mn % per_row * 2 + mn // per_row * leading + (k % 8 * row + k // 8 * stride)


def shared_operand(block, descriptor, n, transposed, kind):
    """[n][16] of an operand in shared memory."""
    start, leading, stride = (descriptor & 0x3fff) << 4, (descriptor >> 16 & 0x3fff) << 4, (descriptor >> 32 & 0x3fff) << 4
    base, swizzle = descriptor >> 49 & 7, descriptor >> 62
    if base or descriptor & (3 << 14 | 3 << 30 | 7 << 46 | 0x3ff << 52):
        raise Wrong(f"a matrix descriptor {descriptor:#x} with bits that are not interpreted")
    at = turn(start + canonical_offsets(swizzle, transposed, n, leading, stride), DESCRIPTOR_SWIZZLES[swizzle][0])
    index = block.shared.index(at.reshape(-1), 2).reshape(at.shape)
    if block.unfenced[2 * index].any():
        raise Wrong("a product of what threads wrote to shared memory, without fence.proxy.async")
    bits = block.shared.views[2][index]
    return from_bf16(bits) if kind == "bf16" else bits.view(f2).astype(f4)


class Product:
    """One wgmma.mma_async: what each of the four warps gave, and the rows of each that are complete."""

    def __init__(self, n, kind):
        self.n, self.kind, self.given, self.result = n, kind, {}, {}

    def compute(self, block, warp):
        """A warp's 16 rows: they read shared memory as late as the warp waits for them."""
        sides = {given["shared"] for given in self.given.values()}
        if len(sides) != 1:
            raise Wrong("the warps of a warpgroup give different operands")
        a, b, accumulate, negate_a, negate_b, turn_a, turn_b = sides.pop()
        given = self.given[warp]
        right = shared_operand(block, b, self.n, turn_b, self.kind) * negate_b
        if a is None:
            left = a_fragment(given["words"], self.kind)
        else:
            left = shared_operand(block, a, 64, turn_a, self.kind)[16 * warp:16 * warp + 16]
        sums = (left * negate_a) @ right.T
        if accumulate:
            before = given["before"]
            sums = sums + (before.result[warp] if isinstance(before, Product) else before)
        self.result[warp] = sums.astype(f4)


def d_place(n):
    """Of element i of a thread's D [64][n]: row in its warp's 16, column."""
    i = np.arange(n // 2)[:, None]
    return GROUP + i // 2 % 2 * 8, i // 4 * 8 + 2 * OF_GROUP + i % 2


@instruction("wgmma", kind="waits")
def wgmma(t, ins, mods):
    name = mods[0]
    if mods[1:3] != ["sync", "aligned"]:
        raise Unreadable(f"wgmma {mods}")
    if name == "fence":
        def fence(w, m):
            if not w.together(m):
                return False
            w.fenced = list(w.r)
            return True
        return fence
    if name == "commit_group":
        def commit(w, m):
            if not w.together(m):
                return False
            w.group_ends.append(w.products)
            return True
        return commit
    if name == "wait_group":
        return wait_products(ins.operands[0])
    return issue_product(t, ins, mods)


def wait_products(keep):
    def wait(w, m):
        if not w.together(m):
            return False
        done = len(w.group_ends) - keep
        end = w.group_ends[done - 1] if done > 0 else 0
        products = w.block.warpgroups.setdefault(w.number // 4, [])
        for product in products[w.delivered:end]:
            if len(product.given) < 4:
                return False  # the other warps of the group have not come to it
        while w.delivered < end:
            deliver(w, products[w.delivered])
            w.delivered += 1
        return True
    return wait


def deliver(w, product):
    warp = w.number % 4
    given = product.given[warp]
    product.compute(w.block, warp)
    for index, was in zip(given["a"], given["held"]):
        if w.r[index] is not was:
            raise Wrong("a register of A was written while a product read it")
    if w.flying.get(given["d"]) is product:
        del w.flying[given["d"]]
        rows, columns = d_place(product.n)
        for index, bits in zip(given["d"], float_bits(product.result[warp][rows, columns])):
            if w.r[index] is not given["poison"]:
                raise Wrong("a register of D was written while a product ran")
            put_lanes(w, index, bits, None)  # since the last fence


def uniform(values, what):
    if (values != values[0]).any():
        raise Wrong(f"{what} differs between the lanes of a warp")
    return values[0].item()


def issue_product(t, ins, mods):
    if not mods[3].startswith("m64n") or not mods[3].endswith("k16") or mods[4] != "f32" or mods[5] != mods[6]:
        raise Unreadable(f"wgmma {mods}")
    kind, n = {"f16": "f16", "bf16": "bf16"}[mods[5]], int(mods[3][4:-3])
    d_registers, a, b, scale, *numbers = ins.operands
    d = tuple(r.index for r in d_registers)
    of_shared = not isinstance(a, tuple)
    if len(d) != n // 2 or len(numbers) != (4 if of_shared else 3) or set(numbers[:2]) - {1, -1} or set(numbers[2:]) - {0, 1}:
        raise Unreadable("operands of wgmma")
    turns = numbers[2:] if of_shared else [0, *numbers[2:]]
    words = () if of_shared else tuple(r.index for r in a)
    a_source, b_source, p = t.source(a, "b64") if of_shared else None, t.source(b, "b64"), t.source(scale, "pred")

    def run(w, m):
        if not w.together(m):
            return False
        products = w.block.warpgroups.setdefault(w.number // 4, [])
        if w.fenced is None:
            raise Wrong("wgmma before the first wgmma.fence")
        for index in (() if d in w.flying else d) + words:
            if w.r[index] is not w.fenced[index]:
                raise Wrong("a register of a product was touched since the last wgmma.fence")
        if any(set(d) & set(other) and d != other for other in w.flying):
            raise Wrong("two products under way have some registers of D in common")
        if len(products) == w.products:
            products.append(Product(n, kind))
        product = products[w.products]
        rows, columns = d_place(n)
        before = w.flying.get(d)
        if before is None:
            before = np.empty((16, n), f4)
            before[rows, columns] = np.stack([w.r[i] for i in d]).view(f4)
        poison = np.full(32, 0xffffffff, u4)
        product.given[w.number % 4] = {
            "shared": (uniform(a_source(w), "a descriptor") if of_shared else None, uniform(b_source(w), "a descriptor"),
                       uniform(p(w), "scale-d"), numbers[0], numbers[1], *turns),
            "words": np.stack([w.r[i] for i in words]) if words else None, "before": before, "d": d, "poison": poison,
            "a": words, "held": [w.r[i] for i in words]}
        for i in d:
            w.r[i] = poison
        w.flying[d] = product
        w.products += 1
        return True
    return run
