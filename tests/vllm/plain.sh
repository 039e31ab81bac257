#!/bin/bash
# plain.sh PYTHON HERE BIN MODEL WORK: vLLM without the plugin as an engine with one plan, what it runs, against the tools' own.
set -u
python=$1
here=$2
bin=$3
model=$4
work=$5
corpus=$here/../../data/sample
port=$((20000 + RANDOM % 20000))
url=http://127.0.0.1:$port
trained=${DPE_TEST_TRAINED:-256}
export VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1 VLLM_PLUGINS=
# Not compiled: for a test of a minute that takes longer than the test.
"$python" -m vllm.entrypoints.openai.api_server --model "$model" --host 127.0.0.1 --port $port --dtype float32 --enforce-eager \
    --max-model-len "$trained" >"$work/plain.log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null' EXIT
for _ in $(seq 900); do
    curl -sf "$url/health" >/dev/null && break
    kill -0 $server 2>/dev/null || { tail -n 20 "$work/plain.log"; exit 1; }
    sleep 2
done
for task in niah ppl; do
    for side in engine own; do
        more=(--dtype f32)
        [ $side = engine ] && more=(--engine $url)
        "$bin/dpe-eval" $task -m "$model" --corpus "$corpus" -l $((trained - 16)) --samples 6 --method rope "${more[@]}" \
            -o "$work/plain-$task-$side.h5" --force >"$work/plain-$task.log" 2>&1 || { tail -n 5 "$work/plain-$task.log"; exit 1; }
    done
    "$python" "$here/same_rows.py" "plain, $task" "$work/plain-$task-engine.h5" "$work/plain-$task-own.h5" || exit 1
done
"$bin/dpe-detect" -m "$model" --corpus "$corpus" -l 512 --engine $url -o "$work/plain-detect.h5" 2>&1 | grep -o "takes no plans.*"
