#!/bin/sh
# search.sh BIN: a search with a sweep before it and a guard on perplexity that is killed anywhere ends with the table of an
# undisturbed one, as does one of two ranks; a dry run names its cost. What it reads and chooses is in
# tests/detect/test_search.c.
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"

# A trained length that is not the model's leaves something to find at a length that costs little.
search="-m $root/data/reference -l 256 --corpus $root/data/sample --trained-length 64 --samples 16 --groups 2
    --lengths 16,32,64,128 --seed 5 --select both --task user --threads 1 --device cpu --dtype f32 --budget 60ktok --against ntk"
# shellcheck disable=SC2086 # several words
search() {
    "$bin/dpe-detect" $search "$@" >"$work/out" 2>"$work/err"
}
search -o "$work/calm.h5" &
pid=$!
journal=0
while kill -0 $pid 2>/dev/null; do
    now=$(stat -c %s "$work/calm.h5.journal/rank-0000.journal" 2>/dev/null) && journal=$now
done
wait $pid || fail "search: $(cat "$work/err")"
cp "$work/out" "$work/calm.txt"
grep -q "plans were tried in [0-9]* contexts" "$work/calm.txt" && grep -q "^  perplexity " "$work/calm.txt" ||
    fail "no search, or no guard: $(cat "$work/calm.txt")"
# The dry run's cost is a bound of the tokens that a run says it has read and generated.
read_tokens=$(awk '/tokens were read/ { print $1 + $5 }' "$work/err")
search --dry-run -o "$work/none.h5" || fail "dry run: $(cat "$work/err")"
sed -n 's/^tokens  *//p' "$work/out" | awk -v r="$read_tokens" '{ exit !(r > 0 && $1 >= r) }' ||
    fail "dry run: fewer tokens than the $read_tokens that were read: $(cat "$work/out")"

# And at most twice what a default search reads; that search ends with its first heat. Decoded tokens are left out here.
# shellcheck disable=SC2086 # several words
usual="-m $root/data/reference -l 512 --corpus $root/data/sample --threads 1 --device cpu --dtype f32"
"$bin/dpe-detect" $usual -o "$work/usual.h5" >"$work/out" 2>"$work/err" || fail "a default search: $(cat "$work/err")"
read_tokens=$(awk '/tokens were read/ { print $1 }' "$work/err")
"$bin/dpe-detect" $usual --dry-run -o "$work/none.h5" >"$work/out" 2>"$work/err" || fail "dry run: $(cat "$work/err")"
sed -n 's/^tokens  *//p' "$work/out" | awk -v r="$read_tokens" '{ exit !(r > 0 && $1 >= r && $1 <= 2 * r) }' ||
    fail "dry run: expected $read_tokens to twice as many tokens: $(cat "$work/out")"

# Kills in every stage: at parts of the undisturbed run's journal. One that is asked to stop says that its samples are saved.
for part in 2 14 26 31; do
    # shellcheck disable=SC2086 # several words
    "$bin/dpe-detect" $search -o "$work/killed.h5" >"$work/out" 2>"$work/err" &
    pid=$!
    # shellcheck disable=SC2317 # called by wait_until
    far() {
        bytes "$work/killed.h5.journal/rank-0000.journal" $((journal * part / 32)) || gone $pid
    }
    wait_until far || fail "part $part of the journal was not written"
    case $part in
    14 | 31)
        kill -TERM $pid 2>/dev/null
        wait $pid 2>/dev/null
        grep -q "samples are saved;\|tokens were read" "$work/err" || fail "part $part: $(cat "$work/err")"
        ;;
    *)
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
        ;;
    esac
done
search -o "$work/killed.h5" || fail "resume after kills: $(cat "$work/err")"
same "$work/calm.h5" "$work/killed.h5"
sed '/^table: /d' "$work/calm.txt" >"$work/a"
sed '/^table: /d' "$work/out" | diff "$work/a" - >"$work/diff" || fail "after kills: $(cat "$work/diff")"

# Two ranks.
if command -v mpirun >/dev/null; then
    . "$here/mpi_settings.sh"
    # shellcheck disable=SC2086 # several words
    timeout -k 5 "$limit" mpirun -n 2 "$bin/dpe-detect" $search -o "$work/two.h5" >"$work/out" 2>"$work/err" ||
        fail "two ranks: $(cat "$work/err")"
    same "$work/calm.h5" "$work/two.h5"
fi
exit $failed
