#!/bin/sh
# install.sh BUILD CC: installs into a temporary folder, builds the example against it as another program would,
# through CMake and through pkg-config, and compares its output with numbers worked out by hand.
set -u
build=$1
cc=$2
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}
cmake --install "$build" --prefix "$work/prefix" >"$work/log" 2>&1 || fail "install: $(cat "$work/log")"
# Moved after it was installed: no file in it may contain the old path.
mv "$work/prefix" "$work/dpe"
# A path begins where no other one goes on: of a tree at /dpe, share/dpe is no part.
contains() {
    grep -rIlE "(^|-[IL]|[^]}[:alnum:]_./~-])$(printf '%s' "$1" | sed 's/[][\.*^$+?(){}|]/\\&/g')(/|[^[:alnum:]_.-]|\$)" "$2"
}
printf 'prefix=/a/dpe\n-I/dpe.x\n../dpe ${prefix}/dpe [/dpe2]\n' >"$work/other"
for text in /dpe /dpe/lib -I/dpe/include '"/dpe"' prefix=/dpe a:/dpe/b; do
    echo "$text" >"$work/own"
    contains /dpe "$work/own" >/dev/null || fail "the path /dpe is not found in $text"
done
contains /dpe "$work/other" && fail "the path /dpe is found in others"
contains "$root" "$work/dpe" && fail "these files contain the path that they were made in"
contains "$work/prefix" "$work/dpe" && fail "these files contain the path that they were installed to first"
"$root/tests/lib/run_paths.sh" "$work/dpe" || fail "a run path"
for tool in run detect norms export calibrate eval report; do
    "$work/dpe/bin/dpe-$tool" --version >/dev/null || fail "dpe-$tool does not run"
done
# An overrun ends them: arrays on the stack are watched, addresses of functions cannot be written.
for file in "$work"/dpe/bin/dpe-*; do
    head -c 4 "$file" | grep -q ELF && command -v readelf >/dev/null || continue
    grep -q __asan_init "$file" && continue
    readelf -dW "$file" | grep -q -e BIND_NOW -e "Flags:.* NOW" || fail "$file binds functions when they are called"
    readelf -lW "$file" | grep -q GNU_RELRO || fail "$file has no read-only relocations"
    readelf -sW --dyn-syms "$file" | grep -q __stack_chk_fail || fail "$file does not watch its stack"
done
for file in dpe/templates/ruler.json dpe/SCHEMA.md dpe/gguf_to_hf.py dpe/transformers/dpe_attention.py \
    dpe/transformers/dpe_plan.py dpe/transformers/pyproject.toml dpe/vllm/dpe_vllm/backend.py dpe/vllm/pyproject.toml dpe/example/CMakeLists.txt doc/dpe/README.md doc/dpe/LICENSE; do
    [ -s "$work/dpe/share/$file" ] || fail "share/$file is missing"
done

if command -v lowdown >/dev/null; then
    grep -q "schema_version" "$work/dpe/share/man/man5/dpe-table.5" || fail "no manual page of tables"
fi
# A page for every tool and command whose help is tested, with a section of options, and each example on lines of its own.
if command -v help2man >/dev/null; then
    for help in "$root"/tests/cli/*.help; do
        page=$(basename "$help" .help)
        [ "$page" != dpe-serve ] || [ -e "$work/dpe/bin/dpe-serve" ] || continue
        page=$work/dpe/share/man/man1/$page.1
        [ -s "$page" ] || fail "no manual page $page"
        grep -q '^\.SH OPTIONS' "$page" || fail "$page: no section of options"
        examples=$(awk '/^Example/ { n = 0 } /^  dpe/ { n++ } END { print n + 0 }' "$help")
        shown=$(awk '/^[.]SH/ { inside = $2 == "EXAMPLES" } inside && /^  dpe/' "$page" | wc -l)
        [ "$shown" -eq "$examples" ] || fail "$page: expected $examples lines that begin an example, found $shown"
    done
    if command -v lowdown >/dev/null; then
        grep -q '^THE SEARCH' "$work/dpe/share/man/man1/dpe-detect.1" || fail "dpe-detect(1) has no section of the search"
    fi
fi

# Two heads of four pairs in two groups, scales 4 and 1; the second head moves no pair.
fingerprint=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
cat >"$work/table.json" <<END
{"schema_name": "dpe-table", "schema_version": "9.0.0", "adapter_required": true,
 "model": {"model_type": "llama", "fingerprint": "$fingerprint", "n_layers": 1, "n_heads": 2,
           "n_kv_heads": 1, "head_dim": 8},
 "trained_length": 64, "evaluated_length": 104, "local_window": 16, "top_k": 2,
 "near_rule": "distance < local_window", "rounding": "separable", "angle_precision": "f32",
 "pair_layout": "half-split", "group_edge": [0, 2, 4], "effective_length": [26, 104],
 "scale_factor": [4, 1], "attention_scaling": 1, "inv_freq": [1, 0.1, 0.01, 0.002],
 "key_pairs": [[[0, 2], [2, 3]]]}
END
PYTHONPATH="$root/tests/lib" python3 -c 'import json, sys
from adapter_fields import NO_TEMPERATURE
heat = dict(NO_TEMPERATURE, logit_scale=1.5, log_n_length=8, log_n_power=2)
json.dump(dict(json.load(sys.stdin), **heat), sys.stdout)' <"$work/table.json" >"$work/warm.json"
# Token 103: far query 103/4 -> 25 + 16 - 16/4 = 37, far key 25; unmoved 103.
cat >"$work/want" <<'END'
llama model, trained for 64 tokens, table for 104; nearer than 16 is near
token 103: near, every pair at 103; its logits as a query times 0.353553391
  far, group 0 (pair 0, scale 4): query at 37, key at 25
  far, group 1 (pair 2, scale 1): query at 103, key at 103
far key 100: pair 0 by (0.991203, -0.132352), pair 3 by (0.980067, 0.198669)
far key 101: pair 0 by (0.991203, -0.132352), pair 3 by (0.979667, 0.200629)
far key 102: pair 0 by (0.991203, -0.132352), pair 3 by (0.979264, 0.202588)
far key 103: pair 0 by (0.991203, -0.132352), pair 3 by (0.978857, 0.204546)
END

cmake -S "$work/dpe/share/dpe/example" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/dpe" \
    -DCMAKE_C_COMPILER="$cc" >"$work/log" 2>&1 && cmake --build "$work/cmake" >>"$work/log" 2>&1 ||
    fail "find_package: $(cat "$work/log")"
libdir=$(dirname "$(find "$work/dpe" -name dpe_table.pc)")
flags=$(PKG_CONFIG_PATH="$libdir" pkg-config --cflags --libs dpe_table) || fail "pkg-config"
# shellcheck disable=SC2086 # a list of words
"$cc" "$work/dpe/share/dpe/example/positions_example.c" $flags -o "$work/plain" >"$work/log" 2>&1 ||
    fail "pkg-config: $(cat "$work/log")"
for program in "$work/cmake/positions_example" "$work/plain"; do
    "$program" "$work/table.json" >"$work/got" 2>&1 || fail "$program: $(cat "$work/got")"
    diff -u "$work/want" "$work/got" || fail "$program: unexpected output"
    # Token 103 sees 104 keys: 1.5 * (ln 104 / ln 8)^2 / sqrt(8).
    "$program" "$work/warm.json" | grep -q "its logits as a query times 2.64551583\$" || fail "$program: the temperature"
    "$program" "$work/table.json" 0 1 | grep -q "group 0 (pair 0, scale 1): query at 103" ||
        fail "$program: the second head moves pair 0"
    sed 's/"scale_factor": \[4/"scale_factor": [0.5/' "$work/table.json" >"$work/bad.json"
    "$program" "$work/bad.json" >/dev/null 2>&1 && fail "$program accepts a scale below 1"
    "$program" "$work/none.json" >/dev/null 2>&1
    [ $? = 66 ] || fail "$program: no exit 66 where there is no table"
done

# Of several entries the length of the text chooses: the second is the table above, the first has scale 2, and up to
# the trained length there is none. Both forms; entries that disagree are refused.
sed 's/"evaluated_length": 104/"evaluated_length": 80/; s/"scale_factor": \[4/"scale_factor": [2/' "$work/table.json" >"$work/short.json"
"$work/dpe/bin/dpe-export" --join "$work/table.json" "$work/short.json" -o "$work/several.json" >"$work/log" 2>&1 &&
    "$work/dpe/bin/dpe-export" "$work/several.json" -o "$work/several.h5" >"$work/log" 2>&1 || fail "--join: $(cat "$work/log")"
for table in several.json several.h5; do
    "$work/plain" "$work/$table" >"$work/got" 2>&1 || fail "$table: $(cat "$work/got")"
    diff -u "$work/want" "$work/got" || fail "$table: the largest entry"
    for case in "64:64 tokens are within the trained length, 64: run the model unchanged" "65:table for 80;" "80:table for 80;" \
        "81:table for 104;" "5000:table for 104;"; do
        "$work/plain" "$work/$table" 0 0 "${case%%:*}" >"$work/got" 2>&1 && grep -q "${case#*:}" "$work/got" ||
            fail "$table, ${case%%:*} tokens: $(cat "$work/got")"
    done
    # Token 79: far query 79/2 -> 39 + 16 - 16/2 = 47, far key 39.
    "$work/plain" "$work/$table" 0 0 70 | grep -q "scale 2): query at 47, key at 39\$" || fail "$table: the entry for 80"
done
"$work/plain" "$work/table.json" 0 0 64 | grep -q "run the model unchanged" || fail "a table of one entry, up to the trained length"
"$work/dpe/bin/dpe-export" --join "$work/warm.json" "$work/short.json" -o "$work/warm-several.h5" >"$work/log" 2>&1 &&
    "$work/plain" "$work/warm-several.h5" 0 0 104 | grep -q "its logits as a query times 2.64551583\$" ||
    fail "the temperature of an entry: $(cat "$work/log")"
awk '/group_edge/ && !n++ { sub(/0,2,4/, "0,3,4") } 1' "$work/several.json" >"$work/bad.json"
cmp -s "$work/several.json" "$work/bad.json" && fail "the groups were not changed"
"$work/plain" "$work/bad.json" >"$work/got" 2>&1
[ $? = 65 ] && grep -q "disagree on group_edge" "$work/got" || fail "entries with other groups: $(cat "$work/got")"

# The HDF5 form, and copies of it with one bit flipped: read correctly when the flip missed what the
# checksum covers (its own magic number), refused otherwise; libhdf5 alone would crash on some.
"$work/dpe/bin/dpe-export" "$work/table.json" -o "$work/table.h5" >"$work/log" 2>&1 ||
    fail "dpe-export: $(cat "$work/log")"
"$work/plain" "$work/table.h5" >"$work/got" 2>&1 || fail "table.h5: $(cat "$work/got")"
diff -u "$work/want" "$work/got" || fail "table.h5: read differently from table.json"
size=$(wc -c <"$work/table.h5")
step=$((size / 150 + 1))
at=0
refused=0
while [ "$at" -lt "$size" ]; do
    cp "$work/table.h5" "$work/flipped.h5"
    byte=$(od -An -tu1 -j "$at" -N 1 "$work/table.h5")
    # shellcheck disable=SC2059 # an octal escape is made
    printf "\\$(printf '%03o' $((byte ^ 16)))" |
        dd of="$work/flipped.h5" bs=1 seek="$at" conv=notrunc 2>/dev/null
    "$work/plain" "$work/flipped.h5" >"$work/got" 2>&1
    case $? in
    0) cmp -s "$work/want" "$work/got" || fail "byte $at flipped: accepted, and reads differently" ;;
    65) refused=$((refused + 1)) && grep -q "flipped.h5" "$work/got" || fail "no reason at byte $at" ;;
    *) fail "byte $at flipped: $(cat "$work/got")" ;;
    esac
    at=$((at + step))
done
[ "$refused" -ge 140 ] || fail "only $refused damaged tables were refused"
exit 0
