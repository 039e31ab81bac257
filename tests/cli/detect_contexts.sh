#!/bin/sh
# detect_contexts.sh BIN: samples that share a context are one in every test. Twelve samples say that the
# trained length is not enough at twice as much; three contexts of four keys each cannot, so that the race
# drops nothing (1/8 > 5 %) and the sign-flip test ends at 2/8.
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"
race() {
    name=$1
    shift
    "$bin/dpe-detect" --model "$root/data/reference" --corpus "$root/data/sample" -l 512 --groups 1 \
        --lengths 128,512 --samples 12 --race "$@" -o "$work/$name.h5" >"$work/$name.out" 2>"$work/err" ||
        fail "$name: $(cat "$work/err")"
    h5ls "$work/$name.h5/race/drop" >"$work/$name.drops"
}
race alone
grep -q "Dataset {1}" "$work/alone.drops" || fail "12 samples drop nothing: $(cat "$work/alone.drops")"
grep -q "joint - rope.* p < 0.001, 12 pairs" "$work/alone.out" || fail "12 samples: $(cat "$work/alone.out")"
race contexts --keys-per-context 4
grep -q "Dataset {0}" "$work/contexts.drops" || fail "3 contexts drop: $(cat "$work/contexts.drops")"
grep -q "joint - rope.* p = 0.250, 12 pairs" "$work/contexts.out" || fail "3 contexts: $(cat "$work/contexts.out")"
[ "$(grep -c "12 .*samples (4 a context, which count as one)" "$work/contexts.out")" = 2 ] ||
    fail "contexts are not said: $(cat "$work/contexts.out")"
exit $failed
