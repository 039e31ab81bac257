#!/usr/bin/env python3
"""random_lengths.py SEED COUNT LENGTH,LENGTH,…: the effective lengths of groups given to other groups.

Prints COUNT different orders of the lengths, other than the one given, one a line as `--method dpe:lengths=` takes
them. The same SEED gives the same orders with every Python 3.
"""
import random
import sys


def main():
    seed, count, lengths = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
    draw = random.Random(seed)
    seen = {tuple(lengths)}
    while count > 0:
        order = tuple(lengths[i] for i in sorted(range(len(lengths)), key=lambda _: draw.random()))
        if order not in seen:
            seen.add(order)
            print("/".join(order))
            count -= 1


if __name__ == "__main__":
    main()
