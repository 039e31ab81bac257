#!/bin/sh
# calibrate.sh BIN: dpe-calibrate hands every option of sweep and profile on. Its tables are those that
# dpe-detect and dpe-norms make of the same options by themselves, and the same command again changes
# nothing outside /run.
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"
make_model model
common="--model $work/model --corpus $work/corpus --seed 5 --threads 1 --quiet"
sweep="--length 192 --task niah --niah digits=4 --groups 2 --samples 12 --lengths 8,32,64 --window 8
    --batch 2 --haystack shared=2 --keys-per-context 2"
profile="--contribution mean-of-products --special-in-text literal"

# both NAME OPTIONS: by dpe-calibrate into NAME, by dpe-detect into NAME.h5
both() {
    name=$1
    shift
    # shellcheck disable=SC2086 # lists of words
    timeout 100 "$bin/dpe-calibrate" $common $sweep $profile --norm-lengths 32,64 --norm-samples 3 --top-k 2 \
        -o "$work/$name" "$@" >"$work/out" 2>"$work/err" || fail "dpe-calibrate $*: $(cat "$work/err")"
    # shellcheck disable=SC2086
    "$bin/dpe-detect" $common $sweep "$@" -o "$work/$name.h5" >"$work/out" 2>"$work/err" ||
        fail "dpe-detect $*: $(cat "$work/err")"
    same "$work/$name/detect.h5" "$work/$name.h5"
}
both raced --select guarded --race --race-level 0.1 --race-indifference 0.01
both sequential --select sequential --rounds 2
# shellcheck disable=SC2086
"$bin/dpe-norms" $common $profile --lengths 32,64 --samples 3 -o "$work/norms.h5" >"$work/out" 2>"$work/err" ||
    fail "dpe-norms: $(cat "$work/err")"
same "$work/raced/norms.h5" "$work/norms.h5"
h5dump -d /method "$work/raced/check.h5" >"$work/out" 2>&1
grep -q '"table:detect.h5"' "$work/out" && grep -q '"table:table.h5"' "$work/out" || fail "check: $(cat "$work/out")"
h5ls "$work/raced/detect.h5/race" >"$work/out" 2>&1 || fail "no race: $(cat "$work/out")"

cp "$work/sequential/detect.h5" "$work/before.h5"
both sequential --select sequential --rounds 2
same "$work/before.h5" "$work/sequential/detect.h5"
exit $failed
