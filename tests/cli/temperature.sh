#!/bin/sh
# temperature.sh BIN: an attention temperature from the command line of dpe-detect through its table and every form
# of it to what dpe-run computes; what must be refused, and that one which changes nothing is none.
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
model=$root/data/reference
corpus=$root/data/sample
. "$root/tests/work.sh"

detect() {
    "$bin/dpe-detect" -m "$model" -l 512 --corpus "$corpus" --samples 1 --groups 2 --lengths 128,512 --select paper \
        --device cpu --quiet "$@" >"$work/out" 2>"$work/err"
}
export_() {
    "$bin/dpe-export" "$@" >"$work/out" 2>"$work/err"
}
version() {
    h5dump -a /schema_version "$1" | grep -q "\"$2\"" || fail "$1 is not version $2"
}

detect --temperature off -o "$work/plain.h5" || fail "off: $(cat "$work/err")"
detect --temperature logit-scale=1 -o "$work/off.h5" || fail "logit-scale=1: $(cat "$work/err")"
detect --temperature log-n=128,log-n-power=2,logit-scale=1.2,far-scale=1.1 -o "$work/warm.h5" ||
    fail "log-n: $(cat "$work/err")"
h5diff --exclude-path=/run "$work/plain.h5" "$work/off.h5" >"$work/diff" 2>&1 || fail "a scale of 1 is not off: $(cat "$work/diff")"
version "$work/plain.h5" 9.0.0
version "$work/warm.h5" 9.0.0
for pair in logit_scale/1.2 log_n_length/128 log_n_power/2 log_n_decay/0; do
    h5dump -d "/table/${pair%/*}" "$work/warm.h5" | grep -q "(0): ${pair#*/}\$" || fail "/table/${pair%/*}: $(h5dump -d "/table/${pair%/*}" "$work/warm.h5")"
done
h5dump -n "$work/plain.h5" | grep -q log_n && fail "a table without a temperature holds some of one"

# Every plan but rope has it: of base, cells and joint none is a plan of the other sweep.
h5dump -d /plans/plan "$work/plain.h5" | grep -o '"[0-9a-f]\{32\}"' | sort -u >"$work/plain.keys"
h5dump -d /plans/plan "$work/warm.h5" | grep -o '"[0-9a-f]\{32\}"' | sort -u >"$work/warm.keys"
[ "$(comm -12 "$work/plain.keys" "$work/warm.keys" | wc -l)" = 1 ] ||
    fail "plans that both sweeps have: $(comm -12 "$work/plain.keys" "$work/warm.keys")"
[ "$(wc -l <"$work/plain.keys")" -gt 2 ] || fail "the plans cannot be read"

# The forms that carry it return it; those that cannot are refused unless an option drops it.
export_ "$work/warm.h5" -o "$work/table.h5" || fail "h5: $(cat "$work/err")"
version "$work/table.h5" 9.0.0
export_ "$work/table.h5" -o "$work/table.json" || fail "json: $(cat "$work/err")"
export_ "$work/table.json" -o "$work/table.safetensors" || fail "safetensors: $(cat "$work/err")"
export_ "$work/table.safetensors" -o "$work/back.h5" || fail "back: $(cat "$work/err")"
h5diff "$work/table.h5" "$work/back.h5" /table >"$work/diff" 2>&1 || fail "round trip: $(cat "$work/diff")"
export_ "$work/table.h5" --model "$model" -o "$work/config.json" && grep -q '"log_n_length": 128' "$work/config.json" ||
    fail "hf: $(cat "$work/err")"
export_ --show "$work/table.h5" && grep -q "^temperature  *log-n=128,log-n-power=2,logit-scale=1.2,far-scale=1.1\$" "$work/out" ||
    fail "--show: $(cat "$work/out")"
for form in yaml csv; do
    refused 64 "attention temperature (log-n=128,log-n-power=2,logit-scale=1.2,far-scale=1.1)" \
        "$bin/dpe-export" "$work/table.h5" -o "$work/table.$form"
    [ -e "$work/table.$form" ] && fail "a refused $form was written"
    export_ "$work/table.h5" --drop-temperature -o "$work/table.$form" || fail "$form: $(cat "$work/err")"
    grep -q "written without the table's attention temperature (.*), so results with it differ" "$work/err" ||
        fail "$form: what is lost is not said: $(cat "$work/err")"
done
grep -q "^# log-n=128,log-n-power=2,logit-scale=1.2,far-scale=1.1\." "$work/table.yaml" || fail "the YAML does not name what it leaves out"
refused 64 "the other formats have the temperature" "$bin/dpe-export" "$work/table.h5" --drop-temperature -o "$work/x.json"

# What a table computes is what the same plan computes when it is spelled out.
scales=$(sed -n 's/^  "scale_factor": \[\(.*\)\],$/\1/p' "$work/table.json" | tr , /)
h5dump -d /table/local_window "$work/table.h5" | sed -n '/(0): /{s/.*(0): //p;q;}' >"$work/window"
for how in table method; do
    what="--table $work/table.json"
    [ $how = method ] && what="--method dpe:window=$(cat "$work/window"),scales=$scales,log-n=128,log-n-power=2,logit-scale=1.2,far-scale=1.1"
    # shellcheck disable=SC2086 # two words
    "$bin/dpe-run" -m "$model" --nll "$root/README.md" --context 512 $what --device cpu --quiet >"$work/$how" 2>"$work/err" ||
        fail "dpe-run, $how: $(cat "$work/err")"
done
grep -q perplexity "$work/table" && cmp -s "$work/table" "$work/method" || fail "table and method differ: $(cat "$work/table" "$work/method")"

# An ablation has the detection's, or another.
ablate() {
    "$bin/dpe-eval" ablate -m "$model" --corpus "$corpus" --table "$work/warm.h5" --what scaled-length --values 256 \
        --samples 1 --suite niah --device cpu --quiet "$@" >"$work/out" 2>"$work/err"
}
ablate -o "$work/own.h5" || fail "ablate: $(cat "$work/err")"
ablate --temperature off -o "$work/none.h5" || fail "ablate, off: $(cat "$work/err")"
h5dump -d /plans/plan "$work/own.h5" | grep -o '"[0-9a-f]\{32\}"' | sort -u >"$work/own.keys"
h5dump -d /plans/plan "$work/none.h5" | grep -o '"[0-9a-f]\{32\}"' | sort -u >"$work/none.keys"
[ "$(comm -12 "$work/own.keys" "$work/warm.keys" | wc -l)" = 2 ] || fail "the ablation's rope and base are not the sweep's"
[ "$(comm -12 "$work/none.keys" "$work/plain.keys" | wc -l)" = 2 ] || fail "--temperature off is not without"
ablate --temperature log-n=1 -o "$work/bad.h5"
[ $? = 64 ] && grep -q -- "--temperature: " "$work/err" || fail "ablate --temperature log-n=1: $(cat "$work/err")"

# Bad input: 64 on an option, 65 in a table.
for bad in log-n=1 log-n=-3 log-n=nan logit-scale=0 logit-scale=inf log-n=256,log-n-power=0 log-n-power=2 on automatic; do
    "$bin/dpe-detect" -m "$model" -l 512 --corpus "$corpus" --dry-run -o "$work/no.h5" --temperature "$bad" >"$work/out" 2>"$work/err"
    [ $? = 64 ] && grep -q -- "--temperature: " "$work/err" || fail "--temperature $bad: $(cat "$work/err")"
done
refused 64 "logit-scale: expected a number above 0" "$bin/dpe-run" -m "$model" --show-plan --method dpe:logit-scale=0
for change in '"log_n_length": 128.0/"log_n_length": 1.0' '"logit_scale": 1.2/"logit_scale": -1.2' \
    '"log_n_power": 2.0/"log_n_power": 0.0' '"schema_version": "9.0.0"/"schema_version": "2.0.0"'; do
    sed "s/$change/" "$work/table.json" >"$work/bad.json"
    cmp -s "$work/table.json" "$work/bad.json" && fail "$change changes nothing"
    "$bin/dpe-run" -m "$model" --show-plan --table "$work/bad.json" >"$work/out" 2>"$work/err"
    [ $? = 65 ] || fail "$change: $(cat "$work/err")"
done
exit $failed
