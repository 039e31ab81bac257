#!/bin/sh
# generic_loads.sh NVCC INCLUDE SOURCE SLOW: compiles kernels to PTX and looks for loads whose state space the compiler
# does not know (ld.u32 instead of ld.shared.u32), which take longer. SLOW is a source that has some, which shows that the
# search finds them.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# search SOURCE: such loads, with their kernels; fails where there is no kernel.
search() {
    "$nvcc" -std=c++17 -O3 -I"$include" -arch=compute_90 -ptx -o "$work/ptx" "$1"
    awk '
        /\.entry / { name = $0; sub(/.*\.entry /, "", name); sub(/\(.*/, "", name); kernels++ }
        /^[ \t]+(@%p[0-9]+ )?ld(\.volatile)?(\.v[248])?\.[usfb][0-9]+/ { print name ": " $0 }
        END { exit kernels == 0 }' "$work/ptx"
}
nvcc=$1
include=$2
search "$4" >"$work/slow"
[ -s "$work/slow" ] || { echo "no generic load found in $4"; exit 1; }
search "$3" >"$work/found"
cat "$work/found"
[ ! -s "$work/found" ]
