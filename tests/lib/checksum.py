"""checksum.py TABLE...: appends to each table the checksum that every DPE table ends with
(outputs/SCHEMA.md), as a program that writes tables with h5py has to; an old one is replaced."""
import struct
import sys

BYTE = []
for value in range(256):
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    BYTE.append(value)


def add_checksum(path):
    with open(path, "rb") as file:
        data = file.read()
    if data[-24:-16] == b"DPE-CRC\n":
        data = data[:-24]
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ BYTE[(crc ^ byte) & 0xFF]
    with open(path, "wb") as file:
        file.write(data + b"DPE-CRC\n" + struct.pack("<QQ", len(data), crc ^ 0xFFFFFFFF))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        add_checksum(name)
