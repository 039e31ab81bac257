#!/bin/sh
# detect_resume.sh BIN: what dpe-detect guarantees when it is stopped. A sweep that is killed eight
# times ends with the table of an undisturbed one; signals and time budgets end with 75 and a
# readable table. What needs no model is in tests/detect/test_tool_detect.c.
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"
make_model model
sweep="--model $work/model --corpus $work/corpus --length 192 --task both --groups 2 --samples 30 --lengths 8,32,64
    --select paper --temperature off --seed 5 --threads 1"
# shellcheck disable=SC2086 # several words
detect() {
    "$bin/dpe-detect" $sweep "$@" >"$work/out" 2>"$work/err"
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
detect -o "$work/other.h5" --threads 2 || fail "two threads: $(cat "$work/err")"
same "$work/calm.h5" "$work/other.h5"

# Kills at 8 times; the runs between them are shorter than the whole.
kills=0
while [ $kills -lt 8 ]; do
    # shellcheck disable=SC2086
    "$bin/dpe-detect" $sweep -o "$work/killed.h5" >"$work/out" 2>"$work/err" &
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
    # shellcheck disable=SC2086
    python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$bin/dpe-detect" $sweep -o "$out" >"$work/out" 2>"$work/err" &
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

# It predicts what is then read, as a bound.
for options in "--niah shared=3" "--niah values=1,keys=2,asked=2,shared=2" "--niah shared=2"; do
    rm -f "$work/cost.h5"
    set -- --model "$work/model" --corpus "$work/corpus" --length 192 --groups 2 --samples 24 --lengths 8,32,64 --select paper --temperature off \
        --threads 1 $options
    "$bin/dpe-detect" "$@" --dry-run >"$work/out" 2>"$work/err" || fail "--dry-run $options: $(cat "$work/err")"
    "$bin/dpe-detect" "$@" -o "$work/cost.h5" >"$work/cost" 2>"$work/err" || fail "$options: $(cat "$work/err")"
    predicted=$(sed -n 's/^tokens  *//p' "$work/out" | tail -1)
    did=$(sed -n 's/ tokens were read.*//p' "$work/err")
    awk -v predicted="$predicted" -v did="$did" 'BEGIN { exit !(predicted >= 0.97 * did && predicted < 2.5 * did) }' ||
        fail "--dry-run $options: $predicted tokens, $did were read"
done
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

[ $failed = 0 ] && echo "$kills kills, sweep of $took ms: all as expected"
exit $failed
