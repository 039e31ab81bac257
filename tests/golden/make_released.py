"""Writes methods/released.txt: positions and ramps as released programs compute them. test_methods.c compares plans
with them.

    make_released.py LOGISTIC_CU MODELING_QWEN3_JETLONG_FREQ_PY        (a C++ compiler, numpy)

The files are self_extend_patch/attn_method/logistic.cu of alexeipc/SELF-LLM (e8d729e), and
jetlm/modeling/jetlong_freq/modeling_qwen3_jetlong_freq.py of jet-ai-projects/Jet-Long (3262969). The kernels of the first
run on the processor, thread by thread; of the second, compute_yarn_ramp with NumPy in the place of torch. Neither file is
part of this tree.
"""
import ast
import math
import os
import re
import subprocess
import sys
import tempfile
import types

import numpy as np

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "methods")
# window, capacity, rate, tokens
SELF = ((9, 4, 0.2, 60), (12, 5, 0.125, 90), (16, 33, 0.02, 400))
# components of a head, trained length, base, turns of the fast and the slow end
JET_LONG = ((16, 24, 50.0, 32, 1), (128, 32768, 1e6, 32, 1), (64, 8192, 1e5, 32, 1))

HEAD = """
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#define __device__
#define __global__
struct at { int x; };
static at threadIdx, blockIdx, blockDim;
namespace torch { struct device { int index() { return 0; } };
    struct Tensor { int *values; torch::device device() { return {}; } template <class T> T *data_ptr() { return values; } }; }
static void cudaSetDevice(int) {}
static void cudaDeviceSynchronize() {}
static void cudaFree(void *block) { free(block); }
static void cudaMemset(void *block, int value, size_t n) { memset(block, value, n); }
template <class T> static void cudaMallocManaged(T **block, double n) { *block = (T *)calloc(1, (size_t)n); }
"""
MAIN = """
int main(int, char **argv) {
    int n = atoi(argv[1]), window = atoi(argv[2]);
    torch::Tensor query = {(int *)calloc(n, sizeof(int))}, key = {(int *)calloc(n, sizeof(int))};
    async_generator(query, key, n, window, atof(argv[3]), atof(argv[4]));
    for (int i = 0; i < n; i++) printf("%d %d\\n", query.values[i], key.values[i]);
}
"""


def on_processor(source):
    """The program with each launch as a loop over its threads."""
    source = re.sub(r"#include <(cuda_runtime|torch/extension)\.h>", "", source)
    source = source[:source.index("PYBIND11_MODULE")]
    launch = re.compile(r"(\w+)<<<(.+?), (.+?)>>>(\(.*\));")
    return HEAD + launch.sub(r"blockDim.x = int(\3); for (blockIdx.x = 0; blockIdx.x < int(\2); blockIdx.x++) "
                             r"for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) \1\4;", source) + MAIN


def logistic(path):
    with tempfile.TemporaryDirectory() as work, open(path, encoding="utf-8") as source:
        with open(os.path.join(work, "self.cpp"), "w", encoding="utf-8") as made:
            made.write(on_processor(source.read()))
        program = os.path.join(work, "self")
        subprocess.run(["c++", "-w", "-o", program, made.name], check=True)
        for window, capacity, rate, n in SELF:
            printed = subprocess.run([program, str(n), str(window), str(rate), str(capacity)], check=True,
                                     capture_output=True, text=True).stdout.split()
            yield "self %d %d %.17g %d" % (window, capacity, rate, n), printed


def ramps(path):
    with open(path, encoding="utf-8") as source:
        tree = ast.parse(source.read())
    found = [part for part in tree.body if isinstance(part, ast.FunctionDef) and part.name == "compute_yarn_ramp"]
    torch = types.SimpleNamespace(float32=np.float32, clamp=np.clip, arange=np.arange)
    world = {"math": math, "torch": torch}
    exec(compile(ast.Module(found, []), path, "exec"), world)  # the released function
    for dim, trained, base, fast, slow in JET_LONG:
        ramp = world["compute_yarn_ramp"](dim, trained, base, fast, slow)
        yield "jetlong_freq %d %d %.17g %g %g" % (dim, trained, base, fast, slow), ["%.9g" % x for x in ramp]


if __name__ == "__main__":
    with open(os.path.join(HERE, "released.txt"), "w", encoding="utf-8") as lines:
        for name, numbers in [*logistic(sys.argv[1]), *ramps(sys.argv[2])]:
            lines.write(f"{name}: {' '.join(numbers)}\n")
