#!/bin/sh
# detect_resume.sh BIN: what dpe-detect guarantees when it is stopped. A sweep that is killed twenty
# times ends with the table of an undisturbed one; signals and time budgets end with 75 and a
# readable table; a table of another model is refused. What needs no model is in tests/detect/test_tool_detect.c.
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"
make_model model
detect() {
    "$bin/dpe-detect" --model "$work/model" --corpus "$work/corpus" --length 192 --task both \
        --groups 2 --samples 30 --lengths 8,32,64 --select paper --temperature off --seed 5 --threads 1 "$@" >"$work/out" 2>"$work/err"
}
complete() {
    h5dump -a /complete "$1" 2>/dev/null | grep -q "(0): $2" || fail "$1: complete is not $2"
}

# begun TABLE [BYTES]: waits until process $pid has written so much of its journal (default: a byte), so
# that a stop falls into the sweep on any machine.
begun() {
    wait_until begun_or_gone "$1.journal/rank-0000.journal" "${2:-0}"
}
begun_or_gone() {
    bytes "$1" "$2" || gone $pid
}

start=$(date +%s%N)
detect -o "$work/calm.h5" || fail "undisturbed sweep: $(cat "$work/err")"
took=$((($(date +%s%N) - start) / 1000000))
complete "$work/calm.h5" 1
[ -e "$work/calm.h5.journal" ] && fail "a finished sweep left its journal"
detect -o "$work/again.h5" || fail "second sweep: $(cat "$work/err")"
same "$work/calm.h5" "$work/again.h5"
detect -o "$work/one.h5" --threads 2 || fail "sweep with two threads: $(cat "$work/err")"
same "$work/calm.h5" "$work/one.h5"

for batch in 1 7; do
    detect -o "$work/batch$batch.h5" --batch $batch || fail "--batch $batch: $(cat "$work/err")"
    same "$work/calm.h5" "$work/batch$batch.h5"
done

# Kills at 20 times; the runs between them are shorter than the whole.
kills=0
while [ $kills -lt 20 ]; do
    "$bin/dpe-detect" --model "$work/model" --corpus "$work/corpus" --length 192 --task both \
        --groups 2 --samples 30 --lengths 8,32,64 --select paper --temperature off --seed 5 --threads 1 -o "$work/killed.h5" >"$work/out" 2>"$work/err" &
    pid=$!
    begun "$work/killed.h5"
    sleep "$(awk -v t="$took" -v k=$kills 'BEGIN { printf "%.3f", t / 1000 * 0.01 * (k % 8) }')"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    kills=$((kills + 1))
done
detect -o "$work/killed.h5" || fail "resume after kills: $(cat "$work/err")"
complete "$work/killed.h5" 1
same "$work/calm.h5" "$work/killed.h5"

# Signals: 75, a table that is marked incomplete, and the same command continues.
for signal in TERM INT USR1; do
    out="$work/$signal.h5"
    # dash starts background jobs with SIGINT ignored; python gives it back.
    python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$bin/dpe-detect" --model "$work/model" \
        --corpus "$work/corpus" --length 192 --task both --groups 2 --samples 30 --lengths 8,32,64 --select paper --temperature off --seed 5 --threads 1 \
        -o "$out" >"$work/out" 2>"$work/err" &
    pid=$!
    begun "$out" 2000
    kill -$signal $pid
    wait $pid
    code=$?
    [ $code = 75 ] || fail "SIG$signal: expected exit 75, got $code: $(cat "$work/err")"
    grep -q "run the same command to continue" "$work/err" || fail "SIG$signal: $(cat "$work/err")"
    complete "$out" 0
    detect -o "$out" || fail "resume after SIG$signal: $(cat "$work/err")"
    same "$work/calm.h5" "$out"
done
# (a machine that is less busy than when the sweep was timed may end it within a budget: then less).
part=4
code=0
while [ $code = 0 ] && [ $part -lt 5000 ]; do
    rm -f "$work/budget.h5"
    detect -o "$work/budget.h5" --time-budget "$(awk -v t="$took" -v p=$part 'BEGIN { printf "%.3f", t / 1000 / p }')"
    code=$?
    part=$((part * 4))
done
[ $code = 75 ] || fail "--time-budget: expected exit 75, got $code: $(cat "$work/err")"
complete "$work/budget.h5" 0
detect -o "$work/budget.h5" || fail "resume after the budget: $(cat "$work/err")"
same "$work/calm.h5" "$work/budget.h5"

# It predicts what is then read: the sweep's five configurations, and the validation's three.
for options in "--haystack shared=3" "--niah values=1 --keys-per-context 2 --haystack shared=2" \
    "--batch 3 --haystack shared=2"; do
    rm -f "$work/cost.h5"
    set -- --model "$work/model" --corpus "$work/corpus" --length 192 --groups 2 --samples 24 --lengths 8,32,64 --select paper --temperature off \
        --threads 1 $options
    "$bin/dpe-detect" "$@" --dry-run >"$work/out" 2>"$work/err" || fail "--dry-run $options: $(cat "$work/err")"
    "$bin/dpe-detect" "$@" -o "$work/cost.h5" >"$work/cost" 2>"$work/err" || fail "$options: $(cat "$work/err")"
    predicted=$(sed -n 's/.*\(distinct configurations (always)\|read once\)  *\([0-9.e+]*\) tokens.*/\2/p' "$work/out" | tail -1)
    did=$(sed -n 's/ tokens were read.*//p' "$work/err")
    awk -v predicted="$predicted" -v did="$did" 'BEGIN { d = predicted * 8 / 5 / did; exit !(d > 0.97 && d < 1.03) }' ||
        fail "--dry-run $options: $predicted tokens for the sweep, $did were read for sweep and validation"
done
race() {
    out=$1
    shift
    "$bin/dpe-detect" --model "$work/model" --corpus "$work/corpus" --length 192 --task ppl --groups 2 \
        --samples 5 --lengths 8,32,64 --select paper --temperature off --seed 5 --threads 1 -o "$work/$out" "$@" >"$work/out" 2>"$work/err"
}
# How many are decoded together decides nothing, also when races could look later for it.
for batch in 1 8; do
    race racing$batch.h5 --task niah --samples 12 --race --batch $batch || fail "--race: $(cat "$work/err")"
done
same "$work/racing1.h5" "$work/racing8.h5"
for options in "" --dry-run; do
    "$bin/dpe-detect" --model "$work/model" --corpus "$work/corpus" --length 192 --lengths 8,32,64 --select paper --temperature off --samples 12 \
        --race --batch 8 -o "$work/racing.h5" --time-budget 0.001 $options >"$work/out" 2>"$work/err"
    grep -q "^--batch 8: a race looks at its rows after every 4 samples" "$work/err" ||
        fail "--race --batch 8 $options does not print that it decodes 4 samples together: $(cat "$work/err")"
done

# A table of another model is not touched.
cp "$work/calm.h5" "$work/kept.h5"
cp -r "$work/model" "$work/other"
sed -i 's/"rms_norm_eps": 1e-05/"rms_norm_eps": 1e-06/' "$work/other/config.json"
refused() {
    words=$1
    shift
    detect -o "$work/calm.h5" "$@"
    code=$?
    [ $code = 78 ] || fail "$words: expected exit 78, got $code: $(cat "$work/err")"
    grep -q "$words" "$work/err" || fail "$words is not named: $(cat "$work/err")"
    cmp -s "$work/calm.h5" "$work/kept.h5" || fail "$words: the table was touched"
    [ -e "$work/calm.h5.journal" ] && fail "$words: a journal was left"
}
refused model --model "$work/other"
# Logits that are not numbers: rows record them; exit 70 once there are too many, also when resumed.
make_model nan nan
for again in "" again; do
    detect -o "$work/nan.h5" --model "$work/nan"
    code=$?
    [ $code = 70 ] || fail "NaN weights $again: expected exit 70, got $code: $(cat "$work/err")"
    grep -q "NaN or infinity" "$work/err" || fail "NaN weights $again: $(cat "$work/err")"
    complete "$work/nan.h5" 0
done
h5dump -d /rows/layer "$work/nan.h5" | grep -q "(0): 0" || fail "NaN weights: the layer is not named"

# A dry run needs no weights and writes nothing; what it prints is a plan.
make_model huge huge
detect --model "$work/huge" --length 8192 --lengths auto --groups 8 --task ppl --samples 1 --dry-run
code=$?
[ $code = 65 ] || fail "dry run on books that are too short: expected exit 65, got $code"
"$bin/dpe-detect" --model "$work/huge" --corpus "$root/data/sample" --length 8192 --dry-run \
    >"$work/out" 2>"$work/err" || fail "dry run of 70B: $(cat "$work/err")"
grep -q "131 GiB of weights" "$work/out" && grep -q "not measured" "$work/out" ||
    fail "dry run of 70B: $(cat "$work/out")"

[ $failed = 0 ] && echo "$kills kills, sweep of $took ms: all as expected"
exit $failed
