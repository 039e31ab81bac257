#!/bin/sh
# entries.sh BIN PYTHON SCHEMA_TOOL: tables of several entries through the tools. Joined, written in every form, taken
# apart; the length of a text chooses the entry in dpe-run and dpe-eval, and up to the trained length the model
# computes what it computes without a table, bit for bit.
set -u
bin=$1
python=$2
schema=$3
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
. "$root/tests/work.sh"
model=$root/data/reference
corpus=$root/data/sample
export LC_ALL=C

export_() {
    "$bin/dpe-export" "$@" >"$work/out" 2>"$work/err"
}
same() {
    h5diff "$@" >"$work/diff" 2>&1 || fail "h5diff $*: $(head -3 "$work/diff")"
}

# Three entries: other lengths, windows and temperatures.
detect() {
    length=$1
    shift
    "$bin/dpe-detect" -m "$model" -l "$length" --corpus "$corpus" --samples 1 --groups 2 --lengths 64,256 --select paper --temperature off \
        --niah values=1,digits=4 --device cpu --dtype f32 --quiet -o "$work/detect-$length.h5" "$@" >"$work/out" 2>"$work/err" &&
        export_ "$work/detect-$length.h5" -o "$work/$length.h5" || fail "dpe-detect $length: $(cat "$work/err")"
}
detect 384 --window 16
detect 512 --temperature log-n=256
detect 1024 --temperature log-n=256,logit-scale=1.1
# Rank 1 is what the paper's rule took, of lengths that do not divide the text's too.
for length in 384 1024; do
    export_ "$work/detect-$length.h5" --rank 1 -o "$work/rank.h5" --force || fail "--rank 1: $(cat "$work/err")"
    same "$work/$length.h5" "$work/rank.h5" /table/scale_factor
    export_ "$work/detect-$length.h5" --length 640 -o "$work/longer.h5" --force || fail "--length 640: $(cat "$work/err")"
    h5dump -d /table/scale_factor "$work/longer.h5" | grep -qE '[( ](10|2\.5)(, (10|2\.5))?$' || fail "scales of lengths of 64 and 256 in 640 tokens"
done
export_ "$work/384.h5" -o "$work/384.json" || fail "json of an entry: $(cat "$work/err")"
export_ --join "$work/1024.h5" "$work/384.json" "$work/512.h5" -o "$work/table.h5" || fail "--join: $(cat "$work/err")"
"$schema" "$work/table.h5" || fail "SCHEMA.md and a table of several entries differ"
h5dump -a /schema_version "$work/table.h5" | grep -q '"9.0.0"' || fail "the version of a table of several entries"

# Forms, and each entry back out of each of them.
export_ "$work/table.h5" -o "$work/table.json" || fail "json: $(cat "$work/err")"
export_ "$work/table.json" -o "$work/table.safetensors" || fail "safetensors: $(cat "$work/err")"
export_ "$work/table.safetensors" -o "$work/back.h5" || fail "back: $(cat "$work/err")"
same "$work/table.h5" "$work/back.h5" /table
same "$work/table.h5" "$work/back.h5" /model
for length in 384 512 1024; do
    for form in h5 json safetensors; do
        export_ "$work/table.$form" --entry $length -o "$work/one.h5" --force || fail "--entry $length of $form: $(cat "$work/err")"
        same "$work/$length.h5" "$work/one.h5" /table
        same "$work/$length.h5" "$work/one.h5" /model
    done
    h5dump -a /schema_version "$work/$length.h5" >"$work/a"
    h5dump -a /schema_version "$work/one.h5" >"$work/b"
    [ "$(sed -n 's/.*(0)//p' "$work/a")" = "$(sed -n 's/.*(0)//p' "$work/b")" ] || fail "version of entry $length"
done
export_ "$work/table.h5" --model "$model" -o "$work/config.json" || fail "hf: $(cat "$work/err")"
"$python" - "$work/table.json" "$work/config.json" "$root/outputs/table/dpe_table.schema.json" "$here" <<'END' || fail "the JSON forms"
import json, sys
sys.argv, (table, config, schema, here) = sys.argv[:1], sys.argv[1:]
sys.path.insert(0, here)
from export_check import problems
table, config, schema = (json.load(open(path)) for path in (table, config, schema))
wrong = list(problems(table, schema))
assert not wrong, wrong
assert [entry["evaluated_length"] for entry in table["entries"]] == [384, 512, 1024]
block = config.get("rope_parameters") or config["rope_scaling"]
assert block["rope_type"] == "dpe" and block["adapter_required"] is True
assert block["entries"] == table["entries"] and "scale_factor" not in block
END
export_ --show "$work/table.h5" && grep -q "^entries  *3, for 384, 512, 1024 tokens\$" "$work/out" &&
    grep -q "^For texts of 385 to 512 tokens, prompt and new ones together\$" "$work/out" &&
    [ "$(grep -c "^temperature " "$work/out")" = 2 ] || fail "--show: $(cat "$work/out")"
export_ --check "$work/table.h5" -m "$model" || fail "--check: $(cat "$work/err")"
for form in yaml csv; do
    refused 64 "the table has several, for 384, 512, 1024 tokens: choose one with --entry L" \
        "$bin/dpe-export" "$work/table.h5" --drop-temperature -o "$work/table.$form"
    [ -e "$work/table.$form" ] && fail "a refused $form was written"
    export_ "$work/table.h5" --entry 384 -o "$work/table.$form" || fail "$form of an entry: $(cat "$work/err")"
done
refused 64 "--entry 2048: the table's entries are for 384, 512, 1024 tokens" \
    "$bin/dpe-export" "$work/table.h5" --entry 2048 -o "$work/no.h5"

# Entries that do not belong together.
refused 65 "--join: there are two entries for 512 tokens" "$bin/dpe-export" --join "$work/512.h5" "$work/table.h5" -o "$work/no.h5"
"$python" - "$work/384.json" "$work" <<'END' || fail "tables that do not fit"
import json, sys
good = json.load(open(sys.argv[1]))
for name, change in (("model", {"model": dict(good["model"], fingerprint="0" * 64)}),
                     ("heads", {"model": dict(good["model"], n_kv_heads=1)}),
                     ("trained", {"trained_length": 128}), ("short", {"evaluated_length": 256}),
                     ("groups", {"group_edge": [0, good["group_edge"][1] + 1, good["group_edge"][2]]})):
    json.dump(dict(good, **change), open(f"{sys.argv[2]}/{name}.json", "w"))
END
for case in "model:the model's fingerprint" "heads:n_kv_heads" "trained:the trained length (128 and 256)" "groups:group_edge" \
    "short:the entry for 256 tokens would never be used"; do
    refused 65 "${case#*:}" "$bin/dpe-export" --join "$work/512.h5" "$work/${case%%:*}.json" -o "$work/no.h5"
done
refused 64 "is not a detection" "$bin/dpe-export" "$work/table.h5" --rank 2 -o "$work/no.h5"
refused 65 "a table without /detect/plan" "$bin/dpe-eval" ablate -m "$model" --corpus "$corpus" --table "$work/table.h5" --what rank -o "$work/no.h5"
[ -e "$work/no.h5" ] && fail "a refused table was written"

# run OPTIONS: perplexity in windows, which needs --context tokens.
nll() {
    "$bin/dpe-run" -m "$model" --nll "$corpus/test/900000.txt" --device cpu "$@" 2>"$work/err"
}
# The entry that each length chooses computes what its own table computes; between entries it is the longer one.
for case in 128:rope 256:rope 257:384 384:384 385:512 512:512 600:1024 1024:1024 1200:1024; do
    context=${case%%:*}
    entry=${case#*:}
    nll --context "$context" --table "$work/table.h5" >"$work/a"
    cp "$work/err" "$work/table.err"
    if [ "$entry" = rope ]; then
        nll --context "$context" --method rope >"$work/b"
        grep -q "table.h5: entry: none: the model is run unchanged up to its trained length, 256 tokens" "$work/table.err" ||
            fail "$context tokens: $(cat "$work/table.err")"
        # So it is with a table of one entry.
        nll --context "$context" --table "$work/1024.h5" >"$work/one"
        cmp -s "$work/b" "$work/one" || fail "$context tokens, a table of one entry: $(cat "$work/b" "$work/one")"
    else
        nll --context "$context" --length "$entry" --table "$work/$entry.h5" >"$work/b"
        grep -q "table.h5: entry: for $entry tokens (of 384, 512, 1024), because this run may reach $context" "$work/table.err" ||
            fail "$context tokens: $(cat "$work/table.err")"
    fi
    [ -s "$work/a" ] && cmp -s "$work/a" "$work/b" || fail "$context tokens: $(cat "$work/a" "$work/b")"
    # Beyond the largest entry: larger distances were not measured.
    warned=no
    grep -q "was made for 1024 tokens, this run may reach $context" "$work/table.err" && warned=yes
    [ $warned = "$([ "$context" -gt 1024 ] && echo yes || echo no)" ] || fail "$context tokens: warned $warned"
done
# The entries are not all the same.
nll --context 384 --length 384 --table "$work/table.h5" >"$work/a"
nll --context 384 --length 1024 --table "$work/table.h5" >"$work/b"
cmp -s "$work/a" "$work/b" && fail "entries for 384 and 1024 tokens compute the same"

# Prompt and new tokens together choose, before the first token is read.
show() {
    "$bin/dpe-run" -m "$model" --show-plan "$@" >"$work/out" 2>"$work/err" || fail "--show-plan $*: $(cat "$work/err")"
}
show --table "$work/table.h5" --length 500
grep -q "^entry  *for 512 tokens (of 384, 512, 1024)" "$work/out" || fail "--show-plan: $(cat "$work/out")"
show --table "$work/table.h5" --length 200
grep -q "^entry  *none: " "$work/out" && grep -q "^method  *rope" "$work/out" || fail "--show-plan: $(cat "$work/out")"
show --table "$work/512.h5"
grep -q "^entry  *the only one, for 512 tokens; it finds " "$work/out" || fail "--show-plan: $(cat "$work/out")"
words=$(head -c 600 "$root/README.md" | tr -d '\n')
n=$("$bin/dpe-run" -m "$model" --tokenize -p "$words" | wc -w)
for case in "$((384 - n)):384" "$((385 - n)):512"; do
    "$bin/dpe-run" -m "$model" --table "$work/table.h5" --device cpu -p "$words" -n "${case%%:*}" >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
    grep -q "entry: for ${case#*:} tokens" "$work/err" || fail "$n tokens and ${case%%:*} new ones: $(cat "$work/err")"
done

# dpe-eval chooses by the length of each task; at the trained length the rows are those of rope.
"$bin/dpe-eval" niah -m "$model" --corpus "$corpus" -l 256,384,512,700 --samples 1 --device cpu --quiet --method rope \
    --table "$work/table.h5" --table "$work/384.h5" --table "$work/512.h5" --table "$work/1024.h5" -o "$work/eval.h5" \
    >"$work/out" 2>"$work/err" || fail "dpe-eval: $(cat "$work/err")"
"$python" - "$work/eval.h5" <<'END' || fail "the plans of a comparison"
import sys, h5py
file = h5py.File(sys.argv[1])
name = [text.decode() for text in file["method"][()]]
plan = {method: file["eval/niah/plan"][()][i] for i, method in enumerate(name)}
assert name[1] == "table:table.h5", name
several = plan["table:table.h5"]
assert several[0] == plan["rope"][0] == plan["table:1024.h5"][0]
assert len(set(several)) == 4 and len(set(plan["rope"])) == 1
for task, entry in ((1, 384), (2, 512), (3, 1024)):
    assert several[task] == plan[f"table:{entry}.h5"][task], entry
END

# A table is refused for the same reasons whatever the length.
sed 's/"fingerprint":"[0-9a-f]\{64\}"/"fingerprint":"'"$(printf '0%.0s' $(seq 64))"'"/' "$work/table.json" >"$work/other.json"
cmp -s "$work/table.json" "$work/other.json" && fail "the fingerprint was not changed"
refused 65 "other.json: measured on the model" "$bin/dpe-run" -m "$model" --table "$work/other.json" -p Once -n 2
exit $failed
