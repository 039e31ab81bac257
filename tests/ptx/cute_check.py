"""cute_check.py CXX INCLUDE…: holds the interpreter's layouts of fragments, ldmatrix, matrix descriptors and swizzles against
those that CuTe publishes. CuTe's headers are those in DPE_CUTE_INCLUDE, or of the package nvidia-cutlass where it is installed;
exit status 125, and one line, where there are none. INCLUDE: CUDA's headers."""
import importlib.util
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    sys.exit(125)

import ptx_instructions  # noqa: F401 (ptx_matrix needs it)
from ptx_matrix import (A_COLUMN, A_ROW, B_COLUMN, B_ROW, C_COLUMN, C_ROW, DESCRIPTOR_SWIZZLES, canonical_offsets, d_place,
                        matrix_elements, turn)


def headers():
    """The folder of CuTe's headers, or None."""
    found = importlib.util.find_spec("cutlass_library")
    folder = os.environ.get("DPE_CUTE_INCLUDE") or (found and os.path.join(os.path.dirname(found.origin), "source/include"))
    return folder if folder and os.path.exists(os.path.join(folder, "cute/tensor.hpp")) else None


def printed(cxx, folders):
    """(name, numbers) of each line of cute_layouts.cpp."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cute_layouts.cpp")
    with tempfile.TemporaryDirectory() as work:
        program = os.path.join(work, "layouts")
        include = [f"-I{folder}{more}" for folder in folders for more in ("", "/cccl")]
        subprocess.run([cxx, "-std=c++17", "-w", *include, source, "-o", program], check=True)
        text = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    lines = [line.split(": ") for line in text.splitlines() if not line.startswith("ERROR")]  # a host has no shared memory
    return [(name, np.array(numbers.split(), int)) for name, numbers in lines]


def by_words(rows, columns, size):
    """[value][thread] element numbers row + size · column of words with two elements each."""
    return np.stack([rows + size * columns, rows + size * (columns + 1)], 1).reshape(-1, rows.shape[1])


def in_warps(elements):
    """The same of the four warps of a warpgroup, each 16 rows further on."""
    return np.concatenate([elements + 16 * w for w in range(4)], axis=1)


def ours(name, numbers):
    """What the interpreter has in place of a line's numbers."""
    words = name.split()
    size = int(words[-1])
    if words[:2] == ["mma", "A"]:
        return by_words(A_ROW, A_COLUMN, size)
    if words[:2] == ["mma", "B"]:  # CuTe counts column + 8 · row
        return by_words(B_COLUMN, B_ROW, size)
    if words[:2] == ["mma", "C"]:
        return C_ROW + size * C_COLUMN
    if words[:2] == ["wgmma", "A"]:
        return in_warps(by_words(A_ROW, A_COLUMN, size))
    if words[0] == "wgmma":
        rows, columns = d_place(int(words[1][1:]))
        return in_warps(rows + size * columns)
    if words[0].startswith("ldmatrix"):  # every bit, of the 8 · 4 rows of 128 bits
        row, column = matrix_elements(words[0].endswith("trans"))
        bits = 128 * row + 16 * column
        return np.concatenate([(bits[:, word // 16] + word % 16 + 1024 * matrix)[None]
                               for matrix in range(4) for word in range(32)])
    layout, leading, stride, base = numbers[:4]
    offsets = canonical_offsets(layout, words[0] == "MN", size, 16 * leading, 16 * stride)
    places = turn(offsets, DESCRIPTOR_SWIZZLES[layout][0]).T
    return np.concatenate([[layout, leading, stride, 0], places.reshape(-1)])


def main():
    cute = headers()
    if cute is None:
        print("no headers of CuTe: pip install nvidia-cutlass, or set DPE_CUTE_INCLUDE to the folder that has cute/")
        return 125
    wrong = 0
    lines = printed(sys.argv[1], [cute, *sys.argv[2:]])
    for name, numbers in lines:
        mine = np.asarray(ours(name, numbers)).reshape(-1)
        same = len(mine) == len(numbers) and (mine == numbers).all()
        print(f"{name}: {len(numbers)} numbers, " + ("the same" if same else f"CuTe has {numbers[:40]}, this has {mine[:40]}"))
        wrong += not same
    print(f"{len(lines)} layouts, {wrong} of them other than CuTe's")
    return 0 if wrong == 0 and lines else 1


if __name__ == "__main__":
    sys.exit(main())
