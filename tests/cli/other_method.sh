#!/bin/sh
# other_method.sh BIN SCHEMA_TOOL: where validation shows another method to be better, the table holds that method's plan. Taken for
# a model that was trained at 32 tokens, the reference model finds nothing at 512 under DPE, so YaRN and Leaky ReRoPE are better. The table is the
# same plan as the method in every form, forms that cannot hold it are refused, and dpe-calibrate makes those that can.
set -u
bin=$(cd "$1" && pwd)
schema_tool=$2
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"
model=$root/data/reference
trained="--trained-length 32"
sweep="--model $model --corpus $root/data/sample --samples 8 --groups 2 --window 4 $trained --select guarded --temperature off
    --threads 1 --quiet"
yarn=yarn:scale=4

# refused WORDS COMMAND…: exit code 64, and the words on standard error.
refused() {
    words=$1
    shift
    "$@" >"$work/out" 2>"$work/err"
    code=$?
    [ $code = 64 ] && grep -qF -- "$words" "$work/err" || fail "'$words': exit $code, $(cat "$work/err")"
}
# keys TABLE: the plans of its rows.
keys() {
    h5dump -y -w 0 -d /plans/plan "$1" | sed -n '/ DATA {/,/}/{p;/}/q}' | grep -o '"[^"]*"'
}

for method in $yarn leaky-rerope:window=16,scale=4; do
    name=${method%%:*}
    # shellcheck disable=SC2086 # a list of words
    "$bin/dpe-detect" $sweep -l 512 --lengths 16,512 --against $method -o "$work/$name.h5" >"$work/out" 2>"$work/err" ||
        fail "$method: $(cat "$work/err")"
    grep -q "^The table holds $method, which" "$work/out" || fail "$method: $(head -5 "$work/out")"
    "$schema_tool" "$work/$name.h5" || fail "$name.h5 is not as in SCHEMA.md"
    # Every form is the same plan as the method: one plan, whose rows are shared.
    "$bin/dpe-export" "$work/$name.h5" -o "$work/$name.json" 2>"$work/err" || fail "json: $(cat "$work/err")"
    "$bin/dpe-export" "$work/$name.h5" -o "$work/$name.safetensors" 2>"$work/err" || fail "safetensors: $(cat "$work/err")"
    "$bin/dpe-export" "$work/$name.safetensors" -o "$work/$name-back.h5" 2>"$work/err" || fail "back: $(cat "$work/err")"
    "$schema_tool" "$work/$name-back.h5" || fail "$name-back.h5 is not as in SCHEMA.md"
    "$bin/dpe-eval" niah --model "$model" --corpus "$root/data/sample" -l 512 --samples 1 $trained --quiet --method $method \
        --table "$work/$name.h5" --table "$work/$name.json" --table "$work/$name-back.h5" -o "$work/e-$name.h5" >"$work/out" \
        2>"$work/err" || fail "dpe-eval: $(cat "$work/err")"
    [ "$(keys "$work/e-$name.h5" | wc -l)" = 1 ] || fail "$name: the forms are other plans: $(keys "$work/e-$name.h5")"
    refused "--format csv holds DPE" "$bin/dpe-export" "$work/$name.h5" -o "$work/no.csv"
    refused "--format yaml holds DPE" "$bin/dpe-export" "$work/$name.h5" -o "$work/no.yaml"
done
"$bin/dpe-export" "$work/yarn.h5" --show >"$work/out" || fail "--show of yarn"
grep -q "needs no adapter" "$work/out" || fail "--show: $(cat "$work/out")"
"$bin/dpe-export" "$work/leaky-rerope.h5" --show >"$work/out" || fail "--show of leaky-rerope"
grep -q "not rounded" "$work/out" && grep -q "needs an adapter" "$work/out" || fail "--show: $(cat "$work/out")"
refused "would be lost" "$bin/dpe-export" "$work/leaky-rerope.h5" --model "$model" --format longrope -o "$work/no.json"
refused "--length: the table holds the plan of another method for 512 tokens" "$bin/dpe-export" "$work/yarn.h5" --length 1024 \
    -o "$work/no.h5"
refused "--rank: the table holds the plan of another method" "$bin/dpe-export" "$work/leaky-rerope.h5" --rank 1 -o "$work/no.h5"
"$bin/dpe-norms" --model "$model" --corpus "$root/data/sample" --lengths 32 --samples 2 $trained --quiet -o "$work/norms.h5" \
    >"$work/out" 2>"$work/err" || fail "dpe-norms: $(cat "$work/err")"
refused "of which all pairs move" "$bin/dpe-export" --top-k 24 -o "$work/no.h5" "$work/yarn.h5" "$work/norms.h5"
"$bin/dpe-eval" ablate --model "$model" --corpus "$root/data/sample" --table "$work/yarn.h5" --norms "$work/norms.h5" --what top-k \
    $trained -o "$work/no.h5" >"$work/out" 2>"$work/err"
code=$?
[ $code = 65 ] && grep -q "found the plan of another method" "$work/err" || fail "ablate: exit $code, $(cat "$work/err")"

# The frequencies in a config.json, run without a table.
mkdir "$work/exported"
cp "$model"/* "$work/exported"
"$bin/dpe-export" "$work/yarn.h5" --model "$model" --format longrope --force -o "$work/exported/config.json" 2>"$work/err" ||
    fail "longrope: $(cat "$work/err")"
head -c 9000 "$root/data/sample/test/$(ls "$root/data/sample/test" | head -1)" >"$work/text.txt"
nll() {
    "$bin/dpe-run" --nll "$work/text.txt" --context 512 --threads 1 --json "$@" 2>"$work/err" |
        sed -n 's/.*"nll": \([0-9.]*\).*/\1/p' | cut -c 1-7
}
table=$(nll --model "$model" --table "$work/yarn.h5")
[ -n "$table" ] && [ "$table" = "$(nll $trained --model "$model" --method $yarn)" ] || fail "table and method: $table"
[ "$table" = "$(nll --model "$work/exported")" ] || fail "table and longrope: $table, $(nll --model "$work/exported")"
[ "$table" = "$(nll --model "$model" --method rope $trained)" ] && fail "the frequencies change nothing"

# Forms of one entry are not made of several.
"$bin/dpe-export" --method self-extend --model "$model" --length 256 $trained -o "$work/first.h5" &&
    "$bin/dpe-export" --method $yarn --model "$model" --length 512 $trained -o "$work/second.h5" &&
    "$bin/dpe-export" --join -o "$work/mixed.h5" "$work/first.h5" "$work/second.h5" || fail "--join of methods"
"$schema_tool" "$work/mixed.h5" || fail "mixed.h5 is not as in SCHEMA.md"
for form in longrope yaml csv; do
    refused "choose one with --entry L" "$bin/dpe-export" "$work/mixed.h5" --model "$model" --format $form -o "$work/no"
done
"$bin/dpe-export" "$work/mixed.h5" --entry 512 --model "$model" --format longrope -o - >"$work/config.json" || fail "--entry"
# The detection's form says more: what was measured.
grep -v '"dpe_evidence"' "$work/exported/config.json" >"$work/bare.json"
cmp "$work/config.json" "$work/bare.json" || fail "longrope of an entry"

# A method by name is the same table without a detection, in every form that can hold it.
for method in $yarn leaky-rerope:window=16,scale=4 self-extend:group=8 dpe:window=4,scales=2/16,log-n=32 ntk:log-n=32 \
    lampe:log-n=9 dca jet-long self; do
    "$bin/dpe-export" --method $method --model "$model" --length 512 $trained --force -o "$work/named.h5" 2>"$work/err" ||
        fail "--method $method: $(cat "$work/err")"
    rm -f "$work/e-named.h5"
    "$schema_tool" "$work/named.h5" || fail "$method: named.h5 is not as in SCHEMA.md"
    "$bin/dpe-eval" niah --model "$model" --corpus "$root/data/sample" -l 512 --samples 1 $trained --quiet --method $method \
        --table "$work/named.h5" --force -o "$work/e-named.h5" >"$work/out" 2>"$work/err" || fail "dpe-eval: $(cat "$work/err")"
    [ "$(keys "$work/e-named.h5" | wc -l)" = 1 ] || fail "--method $method is another plan: $(keys "$work/e-named.h5")"
done
"$bin/dpe-export" --method $yarn --model "$model" --length 512 $trained --format longrope -o - >"$work/config.json" 2>"$work/err" ||
    fail "--method $yarn --format longrope: $(cat "$work/err")"
cmp "$work/config.json" "$work/bare.json" || fail "config.json of a method is another than that of the detection"
for method in cope dope select:k=8 select:over=lampe; do
    refused "--method $method: a table holds" "$bin/dpe-export" --method $method --model "$model" --length 512 -o "$work/no.h5"
done
# Options of runtimes, where these can say the frequencies.
# flags METHOD FORMAT LINE
flags() {
    line=$("$bin/dpe-export" --method "$1" --model "$model" --length 1k --format "$2" -o - 2>"$work/err") || fail "$1 as $2: $(cat "$work/err")"
    [ "$line" = "$3" ] || fail "$1 as $2: $line"
}
flags yarn llama.cpp-flags "--ctx-size 1024 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 256"
flags yarn:scale=6,beta_fast=8,logit-scale=1.21 llama.cpp-flags \
    "--ctx-size 1024 --rope-scaling yarn --rope-scale 6 --yarn-orig-ctx 256 --yarn-beta-fast 8 --yarn-attn-factor 1.1"
flags pi:scale=3 llama.cpp-flags "--ctx-size 1024 --rope-scaling linear --rope-scale 3"
flags yarn vllm-flags "--max-model-len 1024 --hf-overrides '{\"rope_parameters\":{\"rope_theta\":10000.0,\"rope_type\":\"yarn\",\
\"factor\":4.0,\"original_max_position_embeddings\":256},\"max_position_embeddings\":1024}'"
"$bin/dpe-export" --method mrrope --model "$model" --length 1k --format sglang-flags -o - 2>"$work/err" |
    grep -q '^--context-length 1024 .*longrope' || fail "mrrope as sglang-flags: $(cat "$work/err")"
refused "this table has factors of its own" "$bin/dpe-export" --method mrrope --model "$model" --length 1k --format llama.cpp-flags -o -
refused "this table has a factor on the logits" "$bin/dpe-export" --method pi:logit-scale=2 --model "$model" --length 1k \
    --format llama.cpp-flags -o -
refused "the 3 bands of this table would be lost" "$bin/dpe-export" --method lampe --model "$model" --length 1k --format vllm-flags -o -
refused "expected more than the trained length" "$bin/dpe-export" --method yarn --model "$model" --length 256 -o "$work/no.h5"
refused "--method needs --model DIR and --length L" "$bin/dpe-export" --method yarn --model "$model" -o "$work/no.h5"
refused "--method makes a table from nothing else" "$bin/dpe-export" --method yarn --model "$model" --length 512 -o "$work/no.h5" \
    "$work/yarn.h5"
refused "--trained-length needs --method" "$bin/dpe-export" $trained -o "$work/no.h5" "$work/yarn.h5"
[ -e "$work/no.h5" ] && fail "a refused export left a file"

# A model that has an attention factor of its own: it is divided out and multiplied in again.
mkdir "$work/scaled"
cp "$model"/* "$work/scaled"
sed 's/"rope_scaling": null/"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}/' \
    "$model/config.json" >"$work/scaled/config.json"
grep -q yarn "$work/scaled/config.json" || fail "config.json has no rope scaling"
for scale in 4 12 16 20 24; do
    "$bin/dpe-export" --method yarn:scale=$scale --model "$work/scaled" --length 1024 --force -o "$work/scaled.h5" 2>"$work/err" ||
        fail "an attention factor of its own, scale $scale: $(cat "$work/err")"
done

# calibrate NAME OPTIONS
calibrate() {
    name=$1
    shift
    # shellcheck disable=SC2086
    "$bin/dpe-calibrate" $sweep --norm-lengths 32 --norm-samples 2 -o "$work/$name" "$@" >"$work/out" 2>"$work/err"
}
files() {
    (cd "$work/$1" && find . -type f | sed 's|^\./||' | sort | tr '\n' ' ')
}
# with FILE…: those of another method, and these.
with() {
    # shellcheck disable=SC2086
    printf '%s\n' $other "$@" | sort | tr '\n' ' '
}
calibrate one -l 512 --lengths 16,512 --against $yarn || fail "one length: $(cat "$work/err")"
other="check.h5 config.json detect.h5 forms.sha256 norms.h5 report.html scores.pt table.h5 table.json table.safetensors "
[ "$(files one)" = "$other" ] || fail "files: $(files one)"
grep -q '"longrope"' "$work/one/config.json" || fail "config.json is not that of a table without an adapter"
grep -q "Every key keeps its true distance" "$work/one/report.html" || fail "the report does not say what the table holds"
"$schema_tool" "$work/one/table.h5" || fail "one/table.h5 is not as in SCHEMA.md"
calibrate one -l 512 --lengths 16,512 --against $yarn || fail "again: $(cat "$work/err")"
# Another choice makes other forms; those that the first one made and the second does not have are gone, and the other way round.
calibrate one -l 512 --lengths 16,512 --against none --top-k 32 || fail "--against none: $(cat "$work/err")"
[ "$(files one)" = "$(with table.csv table.yaml)" ] && grep -q '"dpe"' "$work/one/config.json" || fail "files of DPE: $(files one)"
echo "# mine" >>"$work/one/table.yaml"
calibrate one -l 512 --lengths 16,512 --against $yarn --force || fail "--force: $(cat "$work/err")"
[ "$(files one)" = "$(with table.yaml)" ] || fail "files after DPE: $(files one)"
tail -1 "$work/one/table.yaml" | grep -q mine || fail "a form that was edited is gone"

# Layers that do not rotate: no list of factors is for all of them, so that the configuration is the adapter's.
mkdir "$work/some"
cp "$model"/* "$work/some"
sed 's/"model_type": "llama"/"model_type": "smollm3", "no_rope_layers": [1, 1, 1, 0]/;s/LlamaForCausalLM/SmolLM3ForCausalLM/' "$model/config.json" >"$work/some/config.json"
# shellcheck disable=SC2086
"$bin/dpe-calibrate" $sweep --model "$work/some" --samples 16 --norm-lengths 32 --norm-samples 2 -l 512 --lengths 16,512 --against $yarn \
    -o "$work/layers" >"$work/out" 2>"$work/err" || fail "some layers: $(cat "$work/err")"
"$bin/dpe-export" "$work/layers/table.h5" --show | grep -q "in place of the model's own" || fail "some layers: $(cat "$work/out")"
grep -q '"dpe"' "$work/layers/config.json" || fail "config.json for layers that do not move"

# Several entries, of which each may hold another method.
calibrate two -l 256,512 --against leaky-rerope:window=16,scale=4 || fail "two lengths: $(cat "$work/err")"
"$schema_tool" "$work/two/table.h5" || fail "two/table.h5 is not as in SCHEMA.md"
grep -q '"unrounded":' "$work/two/table.json" || fail "no entry holds leaky-rerope"
[ -e "$work/two/512/table.yaml" ] && fail "a YAML of leaky-rerope"
exit $failed
