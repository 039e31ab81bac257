"""Writing GGUF files in tests, from the format's description: numbers are little endian, dimensions fastest first."""
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def scalar(kind, value):
    return string(value) if kind == STRING else struct.pack("<" + CODES[kind], value)


def value(kind, data):
    """The type and bytes of a value; a list is an array of the type."""
    if isinstance(data, list):
        return struct.pack("<IIQ", ARRAY, kind, len(data)) + b"".join(scalar(kind, each) for each in data)
    return struct.pack("<I", kind) + scalar(kind, data)


def header(metadata, infos, version=3, magic=b"GGUF", n_tensors=None, n_values=None):
    """metadata: [(key, type, value)]; infos: [(name, shape rows first, type's number, offset)]."""
    out = magic + struct.pack("<IQQ", version, len(infos) if n_tensors is None else n_tensors,
                              len(metadata) if n_values is None else n_values)
    for key, kind, data in metadata:
        out += string(key) + value(kind, data)
    for name, shape, number, offset in infos:
        out += string(name) + struct.pack("<I", len(shape))
        out += b"".join(struct.pack("<Q", size) for size in reversed(shape)) + struct.pack("<IQ", number, offset)
    return out


def write(path, metadata, tensors, alignment=32, **kind):
    """tensors: [(name, shape rows first, type's number, bytes)]."""
    infos, data = [], b""
    for name, shape, number, content in tensors:
        infos.append((name, shape, number, len(data)))
        data += content + b"\0" * (-len(content) % alignment)
    start = header(metadata, infos, **kind)
    with open(path, "wb") as f:
        f.write(start + b"\0" * (-len(start) % alignment) + data)
