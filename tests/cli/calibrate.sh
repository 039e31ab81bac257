#!/bin/sh
# calibrate.sh BIN: dpe-calibrate has every option of sweep and profile. Its tables are those that
# dpe-detect, dpe-norms and dpe-eval make of the same options by themselves, the same command again changes
# nothing outside /run, and it chooses the number of key pairs also when it is interrupted.
set -u
bin=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"
make_model model
common="--model $work/model --corpus $work/corpus --seed 5 --threads 1 --quiet"
sweep="--length 192 --task niah --niah digits=4,keys=2,asked=2,shared=2,special=literal --groups 2 --samples 12 --lengths 8,32,64 --window 8
    --select paper --temperature off"

# calibrate NAME OPTIONS: into $work/NAME; its output goes to out and err.
calibrate() {
    name=$1
    shift
    # shellcheck disable=SC2086 # lists of words
    "$bin/dpe-calibrate" $common $sweep -o "$work/$name" "$@" >"$work/out" 2>"$work/err"
}
# both NAME OPTIONS: by dpe-calibrate into NAME, by dpe-detect into NAME.h5
both() {
    calibrate "$@" --top-k 2 || fail "dpe-calibrate $*: $(cat "$work/err")"
    name=$1
    shift
    # shellcheck disable=SC2086
    "$bin/dpe-detect" $common $sweep "$@" -o "$work/$name.h5" >"$work/out" 2>"$work/err" ||
        fail "dpe-detect $*: $(cat "$work/err")"
    same "$work/$name/detect.h5" "$work/$name.h5"
}
both raced
both other --niah digits=5
# shellcheck disable=SC2086
"$bin/dpe-norms" $common --special-in-text literal -o "$work/norms.h5" >"$work/out" 2>"$work/err" ||
    fail "dpe-norms: $(cat "$work/err")"
same "$work/raced/norms.h5" "$work/norms.h5"
h5dump -d /method "$work/raced/check.h5" >"$work/out" 2>&1
grep -q '"rope", "table:table.h5"' "$work/out" || fail "check: $(cat "$work/out")"
[ -e "$work/raced/ablate.h5" ] && fail "--top-k 2 measures other numbers"

# Only one batch at a time uses a folder.
exec 9>"$work/raced/LOCK"
flock 9
calibrate raced --top-k 1
code=$?
exec 9>&-
[ $code = 73 ] && grep -q "raced/LOCK: " "$work/err" || fail "a folder in use: $code, $(cat "$work/err")"
both raced

cp "$work/other/detect.h5" "$work/before.h5"
both other --niah digits=5
same "$work/before.h5" "$work/other/detect.h5"

# top_k NAME: of its table.
top_k() {
    h5dump -d /table/top_k "$work/$1/table.h5" | sed -n 's/.*(0): \([0-9]*\)$/\1/p' | head -1
}
# From a given number to one that is measured: sweep and profile stay, and the measurement is dpe-eval's,
# on the sweep's task and other samples. A random model finds nothing, so every pair moves.
cp "$work/raced/detect.h5" "$work/before.h5"
cp "$work/raced/table.h5" "$work/given.h5"
# shellcheck disable=SC2086
calibrate raced || fail "--top-k auto: $(cat "$work/err")"
[ -e "$work/raced/LOCK" ] && fail "a lock is left"
same "$work/before.h5" "$work/raced/detect.h5"
same "$work/norms.h5" "$work/raced/norms.h5"
grep -q "(3 contexts of 4 samples, paired)" "$work/out" && grep -q "^\*  *8  " "$work/out" && grep -q "^8 of 8 move: 7 pairs are not shown" "$work/out" ||
    fail "the choice is not printed: $(cat "$work/out")"
grep -q "Number of key pairs that are scaled" "$work/raced/report.html" || fail "the report is without the choice"
[ "$(top_k raced)" = 8 ] || fail "top-k of the table: $(top_k raced)"
# shellcheck disable=SC2086
"$bin/dpe-eval" ablate --model "$work/model" --corpus "$work/corpus" --threads 1 --quiet --seed 2005 --samples 12 \
    --niah digits=4,keys=2,asked=2,shared=2,special=literal --table "$work/raced/detect.h5" --norms "$work/norms.h5" --what top-k \
    --values 4,5,6,7,8 --alone -o "$work/ablate.h5" >"$work/out" 2>"$work/err" || fail "dpe-eval: $(cat "$work/err")"
same "$work/ablate.h5" "$work/raced/ablate.h5"
# And back: the table is that of the given number.
# shellcheck disable=SC2086
calibrate raced --top-k 2 || fail "--top-k 2 again: $(cat "$work/err")"
same "$work/given.h5" "$work/raced/table.h5"
grep -q "Number of key pairs that are scaled" "$work/raced/report.html" && fail "the report shows a choice that was not made"

# By perplexity, and killed while it measures the number of pairs, with its first rows on disk.
by_books="--length 96 --task ppl --select paper --temperature off --niah special=literal --groups 2 --samples 9 --lengths 16,32 --window 16"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $common $by_books -o "$work/whole" >"$work/out" 2>"$work/err" || fail "by perplexity: $(cat "$work/err")"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $common $by_books -o "$work/killed" >"$work/out" 2>"$work/err" &
pid=$!
until [ -s "$work/killed/ablate.h5.journal/rank-0000.journal" ] || ! kill -0 $pid 2>/dev/null; do :; done
kill -9 $pid
wait $pid
[ -e "$work/killed/table.h5" ] && fail "a table was made without a choice"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $common $by_books -o "$work/killed" >"$work/out" 2>"$work/err" ||
    fail "killed, and on: $(cat "$work/err")"
for table in detect norms ablate table check; do
    same "$work/whole/$table.h5" "$work/killed/$table.h5"
done
for table in ablate check; do
    h5dump -a /eval/ppl/parameters "$work/whole/$table.h5" | grep -q "special=literal" ||
        fail "$table.h5 reads special tokens in its own way"
done
chosen=$(sed -n 's/^\*  *\([0-9][0-9]*\) .*/\1/p' "$work/out")
[ "$chosen" = 8 ] && [ "$(top_k killed)" = 8 ] && grep -q "^8 of 8 move: 7 pairs are not shown" "$work/out" ||
    fail "chosen '$chosen', top-k $(top_k killed): $(cat "$work/out")"

# Run again, a finished calibration changes nothing; --force replaces a file of its name that another run made.
(cd "$work/killed" && sha256sum ./*) >"$work/before"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" ${common% --quiet} $by_books -o "$work/killed" >"$work/out" 2>"$work/err" ||
    fail "run again: $(cat "$work/err")"
(cd "$work/killed" && sha256sum ./*) | cmp - "$work/before" || fail "a finished calibration was changed"
cp "$work/norms.h5" "$work/killed/ablate.h5"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $common $by_books -o "$work/killed" --force >"$work/out" 2>"$work/err" ||
    fail "--force: $(cat "$work/err")"
same "$work/whole/ablate.h5" "$work/killed/ablate.h5"

# A folder whose name looks like an option.
# shellcheck disable=SC2086
(cd "$work" && "$bin/dpe-calibrate" $common $by_books --top-k 2 -o -x) >"$work/out" 2>"$work/err" ||
    fail "-o -x: $(cat "$work/err")"
# Two ranks.
if command -v mpirun >/dev/null; then
    . "$here/mpi_settings.sh"
    # shellcheck disable=SC2086
    timeout -k 5 "$limit" mpirun -n 2 "$bin/dpe-calibrate" $common $by_books -o "$work/two" >"$work/out" 2>"$work/err" ||
        fail "two ranks: $(cat "$work/err")"
    for table in detect norms ablate table check; do
        same "$work/whole/$table.h5" "$work/two/$table.h5"
    done
fi
exit $failed
