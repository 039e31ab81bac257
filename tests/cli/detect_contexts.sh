#!/bin/sh
# detect_contexts.sh BIN: samples that share a context are one in every test. Twelve samples show that the
# trained length is not enough at twice as much; three contexts of four keys each show it less surely, by Student's t, and
# a race, whose sign-flip test gives at least 2/8 there, drops nothing before the fifth (1/32 < 5 %).
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"
race() {
    name=$1
    shift
    "$bin/dpe-detect" --model "$root/data/reference" --corpus "$root/data/sample" -l 512 --groups 1 --select paper --temperature off \
        --lengths 128,512 --race "$@" -o "$work/$name.h5" >"$work/$name.out" 2>"$work/err" ||
        fail "$name: $(cat "$work/err")"
    h5ls "$work/$name.h5/race/drop" >"$work/$name.drops"
}
race alone --samples 12
grep -q "Dataset {1}" "$work/alone.drops" || fail "12 samples drop nothing: $(cat "$work/alone.drops")"
grep -q "joint - rope.* p < 0.001, 12 pairs" "$work/alone.out" || fail "12 samples: $(cat "$work/alone.out")"
race contexts --samples 12 --keys-per-context 4
grep -q "Dataset {0}" "$work/contexts.drops" || fail "3 contexts drop: $(cat "$work/contexts.drops")"
grep -q "joint - rope.* p = 0.019, 12 pairs" "$work/contexts.out" || fail "3 contexts: $(cat "$work/contexts.out")"
[ "$(grep -c "12 .*samples (4 in a row share a context and count as one)" "$work/contexts.out")" = 2 ] ||
    fail "contexts are not printed: $(cat "$work/contexts.out")"
grep -q "race drops nothing: at level 0.05 .* before 20 samples (.*), but --samples is 12" "$work/err" ||
    fail "a race that cannot drop anything: $(cat "$work/err")"
race five --samples 24 --keys-per-context 4
grep -q "drops nothing" "$work/err" && fail "20 of 24: $(cat "$work/err")"
h5dump -d /race/dropped_after "$work/five.h5" >"$work/five.drops"
grep -q "(0,0): -1, 20" "$work/five.drops" || fail "not dropped after 20 samples: $(cat "$work/five.drops")"
# One context has no interval, and no output prints one.
race one --samples 4 --keys-per-context 4
"$bin/dpe-report" "$work/one.h5" -o "$work/one.html" --no-figures >"$work/out" 2>&1 || fail "report: $(cat "$work/out")"
grep -qi "[^a-z]nan[^a-z]" "$work/one.out" "$work/one.html" && fail "NaN is shown: $(cat "$work/one.out")"
grep -q "joint - rope  +0.[0-9]*  p = 1.000, 4 pairs" "$work/one.out" || fail "one context: $(cat "$work/one.out")"
grep -q "(4 in a row share a context and count as one in the statistics)" "$work/one.html" || fail "the report does not mention contexts"
exit $failed
