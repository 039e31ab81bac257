#!/bin/sh
# hybrid.sh BIN: a model with recurrent layers through all tools: --info, likelihoods, a whole dpe-calibrate with its report, the
# norms of the layers that attend, an answer under the table. Its GGUF twin is in gguf_golden, sessions in test_states.
set -u
bin=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/world.sh"
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
python3 "$here/hybrid_model.py" "$root/data/reference" "$work/model" || exit 1
model="--model $work/model"

# shellcheck disable=SC2086 # lists of words
{
    "$bin/dpe-run" $model --info >"$work/info" 2>"$work/err" || fail "--info: $(cat "$work/err")"
    grep -q "^a plan moves    layers 1, 3$" "$work/info" && grep -q "^it leaves       layers 0, 2 (recurrent, a state of 5.5 KiB each)$" "$work/info" &&
        grep -q "^states          11.0 KiB of each sequence" "$work/info" || fail "--info: $(cat "$work/info")"
    "$bin/dpe-calibrate" $model --corpus "$work/corpus" --length 512 --threads 2 --dtype f32 --budget 60ktok -o "$work/made" >"$work/out" 2>"$work/err" ||
        fail "dpe-calibrate: $(cat "$work/err")"
    grep -q "^DPE table .* for a qwen3_5_text model, 4 layers" "$work/out" && [ -s "$work/made/report.html" ] || fail "dpe-calibrate: $(cat "$work/out")"
    "$bin/dpe-norms" $model --corpus "$work/corpus" --lengths 128 --samples 2 -o "$work/norms.h5" >"$work/out" 2>"$work/err" || fail "dpe-norms: $(cat "$work/err")"
    [ "$(grep -cE "^ +[13] +[0-9.]+ +[0-9.]+ +[0-9.]+$" "$work/out")" = 2 ] || fail "dpe-norms shows other layers than two: $(cat "$work/out")"
    "$bin/dpe-run" $model --table "$work/made/table.h5" --nll "$work/corpus/900001.txt" --context 512 --threads 2 >"$work/out" 2>"$work/err" ||
        fail "--nll: $(cat "$work/err")"
    grep -q "perplexity [0-9.]*" "$work/out" || fail "--nll: $(cat "$work/out")"
}

# Attention that sees as much as in training, and states that reach further: beside the other plans, and on the page.
# shellcheck disable=SC2086
{
    "$bin/dpe-detect" $model --corpus "$work/corpus" --length 1024 --threads 2 --dtype f32 -o "$work/far.h5" >"$work/out" 2>"$work/err" ||
        fail "dpe-detect: $(cat "$work/err")"
    grep -q "^  the states or the rotation: where attention sees only the last 256 tokens [a-z ]* is [0-9]" "$work/out" || fail "nothing of the states: $(cat "$work/out")"
    "$bin/dpe-report" "$work/far.h5" -o "$work/far.html" --quiet && grep -q streaming-llm "$work/far.html" || fail "streaming-llm is not on the page"
    "$bin/dpe-eval" ppl $model --corpus "$work/corpus" --length 256,1024 --threads 2 --method rope --method streaming-llm --samples 2 -o "$work/far-ppl.h5" >"$work/out" 2>"$work/err" ||
        fail "dpe-eval ppl: $(cat "$work/err")"
    grep -q "^streaming-llm.* [0-9.]*" "$work/out" || fail "dpe-eval ppl: $(cat "$work/out")"
}

# One cache serves all questions of a context: the state at its end is copied for each.
for memory in 1G 5M; do
    # shellcheck disable=SC2086
    "$bin/dpe-detect" $model --corpus "$work/corpus" --length 320 --threads 2 --dtype f32 --select paper --temperature off --samples 8 --groups 2 --lengths 128,320 \
        --niah keys=8,values=1,asked=8,digits=4 --max-memory $memory --kv-cache-dtype f32 -o "$work/$memory.h5" >"$work/out" 2>"$work/$memory.err" || fail "$memory: $(cat "$work/$memory.err")"
    grep -o "^[0-9]* tokens were read, [0-9]* decoded" "$work/$memory.err" >"$work/$memory.read"
done
grep -q "^memory holds one text" "$work/5M.err" || fail "5M are enough: $(cat "$work/5M.err")"
cmp "$work/1G.read" "$work/5M.read" || fail "one cache reads $(cat "$work/5M.read"), eight $(cat "$work/1G.read")"
h5diff --exclude-path=/run "$work/1G.h5" "$work/5M.h5" >"$work/diff" 2>&1 || fail "one cache gives another table: $(cat "$work/diff")"

# The emulated CUDA device: the same likelihoods, and a search that counts as on a processor.
module=$bin/../tests/libdpe_cuda_emulated.so
if [ -e "$module" ]; then
    head -c 600 "$work/corpus/900001.txt" >"$work/short.txt"
    for device in cpu cuda; do
        # shellcheck disable=SC2086
        DPE_DEVICE_SELF_TEST=24 DPE_CUDA_MODULE=$module "$bin/dpe-run" $model --device $device --table "$work/made/table.h5" --nll "$work/short.txt" --context 96 \
            --json >"$work/$device.json" 2>"$work/err" || fail "--device $device: $(cat "$work/err")"
    done
    python3 -c 'import json, sys
a, b = (json.load(open(path)) for path in sys.argv[1:])
assert a["tokens"] == b["tokens"] and a["scored"] == b["scored"] > 90 and abs(a["nll"] - b["nll"]) < 1e-4 * abs(a["nll"]), (a, b)' \
        "$work/cpu.json" "$work/cuda.json" || fail "the emulated device differs"
    # shellcheck disable=SC2086
    DPE_DEVICE_SELF_TEST=24 DPE_CUDA_MODULE=$module "$bin/dpe-detect" $model --device cuda --corpus "$work/corpus" --length 320 --select paper --temperature off \
        --samples 2 --groups 1 --lengths 128,320 --niah digits=3 -o "$work/cuda.h5" >"$work/out" 2>"$work/err" || fail "dpe-detect --device cuda: $(cat "$work/err")"
    grep -q "cuda" "$work/out" "$work/err" || fail "dpe-detect says nothing of the device: $(cat "$work/out" "$work/err")"
fi

# What is not there or has another shape is refused with its file and name.
refused() {
    python3 "$here/hybrid_model.py" "$root/data/reference" "$work/$1" "$3" ${4:-} || exit 1
    "$bin/dpe-run" --model "$work/$1" --method rope --nll "$work/corpus/900001.txt" --context 128 >"$work/out" 2>"$work/err"
    [ $? = 65 ] && grep -q "$1.*$3.*$2" "$work/err" || fail "$1: $(cat "$work/err")"
}
refused gate "" model.layers.0.linear_attn.in_proj_z.weight
refused rates "" model.layers.2.linear_attn.A_log
refused query "expected shape .256, 32.*found .128, 32" model.layers.1.self_attn.q_proj.weight 128,32
refused width "expected shape .128, 1, 4.*found .128, 1, 3" model.layers.0.linear_attn.conv1d.weight 128,1,3
refused rows "expected shape .128, 32.*found .127, 32" model.layers.2.linear_attn.in_proj_qkv.weight 127,32
exit $failed
