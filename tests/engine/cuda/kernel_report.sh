#!/bin/sh
# kernel_report.sh NVCC ARCHITECTURE INCLUDE SOURCE…: compile kernels and read the remarks of ptxas.
# With these, which -Werror does not turn into errors, it reports what would halve a kernel's speed: products that it
# serialised (C7510 to C7514), a setmaxnreg that it ignored (C7508), spills, arrays in local memory.
set -eu
nvcc=$1
arch=$2
include=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for source in "$@"; do
    "$nvcc" -std=c++17 -O3 -I"$include" -gencode="arch=compute_$arch,code=sm_$arch" -Xptxas=-v -cubin \
        -o "$work/cubin" "$source" >"$work/report" 2>&1 || { cat "$work/report"; exit 1; }
    if grep -E 'C75(08|1[0-4])' "$work/report"; then
        echo "$source: remarks of ptxas that cost speed" >&2
        exit 1
    fi
    if grep -E 'stack frame' "$work/report" | grep -vE ' 0 bytes stack frame, 0 bytes spill stores, 0'; then
        echo "$source: spills or local memory" >&2
        exit 1
    fi
    grep -E '^ptxas info +: Used' "$work/report" | sort | uniq -c
    test "$(grep -c 'Used .* registers' "$work/report")" -gt 0
done
