"""Interprets PTX as the manual describes it ("PTX ISA", chapters 5 to 9): threads of a block, warp by warp.

A register is an array of the 32 lanes of a warp; arrays are replaced, never changed. Lanes of a warp that part have places
of their own in the code, and those that are furthest behind go first until they meet others. Whatever may end later than
the program says ends as late as it can, and what it will write is NaN until then. ptx_matrix.py has the instructions of
matrices, copies and barriers in memory."""
import bisect
import re

import numpy as np

from ptx_read import Address, Register, Symbol, Unreadable

u1, u2, u4, u8, i1, i2, i4, i8 = (np.dtype(t) for t in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"))
f2, f4, f8, boolean = np.dtype("f2"), np.dtype("f4"), np.dtype("f8"), np.dtype(bool)
TYPES = {"pred": boolean, "b8": u1, "u8": u1, "s8": i1, "b16": u2, "u16": u2, "s16": i2, "f16": f2, "bf16": u2, "b32": u4,
         "u32": u4, "s32": i4, "f32": f4, "bf16x2": u4, "f16x2": u4, "b64": u8, "u64": u8, "s64": i8, "f64": f8}
STORED = {1: boolean, 8: u1, 16: u2, 32: u4, 64: u8}
LANES = np.arange(32)
ALL, NONE = b"\1" * 32, b"\0" * 32
# Where the state spaces lie among generic addresses; "Generic addressing" leaves this to the machine.
SHARED_WINDOW, PARAMETERS = 1 << 56, 1 << 57
SHARED_FIRST = 1024  # the address of a block's first byte of shared memory
SPECIAL = [f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"] + ["%laneid", "%warpid"]
BRANCHES = 10_000_000  # of a block: more means that it does not end


class Wrong(Exception):
    """What the manual forbids or leaves undefined, or a block that waits for ever."""


class Region:
    """Memory from an address on."""

    def __init__(self, base, data, name, writable=True):
        self.base, self.end, self.data, self.name, self.writable = base, base + len(data), data, name, writable
        if base % 16:
            raise Wrong(f"{name} begins at {base:#x}: expected a multiple of 16")
        self.views = {t.itemsize: data[:len(data) // t.itemsize * t.itemsize].view(t) for t in (u1, u2, u4, u8)}

    def index(self, addresses, size, align=None):
        """Where elements of so many bytes lie in the view of their size."""
        low, high = int(addresses.min()), int(addresses.max())
        if low < self.base or high + size > self.end:
            raise Wrong(f"address {low if low < self.base else high:#x} outside of {self.name} "
                        f"[{self.base:#x}, {self.end:#x})")
        if int(np.bitwise_or.reduce(addresses)) & ((align or size) - 1):
            raise Wrong(f"an address in {self.name} is no multiple of {align or size}")
        return (addresses - self.base) // size

    def bytes_at(self, addresses, n):
        """[len(addresses)][n], whatever the alignment."""
        self.index(addresses, n, 1)
        return (addresses - self.base)[:, None] + np.arange(n)


class Memory:
    """The device's memory: regions that do not touch."""

    def __init__(self):
        self.bases, self.regions = [], []

    def add(self, region):
        at = bisect.bisect(self.bases, region.base)
        self.bases.insert(at, region.base)
        self.regions.insert(at, region)

    def find(self, address):
        at = bisect.bisect(self.bases, address) - 1
        if at < 0 or address >= self.regions[at].end:
            raise Wrong(f"no memory at {address:#x}")
        return self.regions[at]


class Barrier:
    """A barrier of a block (bar)."""

    def __init__(self):
        self.count, self.threads, self.turn = 0, None, 0

    def arrive(self, threads):
        if self.threads not in (None, threads):
            raise Wrong(f"a barrier of {self.threads} threads is used with {threads}")
        self.threads = threads
        self.count += 32

    def complete(self, live):
        """`live`: threads that have not ended, which a barrier of the whole block waits for."""
        wanted = live if self.threads == "all" else self.threads
        if self.count > 0 and self.count > wanted:
            raise Wrong(f"{self.count} threads at a barrier of {wanted}")
        if self.count > 0 and self.count == wanted:
            self.count, self.threads = 0, None
            self.turn += 1


class Block:
    def __init__(self, machine, kernel, launch, place, seed):
        self.machine, self.kernel, self.launch = machine, kernel, launch
        self.random = np.random.default_rng(seed)
        size = kernel.static_shared + launch.shared
        self.shared = Region(SHARED_FIRST, np.full(-(-size // 16) * 16, 0xff, u1), "shared memory")
        self.unfenced = np.zeros(len(self.shared.data), bool)  # written by threads since the last fence.proxy.async
        self.barriers = [Barrier() for _ in range(16)]
        self.mbarriers, self.under_way, self.branches = {}, [], 0
        n = int(np.prod(launch.block))
        self.warps = [Warp(self, i, place, n) for i in range(-(-n // 32))]
        self.warpgroups = {}
        order = np.arange(len(self.warps))
        self.order = [order, order[::-1], self.random.permutation(order)][seed % 3]

    def live(self):
        return sum(32 for w in self.warps if w.alive.any())

    def run(self):
        while any(w.groups for w in self.warps):
            moved = [self.warps[i].run() for i in self.order]
            if not any(moved) and not self.land():
                raise Wrong("the block waits for ever:\n" + "\n".join(
                    f"    warp {w.number}: " + "; ".join(self.kernel.code[pc].line for pc in w.groups) for w in self.warps
                    if w.groups))

    def land(self):
        """One of the copies under way, any of them, ends. Whether there was one."""
        if not self.under_way:
            return False
        self.under_way.pop(int(self.random.integers(len(self.under_way))))()
        return True


class Warp:
    def __init__(self, block, number, place, threads):
        self.block, self.number, self.waits = block, number, None
        there = number * 32 + LANES
        ones = {w: np.full(32, (1 << w) - 1, STORED[w]) for w in STORED}  # as a float NaN
        self.r = [ones[register.width] for register in block.kernel.registers]
        self.groups = {0: there < threads}
        self.alive = there < threads
        self.copies, self.committed = [], np.zeros(32, int)  # cp.async
        self.tried = set()  # mbarrier.try_wait
        self.products, self.group_ends, self.flying, self.fenced = 0, [], {}, None  # wgmma
        self.delivered = self.groups_done = 0
        shape = block.launch.block
        ids = {"tid": (there % shape[0], there // shape[0] % shape[1], there // (shape[0] * shape[1])), "ntid": shape,
               "ctaid": place, "nctaid": block.launch.grid}
        self.special = {f"%{name}.{axis}": np.broadcast_to(np.asarray(value, u4), 32).copy()
                        for name, values in ids.items() for axis, value in zip("xyz", values)}
        self.special["%laneid"] = LANES.astype(u4)
        self.special["%warpid"] = np.full(32, number, u4)

    def join(self, pc, mask):
        old = self.groups.get(pc)
        self.groups[pc] = mask if old is None else old | mask

    def run(self):
        """Until every group waits or has ended; whether anything was done."""
        moved, stuck = False, set()
        while True:
            at = min((pc for pc in self.groups if pc not in stuck), default=None)
            if at is None:
                return moved
            if self.go(at, self.groups.pop(at)):
                moved = True
                stuck.clear()
            else:
                stuck.add(at)

    def go(self, pc, mask):
        """Run lanes from pc on until they part, end, wait or meet others; whether they did anything."""
        try:
            return self.steps_from(pc, mask)
        except (Wrong, Unreadable) as e:
            raise Wrong(f"{e}\n    at: {self.block.kernel.code[self.pc].line}") from None

    def steps_from(self, pc, mask):
        steps, visited, first = self.block.kernel.steps, self.block.kernel.visited, pc
        while True:
            if pc in self.groups:
                self.join(pc, mask)
                return True
            kind, run, guard, negated = steps[pc]
            active = mask
            self.pc = pc
            if guard >= 0:
                active = (~self.r[guard] if negated else self.r[guard]) & mask
                if active.tobytes() == NONE:
                    pc += 1
                    continue
            full = None if active.tobytes() == ALL else active
            visited[pc] = 1
            if kind == "plain":
                run(self, full)
            elif kind == "waits":
                if run(self, full) is False:
                    self.join(pc, mask)
                    return pc != first
            elif kind == "branch":
                self.block.branches += 1
                if self.block.branches > BRANCHES:
                    raise Wrong("the block does not end")
                if run is None:
                    return self.branch_table(active, self.block.kernel.code[pc])
                if guard < 0:
                    pc = run
                    continue
                self.join(run, active)
                if (mask & ~active).any():
                    self.join(pc + 1, mask & ~active)
                return True
            else:
                self.alive = self.alive & ~active
                mask = mask & ~active
                if not mask.any():
                    for barrier in self.block.barriers:
                        barrier.complete(self.block.live())
                    return True
            pc += 1

    def branch_table(self, active, instruction):
        index, name = instruction.operands
        labels = self.block.kernel.tables[name.name]
        for lane in np.flatnonzero(active):
            self.join(self.block.kernel.labels[labels[int(self.r[index.index][lane])]], LANES == lane)
        return True

    def together(self, active):
        """Whether all lanes that have not ended are here, as .aligned asks; there must be 32 of them."""
        if active is None:
            return True
        if (self.alive & ~active).any():
            return False
        raise Wrong("an aligned instruction without all lanes of the warp")

    def region(self, space, addresses):
        """The memory that addresses of a state space are in, and the addresses there."""
        low = int(addresses.min())
        if space == "shared":
            return self.block.shared, addresses
        if space == "generic" and low & SHARED_WINDOW:
            return self.block.shared, addresses - SHARED_WINDOW
        if low & PARAMETERS:
            return self.block.launch.parameters, addresses
        if space == "param":
            raise Wrong(f"{low:#x} is no address of a parameter")
        return self.block.machine.memory.find(low), addresses


def put_lanes(w, index, bits, m):
    w.r[index] = bits if m is None else np.where(m, bits, w.r[index])


class Translator:
    """Makes a step of each instruction: (kind, function or target, guard, negated)."""

    instructions = {}

    def __init__(self, kernel, shared):
        self.kernel, self.symbols = kernel, {}
        at = 0
        used = [v for v in shared if any(re.search(r"\b" + re.escape(v[0]) + r"\b", ins.line) for ins in kernel.code)]
        for name, align, size in sorted(kernel.shared + used, key=lambda v: v[2] == 0):  # of no bytes: after the others
            at = -(-at // align) * align
            self.symbols[name] = SHARED_FIRST + at
            at += size
        kernel.static_shared = at
        if kernel.local:
            raise Unreadable(f"{kernel.name} has local memory")
        at = 0
        kernel.offsets = []
        for name, align, size in kernel.parameters:
            at = -(-at // align) * align
            self.symbols[name] = PARAMETERS + at
            kernel.offsets.append(at)
            at += size
        kernel.parameter_bytes = at

    def translate(self):
        unknown = set()
        self.kernel.steps, self.kernel.visited = [], bytearray(len(self.kernel.code) + 1)
        for instruction in self.kernel.code:
            try:
                self.kernel.steps.append(self.step(instruction))
            except (Unreadable, KeyError) as e:
                unknown.add(f"{instruction.line}: {e!r}")
        if unknown:
            raise Unreadable(f"{self.kernel.name}: {len(unknown)} instructions are not known:\n" + "\n".join(sorted(unknown)))
        return self.kernel

    def step(self, ins):
        guard, negated = (ins.guard[0].index, ins.guard[1]) if ins.guard else (-1, False)
        name, *mods = ins.opcode.split(".")
        if name in ("ret", "exit"):
            return "ends", None, guard, negated
        if name == "bra":
            return "branch", self.kernel.labels[ins.operands[0].name], guard, negated
        if name == "brx":
            return "branch", None, guard, negated
        kind, make = self.instructions[name]
        return kind, make(self, ins, mods), guard, negated

    def constant(self, operand, kind):
        t = TYPES[kind]
        if isinstance(operand, tuple) and operand[0] == "f32":
            bits = np.array([operand[1]], u4)
            return bits.view(t)[0] if t.itemsize == 4 else bits.view(f4).astype(t)[0]
        if isinstance(operand, tuple) and operand[0] == "f64":
            return np.array([operand[1]], u8).view(t)[0]
        if isinstance(operand, Symbol):
            operand = 32 if operand.name == "WARP_SZ" else self.symbols[operand.name]
        if t.kind == "f":
            return t.type(operand)
        wide = np.array([operand & (1 << 64) - 1], u8)
        return bool(operand) if t == boolean else wide.astype(np.dtype(f"u{t.itemsize}")).view(t)[0]

    def source(self, operand, kind):
        """w → the operand's lanes."""
        t = TYPES[kind]
        if isinstance(operand, tuple) and operand[0] == "not":
            index = operand[1].index
            return lambda w: ~w.r[index]
        if isinstance(operand, Register):
            index, width = operand.index, operand.width
            if t == STORED[width]:
                return lambda w: w.r[index]
            if t.itemsize * 8 == width:
                return lambda w: w.r[index].view(t)
            if t.itemsize * 8 < width and t != boolean:
                narrow = np.dtype(f"u{t.itemsize}")
                return lambda w: w.r[index].astype(narrow).view(t)
            raise Unreadable(f"{kind} of a register of {width} bits")
        if isinstance(operand, Symbol) and operand.name in SPECIAL:
            name = operand.name
            if t == u2:
                return lambda w: w.special[name].astype(u2)
            return lambda w: w.special[name].view(t)
        value = np.full(32, self.constant(operand, kind), t)
        return lambda w: value

    def target(self, operand, kind):
        """(w, lanes' values, mask): writes them; what is narrower than the register is extended."""
        t = TYPES[kind]
        if isinstance(operand, Symbol) and operand.name == "_":
            return lambda w, value, m: None
        index, width = operand.index, operand.width
        stored = STORED[width]
        if t == stored:
            return lambda w, value, m: put_lanes(w, index, value, m)
        if t.itemsize * 8 == width:
            return lambda w, value, m: put_lanes(w, index, value.view(stored), m)
        if t.itemsize * 8 < width and t.kind in "ui":
            wide = np.dtype(f"{t.kind}{width // 8}")
            return lambda w, value, m: put_lanes(w, index, value.astype(wide).view(stored), m)
        raise Unreadable(f"{kind} to a register of {width} bits")

    def address(self, operand):
        """w → the lanes' addresses in their state space."""
        if not isinstance(operand, Address):
            raise Unreadable("an address was expected")
        base, offset = operand.base, operand.offset
        if isinstance(base, Register):
            index = base.index
            if base.width == 64:
                return lambda w: w.r[index].view(i8) + offset
            return lambda w: w.r[index].astype(i8) + offset
        value = np.full(32, (base if isinstance(base, int) else self.symbols[base.name]) + offset, i8)
        return lambda w: value


def instruction(*names, kind="plain"):
    def register(make):
        for name in names:
            Translator.instructions[name] = kind, make
        return make
    return register


def only(mods, *allowed):
    """Modifiers that a step knows; any other is an error."""
    other = [m for m in mods if m not in allowed]
    if other:
        raise Unreadable(f"modifiers {other}")


# ------------------------------------------------------------------------------------------------- launches

class Launch:
    def __init__(self, kernel, grid, block, shared, arguments):
        self.grid, self.block, self.shared = grid, block, shared
        sizes = [size for _, _, size in kernel.parameters]
        if [len(a) for a in arguments] != sizes:
            raise Wrong(f"{kernel.name}: arguments of {[len(a) for a in arguments]} bytes, parameters of {sizes}")
        data = np.zeros(-(-kernel.parameter_bytes // 16) * 16, u1)
        for offset, argument in zip(kernel.offsets, arguments):
            data[offset:offset + len(argument)] = np.frombuffer(argument, u1)
        self.parameters = Region(PARAMETERS, data, "parameters", writable=False)


class Machine:
    """Runs launches of translated kernels on a memory."""

    def __init__(self, memory, kernels):
        self.memory, self.kernels = memory, kernels

    def launch(self, name, grid, block, shared, arguments, seed=0):
        kernel = self.kernels(name)
        launch = Launch(kernel, grid, block, shared, arguments)
        with np.errstate(all="ignore"):
            for z in range(grid[2]):
                for y in range(grid[1]):
                    for x in range(grid[0]):
                        Block(self, kernel, launch, (x, y, z), seed).run()
