"""Reads the text of PTX that nvcc writes: kernels, their parameters, registers, shared variables and instructions."""
import re
from dataclasses import dataclass, field


class Unreadable(Exception):
    """Text that this reader does not understand; nothing is skipped."""


@dataclass(frozen=True)
class Register:
    name: str  # unique in its kernel
    index: int
    width: int  # bits; 1: a predicate


@dataclass(frozen=True)
class Symbol:
    """A variable, a parameter, a label or a special register."""
    name: str


@dataclass(frozen=True)
class Address:
    base: object  # Register, Symbol or int
    offset: int
    coordinates: tuple = ()  # of a tensor copy


@dataclass
class Instruction:
    opcode: str  # with its modifiers
    operands: list  # Register, Symbol, int, float bits as ("f32", bits), Address, tuple (a vector), ("not", Register)
    guard: tuple = None  # (Register, negated)
    line: str = ""
    at: int = 0  # where it begins in the kernel's text


@dataclass
class Kernel:
    name: str
    parameters: list = field(default_factory=list)  # (name, alignment, bytes)
    registers: list = field(default_factory=list)
    shared: list = field(default_factory=list)  # (name, alignment, bytes)
    local: list = field(default_factory=list)
    code: list = field(default_factory=list)
    labels: dict = field(default_factory=dict)  # → index into code
    tables: dict = field(default_factory=dict)  # of brx.idx


WIDTHS = {"pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "b32": 32, "u32": 32, "s32": 32,
          "f32": 32, "b64": 64, "u64": 64, "s64": 64, "f64": 64}
VARIABLE = re.compile(r"(?:\.align (\d+) )?\.(\w+) ([\w$%]+)(?:\[(\d*)\])?")
LABEL = re.compile(r"([\w$]+)\s*:(?!:)")


def plain_name(mangled):
    """Without what the compiler puts into names of an anonymous namespace, which differs from call to call."""
    return re.sub(r"\d+_GLOBAL__N__[0-9a-f]+(?:_\d+)?_\w+?_cu_[0-9a-f]{8}(?:_\d+)?", "0", mangled)


def variable(text):
    """(name, alignment, bytes) of a declaration in memory."""
    found = VARIABLE.fullmatch(text)
    if not found:
        raise Unreadable(f"declaration: {text}")
    align, kind, name, count = found.groups()
    size = WIDTHS[kind] // 8
    return name, int(align or size), size * int(count or (1 if count is None else 0))


def split_commas(text):
    """At commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "[{(") - (c in "]})")
        if c == "," and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    last = text[begin:].strip()
    return parts + [last] if last else parts


class Body:
    """Reads the body of a kernel."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.scopes = [{}]

    def declare(self, text):
        kind, _, names = text.partition(" ")
        width = WIDTHS[kind]
        for name in split_commas(names):
            many = re.fullmatch(r"([\w$%]+)<(\d+)>", name)
            for each in [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]:
                index = len(self.kernel.registers)
                unique = each if len(self.scopes) == 1 else f"{each}#{index}"
                register = Register(unique, index, width)
                self.kernel.registers.append(register)
                self.scopes[-1][each] = register

    def name(self, text):
        for scope in reversed(self.scopes):
            if text in scope:
                return scope[text]
        return Symbol(text)

    def operand(self, text):
        if text[0] == "{":
            return tuple(self.operand(part) for part in split_commas(text[1:-1]))
        if text[0] == "[":
            return self.address(text[1:-1])
        if text[0] == "!":
            return ("not", self.name(text[1:]))
        if "|" in text:
            return tuple(self.name(part.strip()) for part in text.split("|"))
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
            return ("f32", int(text[2:], 16))
        if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
            return ("f64", int(text[2:], 16))
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
            return int(text.rstrip("U"), 0)
        if re.fullmatch(r"[\w$%.]+", text):
            return self.name(text)
        raise Unreadable(f"operand: {text}")

    def address(self, text):
        parts = split_commas(text)
        coordinates = self.operand(parts[1]) if len(parts) == 2 else ()
        found = re.fullmatch(r"([\w$%.]+?)(?:\s*\+\s*(-?\d+))?", parts[0])
        if not found or len(parts) > 2:
            raise Unreadable(f"address: {text}")
        return Address(self.operand(found[1]), int(found[2] or 0), coordinates)

    def instruction(self, text, at):
        guard = None
        found = re.match(r"@(!?)([\w$%]+)\s+", text)
        if found:
            guard = (self.name(found[2]), found[1] == "!")
        rest = text[found.end():] if found else text
        opcode, _, operands = rest.partition(" ")
        self.kernel.code.append(Instruction(opcode, [self.operand(o) for o in split_commas(operands)], guard, text, at))

    def statement(self, text, at):
        text = " ".join(text.split())
        if text.startswith(".reg "):
            self.declare(text[6:])
        elif text.startswith(".shared "):
            self.kernel.shared.append(variable(text[8:]))
        elif text.startswith(".local "):
            self.kernel.local.append(variable(text[7:]))
        elif text.startswith((".loc ", ".pragma ")):
            pass
        elif text.startswith("."):
            raise Unreadable(f"directive: {text}")
        else:
            self.instruction(text, at)

    def label(self, name, text, at):
        """Where to read on after a label."""
        table = re.compile(r"\s*\.branchtargets\s+([^;]*);").match(text, at)
        if table:
            self.kernel.tables[name] = [part.strip() for part in table[1].split(",")]
            return table.end()
        if name in self.kernel.labels:
            raise Unreadable(f"two labels {name}")
        self.kernel.labels[name] = len(self.kernel.code)
        return at

    def read(self, text, at, end):
        while at < end:
            found = LABEL.match(text, at)
            if text[at].isspace():
                at += 1
            elif text[at] == "{":
                self.scopes.append({})
                at += 1
            elif text[at] == "}":
                self.scopes.pop()
                at += 1
            elif found:
                at = self.label(found[1], text, found.end())
            else:
                stop = text.index(";", at)
                self.statement(text[at:stop], at)
                at = stop + 1
        if len(self.scopes) != 1:
            raise Unreadable(f"{self.kernel.name}: braces do not match")


def closing(text, at, pair):
    """The place of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == pair[0]) - (text[i] == pair[1])
        if depth == 0:
            return i
    raise Unreadable("a bracket is not closed")


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def kernel_texts(text):
    """plain_name → the text of each kernel, from .entry to its last brace."""
    texts = {}
    for found in re.finditer(r"\.entry\s+([\w$]+)\s*\(", text):
        begin = closing(text, found.end() - 1, "()")
        texts[plain_name(found[1])] = text[found.start():closing(text, text.index("{", begin), "{}") + 1]
    return texts


def shared_variables(text):
    """(name, alignment, bytes) of shared memory outside of kernels; 0 bytes: the launch says how many."""
    return [variable(found[1]) for found in re.finditer(r"^(?:\.extern )?\.shared ([^;]*);", text, re.M)]


def read_kernel(text):
    """A kernel of its text."""
    head = re.match(r"\.entry\s+([\w$]+)\s*\(", text)
    end = closing(text, head.end() - 1, "()")
    kernel = Kernel(plain_name(head[1]))
    for parameter in split_commas(text[head.end():end]):
        pointer = re.sub(r"^\s*\.param|\.ptr( +\.(global|shared|const|local))?( +\.align \d+)?", "", parameter)  # what it points to may be said
        kernel.parameters.append(variable(" ".join(pointer.split())))
    begin = text.index("{", end)
    rest = re.sub(r"\.(maxntid|minnctapersm|reqntid|maxnreg|noreturn)[\s\d,]*", "", text[end + 1:begin])
    if rest.strip():
        raise Unreadable(f"before the body of {kernel.name}: {rest.strip()}")
    Body(kernel).read(text, begin + 1, closing(text, begin, "{}"))
    return kernel
