#!/bin/sh
# calibrate_tuned.sh BIN: dpe-calibrate --against tuned. Each entry's other methods are tuned before its sweep, by what dpe-eval
# tune makes of the same options; the sweep is what dpe-detect makes with that table; an interrupted batch continues.
set -u
bin=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"
make_model model
common="--model $work/model --corpus $work/corpus --threads 1 --quiet"
needles="digits=4,values=1"
sweep="--niah $needles --groups 2 --samples 8 --lengths 32,64 --window 8 --keys-per-context 2 --select guarded --temperature off"

calibrate() {
    name=$1
    shift
    # shellcheck disable=SC2086 # lists of words
    "$bin/dpe-calibrate" $common $sweep --seed 5 --norm-lengths 32 --norm-samples 2 --special-in-text literal --top-k 2 \
        -o "$work/$name" "$@" >"$work/out" 2>"$work/err"
}
calibrate whole -l 96,128 --against tuned --tune-budget 160 || fail "two lengths: $(cat "$work/err")"
grep -q "^  96/tune.h5 128/tune.h5 96/detect.h5 128/detect.h5 norms.h5 check.h5$" "$work/out" && grep -q "^$work/whole:$" "$work/out" || fail "files: $(tail -5 "$work/out")"
grep -q "tuned" "$work/whole/report.html" || fail "a report without the settings"
for length in 96 128; do
    # shellcheck disable=SC2086
    "$bin/dpe-eval" tune $common -l $length --niah "$needles,asked=2,keys=2" --seed 505 --method yarn --method self-extend \
        --method leaky-rerope --method lampe --temperature grid --budget 160 --samples 4 -o "$work/tune-$length.h5" \
        >"$work/out" 2>"$work/err" || fail "dpe-eval tune: $(cat "$work/err")"
    same "$work/tune-$length.h5" "$work/whole/$length/tune.h5"
done
# shellcheck disable=SC2086
"$bin/dpe-detect" $common $sweep --seed 5 -l 96 --against "$work/tune-96.h5" -o "$work/96.h5" >"$work/out" 2>"$work/err" ||
    fail "dpe-detect: $(cat "$work/err")"
same "$work/96.h5" "$work/whole/96/detect.h5"
# strings TABLE DATASET: its values, a line each.
strings() {
    h5dump -y -w 0 -d "$2" "$1" | sed -n '/ DATA {/,/}/{p;/}/q}' | grep -o '"[^"]*"' | tr -d '"'
}
strings "$work/whole/96/tune.h5" /tune/chosen >"$work/chosen"
[ "$(sed 's/:.*//' "$work/chosen" | tr '\n' ' ')" = "yarn self-extend leaky-rerope lampe " ] || fail "tuned: $(cat "$work/chosen")"
strings "$work/whole/96/detect.h5" /validated_plan | sed 1,3d | diff "$work/chosen" - >"$work/diff" || fail "validated: $(cat "$work/diff")"

# The same command changes nothing; without its settings a sweep does not begin.
cp "$work/whole/96/tune.h5" "$work/before.h5"
calibrate whole -l 96,128 --against tuned --tune-budget 160 || fail "again: $(cat "$work/err")"
grep -q "^  96/tune.h5 " "$work/out" && cmp -s "$work/before.h5" "$work/whole/96/tune.h5" || fail "again: $(cat "$work/out")"
mv "$work/whole/96/tune.h5" "$work/away.h5"
calibrate whole -l 96,128 --against tuned --tune-budget 160 || fail "settings that were moved away: $(cat "$work/err")"
same "$work/away.h5" "$work/whole/96/tune.h5"
same "$work/96.h5" "$work/whole/96/detect.h5"

# Stopped again and again, each time later.
hundredths=5
until calibrate stopped -l 96 --against tuned --tune-budget 160 --time-budget "$(printf %d.%02d $((hundredths / 100)) $((hundredths % 100)))"; do
    code=$?
    hundredths=$((hundredths + 20))
    [ $code = 75 ] && [ $hundredths -lt 30000 ] || { fail "stopped: exit $code: $(cat "$work/err")"; break; }
done
[ $hundredths -gt 5 ] || fail "was not stopped"
same "$work/tune-96.h5" "$work/stopped/tune.h5"
same "$work/96.h5" "$work/stopped/detect.h5"

calibrate none -l 96,128 --against tuned --dry-run || fail "--dry-run: $(cat "$work/err")"
[ "$(grep -c "^--against tuned  *at most 1632 samples of " "$work/out")" = 2 ] && [ "$(grep -c '^tokens  ' "$work/out")" = 7 ] ||
    fail "--dry-run: $(cat "$work/out")"
[ -e "$work/none" ] && fail "a dry run left files"
# The budget that is not given grows with the samples that share a context: 1200 rows for each method, and 12 samples twice.
calibrate none -l 256 --against tuned --keys-per-context 12 --samples 12 --dry-run || fail "--dry-run with 12 keys: $(cat "$work/err")"
grep -q "^--against tuned  *at most 4896 samples of " "$work/out" || fail "--dry-run with 12 keys: $(cat "$work/out")"
exit $failed
