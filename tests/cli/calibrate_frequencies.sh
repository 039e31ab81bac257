#!/bin/sh
# calibrate_frequencies.sh BIN: dpe-calibrate --move frequencies. Its tables are those that dpe-detect and dpe-export
# make by themselves, an interrupted batch ends like an undisturbed one, the same command again changes nothing, the
# exported configuration runs the model as the table does, and there is no profile and no choice of key pairs.
set -u
bin=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"
make_model model
common="--model $work/model --corpus $work/corpus --seed 5 --threads 1"
sweep="--length 192 --niah digits=4,keys=2,asked=2 --groups 2 --samples 8 --batch 2 --select paper --temperature off --move frequencies"

# calibrate NAME OPTIONS: into $work/NAME; its output goes to out and err.
calibrate() {
    name=$1
    shift
    # shellcheck disable=SC2086 # lists of words
    "$bin/dpe-calibrate" $common $sweep -o "$work/$name" "$@" >"$work/out" 2>"$work/err"
}

calibrate none --dry-run || fail "--dry-run: $(cat "$work/err")"
[ "$(grep -c '^tokens  ' "$work/out")" = 2 ] && grep -q "^check  *at most 16 samples of" "$work/out" ||
    fail "--dry-run has other parts than sweep and check: $(cat "$work/out")"
[ -e "$work/none" ] && fail "a dry run left files"

# Stopped between the parts, and on.
calibrate factors --time-budget 0.001
code=$?
[ $code = 75 ] && [ ! -e "$work/factors/table.h5" ] || fail "a budget of 1 ms: $code, $(cat "$work/err")"
calibrate factors || fail "--move frequencies: $(cat "$work/err")"
[ "$(cd "$work/factors" && ls | tr '\n' ' ')" = \
    "check.h5 config.json detect.h5 forms.sha256 report.html table.h5 table.json " ] ||
    fail "files: $(ls "$work/factors")"
grep -q "^4 of 4: the report" "$work/err" || fail "parts: $(cat "$work/err")"
grep -q "^moves  *frequencies" "$work/out" && grep -q "what the factors of table.h5 find" "$work/out" &&
    grep -q "factors/table.h5 --gguf MODEL.gguf" "$work/err" || fail "the summary: $(cat "$work/out" "$work/err")"
grep -q "</svg>" "$work/factors/report.html" || fail "a report without figures"
h5dump -d /method "$work/factors/check.h5" >"$work/methods" 2>&1
grep -q '"rope"' "$work/methods" && grep -q '"table:table.h5"' "$work/methods" && ! grep -q "detect.h5" "$work/methods" ||
    fail "check: $(cat "$work/methods")"

# Each part by itself.
# shellcheck disable=SC2086
"$bin/dpe-detect" $common $sweep --quiet -o "$work/detect.h5" >"$work/out" 2>"$work/err" ||
    fail "dpe-detect: $(cat "$work/err")"
same "$work/detect.h5" "$work/factors/detect.h5"
"$bin/dpe-export" "$work/factors/detect.h5" --evidence "$work/factors/check.h5" -o "$work/table.h5" 2>"$work/err" || fail "dpe-export: $(cat "$work/err")"
# What the calibration knows besides, its evidence has too: the validation, which asked for the same as the check.
without=$(h5ls "$work/table.h5/table" | sed -n 's|^\(evidence_[a-z_]*\) .*|--exclude-path=/table/\1|p')
# shellcheck disable=SC2086 # a list of words
[ -n "$without" ] && h5diff --exclude-path=/run $without "$work/table.h5" "$work/factors/table.h5" >"$work/diff" 2>&1 ||
    fail "the table is not that of dpe-export: $(head -5 "$work/diff")"
mkdir "$work/exported"
cp "$work/model"/* "$work/exported"
"$bin/dpe-export" "$work/table.h5" --format longrope --model "$work/model" --force -o "$work/exported/config.json" \
    2>"$work/err" || fail "longrope: $(cat "$work/err")"
sed '/evidence/d' "$work/exported/config.json" >"$work/mine"
sed '/evidence/d' "$work/factors/config.json" | cmp - "$work/mine" || fail "config.json is not that of dpe-export"
grep -q '"longrope"' "$work/factors/config.json" || fail "config.json: $(cat "$work/factors/config.json")"
# nll OPTIONS: of a text that is longer than the trained length.
head -c 3000 "$(ls "$work"/corpus/*.txt | head -1)" >"$work/text.txt"
nll() {
    "$bin/dpe-run" --nll "$work/text.txt" --context 192 --threads 1 --json "$@" 2>"$work/err" |
        sed -n 's/.*"nll": \([0-9.]*\).*/\1/p' | cut -c 1-8
}
by_table=$(nll -m "$work/model" --table "$work/factors/table.h5")
by_folder=$(nll -m "$work/exported")
plain=$(nll -m "$work/model" --method rope)
[ -n "$by_table" ] && [ "$by_table" = "$by_folder" ] && [ "$by_table" != "$plain" ] ||
    fail "nll: table '$by_table', exported folder '$by_folder', the model as it is '$plain': $(cat "$work/err")"

# The same command again, and the same folder with positions, change nothing.
(cd "$work/factors" && sha256sum ./*) >"$work/before"
calibrate factors || fail "run again: $(cat "$work/err")"
grep -q "complete: .*factors has all results of this command; nothing was changed" "$work/err" ||
    fail "run again: $(cat "$work/err")"
calibrate factors --move positions
code=$?
[ $code = 78 ] && grep -q "belongs to a different run; move" "$work/err" || fail "positions: $code, $(cat "$work/err")"
(cd "$work/factors" && sha256sum ./*) | cmp - "$work/before" || fail "a finished calibration was changed"
exit $failed
