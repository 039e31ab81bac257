#!/bin/sh
# export.sh BIN PYTHON SCHEMA_TOOL: calibrates the bundled model with the least work, compares every form of the
# table with the others, tries what must be refused, and kills batch and profile on the way.
set -u
bin=$1
python=$2
schema=$3
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
. "$root/tests/work.sh"
. "$here/../../limits.sh"

calibrate() {
    "$bin/dpe-calibrate" -m "$root/data/reference" -l 512 --corpus "$root/data/sample" --samples 1 \
        --groups 2 --lengths 64,512 --top-k 0.75 --seed 3 "$@" >"$work/out" 2>"$work/err"
}
export_() {
    "$bin/dpe-export" "$@" >"$work/out" 2>"$work/err"
}
run_() {
    "$bin/dpe-run" "$@" >"$work/out" 2>"$work/err"
}
# works WHAT COMMAND...
works() {
    what=$1
    shift
    "$@" || fail "$what: exit $?: $(cat "$work/err")"
}
same() {
    h5diff "$@" >"$work/diff" 2>&1 || fail "h5diff $*: $(head -3 "$work/diff")"
}

all=$work/all
works "dpe-calibrate" calibrate -o "$all"
grep -q "</svg>" "$all/report.html" || fail "no report with figures"
grep -q "^key pairs  *24 of 32" "$work/out" || fail "no summary: $(cat "$work/out")"
"$python" "$here/export_check.py" "$all" "$root/outputs/table/dpe_table.schema.json" || failed=1
"$schema" "$all/detect.h5" "$all/norms.h5" "$all/table.h5" || fail "SCHEMA.md and the tables differ"

# Round trips: every number of /table and /model comes back.
for form in table.json table.safetensors; do
    works "$form to h5" export_ "$all/$form" -o "$work/back.h5" --force
    same "$all/table.h5" "$work/back.h5" /table
    same "$all/table.h5" "$work/back.h5" /model
done
works "h5 to json" export_ "$work/back.h5" -o "$work/back.json"
cmp -s "$all/table.json" "$work/back.json" || fail "json, safetensors, h5, json differ"
works "settings of a YAML" export_ --import-yaml "$all/table.yaml" -m "$root/data/reference" \
    --length 512 -o "$work/yaml.h5"
same "$all/table.h5" "$work/yaml.h5" /table/scale_factor
same "$all/table.h5" "$work/yaml.h5" /table/inv_freq
grep -q "selected_dim_path .* is ignored: this table scales all pairs" "$work/err" ||
    fail "there is no message about pairs that the YAML selects: $(cat "$work/err")"
same "$all/table.h5" "$work/yaml.h5" /model

# Numbers of a YAML are decimal, and it is as deep as settings are.
# wrong_yaml CODE WORDS SED: settings that SED makes wrong are refused.
wrong_yaml() {
    sed "$3" "$all/table.yaml" >"$work/wrong.yaml"
    cmp -s "$all/table.yaml" "$work/wrong.yaml" && fail "$3 changes nothing: $(cat "$all/table.yaml")"
    refused "$1" "$2" export_ --import-yaml "$work/wrong.yaml" -m "$root/data/reference" --length 512 -o "$work/none.h5"
}
wrong_yaml 65 "number" "s/local_window_size: .*/local_window_size: 0x20/"
wrong_yaml 65 "number" "s/local_window_size: .*/local_window_size: 1e2/"
wrong_yaml 65 "number" "s/scale_factors: *\[[^,]*/scale_factors: [0x1p1/"
wrong_yaml 65 "scale_factors: expected a list of numbers" "/scale_factors/d"
wrong_yaml 65 "line 13: local_window_size: expected it once" "s/  local_window_size: .*/&\\n&/"
wrong_yaml 64 "several models: name one; it has: reference, b" "\$ a b: {}\n[c]: {}"
awk 'BEGIN { for (i = 0; i < 40000; i++) printf "{a: "; print "" }' >"$work/deep.yaml"
refused 65 "nested deeper than 64" timeout 10 "$bin/dpe-export" --import-yaml "$work/deep.yaml" \
    -m "$root/data/reference" --length 512 -o "$work/none.h5" 2>"$work/err"

# Other cuts of the same profile.
works "last-k" export_ "$all/detect.h5" "$all/norms.h5" --last-k 8 -o "$work/last.h5"
refused 64 "a share above 0" export_ "$all/detect.h5" "$all/norms.h5" --top-k 0 -o "$work/none.h5"
refused 64 "less than one pair" export_ "$all/detect.h5" "$all/norms.h5" --top-k 0.001 -o "$work/none.h5"
refused 64 "at most 255 bytes of UTF-8" export_ "$all/table.h5" -m "$work/$(printf 'a\377')" -o "$work/none.yaml"
works "no profile" export_ "$all/detect.h5" -o "$work/every.h5"
"$python" - "$all/table.h5" "$work/last.h5" "$work/every.h5" <<'END' || fail "other cuts"
import sys, h5py
top, last, every = (h5py.File(path)["table/mask"][()] for path in sys.argv[1:])
assert (last == 1 - top).all() and every.all()
END
refused 64 "rotate, found 40" export_ "$all/detect.h5" "$all/norms.h5" --top-k 40 -o "$work/no.h5"
refused 64 "--rank 3" export_ "$all/detect.h5" --rank 3 -o "$work/no.h5"
refused 64 "is not a detection" export_ "$all/table.h5" --rank 2 -o "$work/no.h5"
refused 65 "expected a profile of dpe-norms, found none" export_ "$all/detect.h5" "$all/table.h5" -o "$work/no.h5"
"$python" - "$all/table.json" "$work/far.json" <<'END' || fail "a table with a scale of 1e300"
import json, sys
def widen(value):
    if isinstance(value, dict):
        return {k: [1e300] * len(v) if k == "scale_factor" else widen(v) for k, v in value.items()}
    return value
json.dump(widen(json.load(open(sys.argv[1]))), open(sys.argv[2], "w"))
END
grep -q 1e+300 "$work/far.json" || fail "no scale of 1e300"
run_() {
    "$bin/dpe-run" -m "$root/data/reference" "$@" >"$work/out" 2>"$work/err"
}
refused 65 "far.json: scale_factor[0] is 1e+300" run_ --table "$work/far.json" -p a
refused 64 "--format pt writes the scores" export_ "$all/table.h5" -o "$work/no.pt"
refused 78 "exists already" export_ "$all/table.h5" -o "$all/table.json"
head -c 5000 "$all/table.h5" >"$work/short.h5"
refused 65 "short.h5" export_ --show "$work/short.h5"
head -c 700 "$all/table.safetensors" >"$work/short.safetensors"
refused 65 "short.safetensors" export_ --show "$work/short.safetensors"

# Another model: its profile and its folder do not fit.
cp -r "$root/data/reference" "$work/other"
sed -i 's/"rms_norm_eps": 1e-05/"rms_norm_eps": 1e-06/' "$work/other/config.json"
works "the right model" export_ --check "$all/table.h5" -m "$root/data/reference"
refused 65 "which has the same shape but other weights or another configuration" export_ --check "$all/table.h5" -m "$work/other"
norms() {
    "$bin/dpe-norms" --corpus "$root/data/sample" --seed 3 "$@" >"$work/out" 2>"$work/err"
}
works "profile of the other model" norms -m "$work/other" --samples 1 --lengths 32 -o "$work/other.h5"
refused 65 "expected a profile of the model" export_ "$all/detect.h5" "$work/other.h5" --top-k 4 -o "$work/no.h5"
for table in detect norms; do
    fingerprint=$(h5dump -a /model/fingerprint "$all/$table.h5" | sed -n 's/.*"\([0-9a-f]\{16\}\)[0-9a-f]\{48\}".*/\1/p')
    [ $table = norms ] && fingerprint=$(h5dump -a /model/fingerprint "$work/other.h5" |
        sed -n 's/.*"\([0-9a-f]\{16\}\)[0-9a-f]\{48\}".*/\1/p')
    grep -q "${fingerprint:-nothing}" "$work/err" || fail "the fingerprint of $table is not named"
done
"$bin/dpe-run" -m "$root/data/reference" --table "$all/table.h5" -p "One two three" -n 4 \
    >"$work/out" 2>"$work/err" || fail "dpe-run --table: $(cat "$work/err")"

# The profile, stopped again and again, is the undisturbed one.
kills=0
while [ $kills -lt 3 ]; do
    "$bin/dpe-norms" --corpus "$root/data/sample" --seed 3 -m "$root/data/reference" \
        -o "$work/killed.h5" >"$work/out" 2>"$work/err" &
    pid=$!
    sleep 0.0$((3 + 3 * kills))
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    kills=$((kills + 1))
done
norms -m "$root/data/reference" -o "$work/killed.h5" --time-budget 0.01
code=$?
[ $code = 75 ] || [ $code = 0 ] || fail "--time-budget: exit $code: $(cat "$work/err")"
works "the profile goes on" norms -m "$root/data/reference" -o "$work/killed.h5"
same --exclude-path=/run "$all/norms.h5" "$work/killed.h5"
# Without its checksum a table is refused; --unchecked reads it in a child process, whatever is in it.
size=$(($(stat -c %s "$all/table.h5") - 24))
head -c $size "$all/table.h5" >"$work/bare.h5"
refused 65 "bare.h5: has no checksum at its end" export_ --show "$work/bare.h5"
works "a table without its checksum, --unchecked" export_ --show --unchecked "$work/bare.h5"
refused 65 "--unchecked FILE -o NEW.h5" run_ -m "$root/data/reference" --table "$work/bare.h5" --show-plan
works "the same table written anew" export_ --unchecked "$work/bare.h5" -o "$work/anew.h5"
works "a run with the table written anew" run_ -m "$root/data/reference" --table "$work/anew.h5" --show-plan
for part in 3 5 7 9 11 13 15 17 19 21 23; do
    { head -c $((size * part / 25)) "$work/bare.h5"; printf '\377\377\377\377'
        tail -c +$((size * part / 25 + 5)) "$work/bare.h5"; } >"$work/odd.h5"
    # libhdf5 leaks memory on some damaged files; that is not what is tested here.
    (
        export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
        export_ --show --unchecked "$work/odd.h5"
    )
    code=$?
    [ $code = 0 ] || [ $code = 65 ] || fail "a damaged table, --unchecked: exit $code: $(cat "$work/err")"
done
norms -m "$root/data/reference" -o "$work/budget.h5" --time-budget 0.001
code=$?
[ $code = 75 ] || fail "--time-budget 0.001: expected exit 75, got $code: $(cat "$work/err")"
refused 65 "the profile is not complete" export_ "$all/detect.h5" "$work/budget.h5" --top-k 4 -o "$work/no.h5"
refused 78 "contribution" norms -m "$root/data/reference" -o "$work/killed.h5" \
    --contribution mean-of-products

# The batch, killed and stopped, is the undisturbed one; the tool below ends with it.
batch=$work/batch
for signal in KILL TERM KILL; do
    "$bin/dpe-calibrate" -m "$root/data/reference" -l 512 --corpus "$root/data/sample" --samples 1 \
        --groups 2 --lengths 64,512 --top-k 0.75 --seed 3 -o "$batch" >"$work/out" 2>"$work/err" &
    pid=$!
    sleep 0.5
    child=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)
    kill -$signal $pid 2>/dev/null
    wait $pid 2>/dev/null
    code=$?
    if [ $signal = TERM ] && [ -n "$child" ] && [ $code != 75 ]; then
        fail "SIGTERM: expected exit 75, got $code: $(cat "$work/err")"
    fi
    for tool in $child; do
        wait_until gone "$tool" || fail "SIG$signal: the tool below runs on"
    done
done
calibrate -o "$batch" --time-budget 0.001
code=$?
[ $code = 75 ] || [ $code = 0 ] || fail "--time-budget of the batch: exit $code: $(cat "$work/err")"
works "the batch goes on" calibrate -o "$batch"
same --exclude-path=/run "$all/detect.h5" "$batch/detect.h5"
same --exclude-path=/run "$all/norms.h5" "$batch/norms.h5"
same --exclude-path=/run "$all/table.h5" "$batch/table.h5"
cmp -s "$all/table.json" "$batch/table.json" || fail "table.json of the batch differs"
works "the dry run" calibrate --dry-run
{ [ "$(grep -c '^time ' "$work/out")" -ge 3 ] && [ "$(grep -c '^total .* for all parts' "$work/out")" = 1 ]; } ||
    fail "the dry run does not print the time of every part and their total: $(cat "$work/out")"
[ -e "$work/no.h5" ] || [ -e "$work/no.pt" ] && fail "a refused export left a file"
exit $failed
