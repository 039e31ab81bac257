#!/bin/sh
# dtype.sh BIN: --dtype auto takes the type that this machine was measured to be faster in, where a model's weights are
# bf16 or blocks; what was measured is kept; tables say the type that ran, and a run goes on in the one it began in.
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$root/tests/work.sh"
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
mkdir "$work/cache"
unset DPE_CPU

measure() {
    "$bin/dpe-eval" ppl -m "$root/data/reference" --corpus "$root/data/sample" -l 256 --samples 3 --method rope --device cpu \
        --threads 1 --quiet "$@" >"$work/out" 2>"$work/err"
}
# of_table FILE DEVICE TYPE
of_table() {
    values=$(h5dump -y -d /identity/value "$1")
    for value in "$2" "$3"; do
        echo "$values" | grep -q "\"$value\"" || fail "$1: $value is not recorded: $values"
    done
}
# bench MODEL DEVICE: which one runs it
bench() {
    "$bin/dpe-bench" --shape "$root/tests/golden/$1" -l 16 --method rope --repeats 1 --new 1 --threads 1 --device cpu >"$work/out" 2>"$work/err" &&
        grep -q "^# $2: " "$work/out" || fail "$1 under auto: expected $2, found $(cat "$work/out" "$work/err")"
}

measure -o "$work/first.h5" || fail "auto: $(cat "$work/err")"
bench llama cpu
if ! grep -q avx512_bf16 /proc/cpuinfo; then
    [ -e "$work/cache/dpe/devices" ] && fail "a processor without bf16 was measured"
    of_table "$work/first.h5" cpu f32
    refused 69 "use --dtype f32" "$bin/dpe-run" -m "$root/data/reference" --device cpu --dtype bf16 --prompt a --max-new 1
    exit $failed
fi

kept=$work/cache/dpe/devices
[ "$(wc -l <"$kept")" = 1 ] || fail "what was measured is not kept in one line: $(cat "$kept")"
key=$(cut -d ' ' -f 1 "$kept")
# found 0|1: as if f32 or bf16 had been measured to be faster here
found() {
    echo "$key ${1}0000" >"$kept"
}

found 1
measure -o "$work/bf16.h5" || fail "as if bf16 were faster: $(cat "$work/err")"
of_table "$work/bf16.h5" cpu-bf16 bf16
bench llama_bf16 cpu-bf16
bench llama cpu
found 0
measure -o "$work/f32.h5" || fail "as if f32 were faster: $(cat "$work/err")"
of_table "$work/f32.h5" cpu f32
measure --dtype f32 -o "$work/asked.h5" || fail "f32: $(cat "$work/err")"
h5diff "$work/f32.h5" "$work/asked.h5" /rows/nll_sum >"$work/diff" 2>&1 || fail "auto is not f32: $(cat "$work/diff")"
h5diff "$work/f32.h5" "$work/bf16.h5" /rows/nll_sum >/dev/null 2>&1 && fail "both types have the same bits"

# A run goes on in its type, whatever is faster by now; another one is refused.
measure --samples 4 -o "$work/bf16.h5" || fail "bf16 again: $(cat "$work/err")"
of_table "$work/bf16.h5" cpu-bf16 bf16
found 1
measure --samples 4 -o "$work/f32.h5" || fail "f32 again: $(cat "$work/err")"
of_table "$work/f32.h5" cpu f32
for table in f32 bf16; do
    h5ls "$work/$table.h5/rows/nll_sum" | grep -q "{4}" || fail "$table.h5 has no fourth row"
done
refused 78 cpu-bf16 "$bin/dpe-eval" ppl -m "$root/data/reference" --corpus "$root/data/sample" -l 256 --samples 3 --method rope \
    --device cpu --threads 1 --quiet --dtype f32 -o "$work/bf16.h5"
exit $failed
