#!/bin/sh
# budget.sh BIN: dpe-calibrate --budget. It says what it chooses and what that can show, ends with a table, and the same
# command again changes nothing; of a model that finds no needles it chooses by perplexity, also after a kill; a dry run
# prints three settings, whose speeds it keeps.
set -u
bin=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
reference="--model $root/data/reference --corpus $root/data/sample --length 512 --threads 1 --dtype f32"

# shellcheck disable=SC2086 # lists of words
"$bin/dpe-calibrate" $reference --budget 60ktok -o "$work/ready" >"$work/out" 2>"$work/err" || fail "60ktok: $(cat "$work/err")"
grep -q "^--budget: --select [a-z]*, [0-9]* samples, the best of the methods that are ready[a-z ]* becomes the table, [0-9]* samples in the check; .* at most" \
    "$work/err" && grep -q "that can be shown (p < 0.05, power 0.8): in the sweep .*, in the check from [0-9]* points of recall" "$work/err" ||
    fail "what was chosen: $(cat "$work/err")"
grep -A2 "^512 tokens, 2 times the trained length; [0-9]* samples of .*, [0-9]* of them of the validation:\$" "$work/out" |
    grep -A1 "^  unchanged    .* at its trained length\$" | grep -q "^  the table    .* (p .*)" ||
    fail "the answer: $(tail -9 "$work/out")"
# The table says how many tokens were read, but for those of questions.
read=$(sed -n 's/^\([0-9]*\) tokens were read, .*/\1/p' "$work/err")
said=$("$bin/dpe-export" "$work/ready/table.h5" --show | sed -n 's/^made from  *\([0-9]*\) prompt tokens.*/\1/p')
[ "$said" -le "$read" ] && [ $((said * 11)) -ge $((read * 10)) ] || fail "$read tokens were read, the table says $said"
[ -s "$work/ready/no-adapter.json" ] && grep -q "^Without an adapter take " "$work/out" && grep -q "; no-adapter.json for runtimes" "$work/out" ||
    fail "without an adapter: $(tail -12 "$work/out")"
(cd "$work/ready" && sha256sum ./*) >"$work/before"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $reference --budget 60ktok -o "$work/ready" >"$work/out" 2>"$work/err" || fail "again: $(cat "$work/err")"
grep -q "nothing was changed" "$work/err" && (cd "$work/ready" && sha256sum ./*) | cmp - "$work/before" || fail "again: $(cat "$work/err")"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $reference --budget 1ktok -o "$work/none" >"$work/out" 2>"$work/err"
code=$?
[ $code = 64 ] && grep -q -- "--budget: the smallest calibration takes .* tokens; give more" "$work/err" && [ ! -e "$work/none" ] ||
    fail "1ktok: exit $code, $(cat "$work/err")"

# What is given stays, and more tokens buy a search.
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $reference --budget 10Mtok --samples 8 --groups 3 --dry-run >"$work/out" 2>"$work/err" || fail "10Mtok: $(cat "$work/err")"
grep -q "^--budget: --select joint, 8 samples, the number of key pairs is measured" "$work/err" && grep -q "^configurations .* of 3 x" "$work/out" || fail "10Mtok: $(cat "$work/out" "$work/err")"
# Methods that are ready have no guard, and no steps.
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $reference --budget 60ktok --guard 0.1 --dry-run >"$work/out" 2>"$work/err" || fail "--guard: $(cat "$work/err")"
grep -q "^--budget: --select brief" "$work/err" || fail "--guard: $(cat "$work/err")"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $reference --budget 60ktok --score steps --dry-run >"$work/out" 2>"$work/err"
code=$?
[ $code = 64 ] || fail "--score steps: exit $code, $(cat "$work/err")"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $reference --dry-run >"$work/out" 2>"$work/err" || fail "--dry-run: $(cat "$work/err")"
[ "$(grep -cE "^(quick|default|thorough) .* points of recall\$" "$work/out")" = 3 ] || fail "--dry-run: $(tail -5 "$work/out")"
# What bfloat16 is worth is not said where a type is given.
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $reference --dry-run --dtype f32 >"$work/out" 2>"$work/err" || fail "--dtype f32: $(cat "$work/err")"
! grep -q "times as fast here" "$work/out" || fail "--dtype f32: $(tail -5 "$work/out")"
# A text is read once for all batches of answers.
[ "$(wc -l <"$work/cache/dpe/speeds")" -gt "$(cut -d " " -f 4 "$work/cache/dpe/speeds" | sort -u | wc -l)" ] ||
    fail "speeds that are kept: $(cat "$work/cache/dpe/speeds")"

# A model that finds nothing. Killed while it measures texts, and on.
make_model model
weak="--model $work/model --corpus $work/corpus --length 192 --threads 1 --budget 100ktok --dtype f32"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $weak -o "$work/weak" >"$work/out" 2>"$work/err" || fail "a weak model: $(cat "$work/err")"
grep -q "needles say little of this model: in its own trained length it finds 0 %" "$work/err" && [ -e "$work/weak/needles.h5" ] ||
    fail "a weak model: $(cat "$work/err")"
grep -q "^192 tokens, .* books" "$work/out" && grep -q "^  the table    perplexity " "$work/out" || fail "a weak model: $(tail -5 "$work/out")"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $weak -o "$work/weak" >"$work/out" 2>"$work/err" || fail "a weak model again: $(cat "$work/err")"
grep -q "nothing was changed" "$work/err" && grep -q "^  the table    perplexity " "$work/out" || fail "a weak model again: $(cat "$work/err")"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $weak -o "$work/killed" >"$work/out" 2>"$work/err" &
pid=$!
until [ -s "$work/killed/needles.h5" ] && [ -s "$work/killed/detect.h5.journal/rank-0000.journal" ] || ! kill -0 $pid 2>/dev/null; do :; done
kill -9 $pid
wait $pid
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $weak -o "$work/killed" >"$work/out" 2>"$work/err" || fail "killed, and on: $(cat "$work/err")"
for table in needles detect check table; do
    same "$work/weak/$table.h5" "$work/killed/$table.h5"
done
exit $failed
