#!/bin/sh
# budget.sh BIN: dpe-calibrate --budget. It says what it leaves out, ends with a table, and the same command again changes
# nothing; of a model that finds no needles it chooses by perplexity, also after a kill; a plan of a small budget is a
# candidate of a larger one.
set -u
bin=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
reference="--model $root/data/reference --corpus $root/data/sample --length 512 --threads 1 --dtype f32"

# shellcheck disable=SC2086 # lists of words
"$bin/dpe-calibrate" $reference --budget 60ktok -o "$work/small" >"$work/out" 2>"$work/err" || fail "60ktok: $(cat "$work/err")"
grep -q "^--budget: left out: the sweep of groups" "$work/err" || fail "what was left out: $(cat "$work/err")"
grep -A3 "^512 tokens, 2 times the trained length; [0-9]* samples of " "$work/out" |
    grep -A1 "^unchanged    .* at its trained length\$" | grep -q "^the table    .* (p .*)" ||
    fail "the answer: $(tail -9 "$work/out")"
[ -s "$work/small/no-adapter.json" ] || fail "without an adapter: $(tail -12 "$work/out")"
for file in "$work/small"/*; do # what no line names could be damaged without a word
    [ "${file##*/}" = forms.sha256 ] || grep -q "  ${file##*/}\$" "$work/small/forms.sha256" || fail "not recorded: $file"
done
(cd "$work/small" && sha256sum ./*) >"$work/before"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $reference --budget 60ktok -o "$work/small" >"$work/out" 2>"$work/err" || fail "again: $(cat "$work/err")"
grep -q "nothing was changed" "$work/err" && (cd "$work/small" && sha256sum ./*) | cmp - "$work/before" || fail "again: $(cat "$work/err")"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $reference --budget 1ktok -o "$work/none" >"$work/out" 2>"$work/err"
code=$?
[ $code = 64 ] && grep -q -- "--budget: the smallest calibration takes .* here, and [0-9]* tokens; give more" "$work/err" && [ ! -e "$work/none" ] ||
    fail "1ktok: exit $code, $(cat "$work/err")"
# What is given stays, and more tokens buy the sweep.
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $reference --budget 100Mtok --samples 8 --groups 3 --dry-run >"$work/out" 2>"$work/err" || fail "100Mtok: $(cat "$work/err")"
grep -q "^--budget: left out: nothing" "$work/err" && grep -q "^configurations .* of 3 x" "$work/out" || fail "100Mtok: $(cat "$work/out" "$work/err")"

# More never reads less: every plan of the smaller search is one of the larger, on as many contexts or more.
for budget in 10 90; do
    # shellcheck disable=SC2086
    "$bin/dpe-detect" $reference --budget ${budget}ktok --json -o "$work/$budget.h5" >"$work/$budget.json" 2>"$work/err" ||
        fail "$budget: $(cat "$work/err")"
    # Fresh samples are part of it; texts of at most the trained length are not.
    read=$(sed -n 's/^\([0-9]*\) tokens were read.*/\1/p' "$work/err")
    [ "${read:-0}" -gt 1000 ] && [ "$read" -le $((budget * 1100)) ] || fail "$budget: $read tokens were read"
done
python3 - "$work/10.json" "$work/90.json" <<'END' || fail "a smaller budget read what a larger one did not"
import json, sys
small, large = ({row["method"]: row["contexts"] for row in json.load(open(path))["tried"]} for path in sys.argv[1:])
assert len(small) > 4 and len(large) > len(small)
assert all(large[method] >= n for method, n in small.items())
END

# A model that finds nothing. Killed while it measures texts, and on.
make_model model
weak="--model $work/model --corpus $work/corpus --length 192 --threads 1 --budget 40ktok --dtype f32"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $weak -o "$work/weak" >"$work/out" 2>"$work/err" || fail "a weak model: $(cat "$work/err")"
grep -q "plans are compared on the perplexity of texts: needles say little of it" "$work/err" || fail "a weak model: $(cat "$work/err")"
grep -q "^192 tokens, .* books" "$work/out" && grep -q "^the table    perplexity " "$work/out" || fail "a weak model: $(tail -5 "$work/out")"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $weak -o "$work/killed" >"$work/out" 2>"$work/err" &
pid=$!
until [ -s "$work/killed/detect.h5.journal/rank-0000.journal" ] || ! kill -0 $pid 2>/dev/null; do :; done
kill -9 $pid
wait $pid
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $weak -o "$work/killed" >"$work/out" 2>"$work/err" || fail "killed, and on: $(cat "$work/err")"
for table in detect check table; do
    same "$work/weak/$table.h5" "$work/killed/$table.h5"
done
# With the profile of norms, and the same command again.
for pass in 1 2; do
    # shellcheck disable=SC2086
    "$bin/dpe-calibrate" $weak --budget 4Mtok -o "$work/pairs" >"$work/out" 2>"$work/err" ||
        fail "a weak model with norms, $pass: $(cat "$work/err")"
done
grep -q "nothing was changed" "$work/err" && [ -e "$work/pairs/norms.h5" ] || fail "again: $(cat "$work/err")"
exit $failed
