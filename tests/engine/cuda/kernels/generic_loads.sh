#!/bin/sh
# generic_loads.sh NVCC INCLUDE SOURCE PATTERN: compiles kernels to PTX and looks for loads whose state space the compiler
# does not know (ld.u32 instead of ld.shared.u32), which take longer. Kernels whose mangled name matches PATTERN, the
# earlier versions, are expected to have some, which shows that the search finds them.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" -std=c++17 -O3 -I"$2" -arch=compute_90 -ptx -o "$work/ptx" "$3"
awk -v earlier="$4" '
    /\.entry / { name = $0; sub(/.*\.entry /, "", name); sub(/\(.*/, "", name); kernels++ }
    /^[ \t]+(@%p[0-9]+ )?ld(\.volatile)?(\.v[248])?\.[usfb][0-9]+/ {
        if (name ~ earlier) expected++
        else { print name ": " $0; wrong++ }
    }
    END {
        printf "%d kernels, %d generic loads in earlier versions\n", kernels, expected
        exit kernels == 0 || expected == 0 || wrong > 0
    }' "$work/ptx"
