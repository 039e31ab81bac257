#!/bin/bash
# engine.sh PYTHON HERE BIN MODEL WORK [OPTION...]: vLLM as the engine of the tools (DPE_ENGINE=1), against their own, row by row.
# PARTS="needles likelihoods detect norms hostile" runs some alone.
set -u
python=$1
here=$2
bin=$3
model=$4
work=$5
shift 5
wire=$bin/../tests/wire_plans
corpus=$here/../../data/sample
port=$((20000 + RANDOM % 20000))
url=http://127.0.0.1:$port
trained=${DPE_TEST_TRAINED:-256}
export VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1 VLLM_PLUGINS=dpe DPE_ENGINE=1
"$python" -m vllm.entrypoints.openai.api_server --model "$model" --host 127.0.0.1 --port $port --dtype float32 \
    --max-model-len $((4 * trained + 64)) "$@" >"$work/engine.log" 2>&1 &
server=$!
sleep 0
# One that still loads heeds no signal.
trap 'kill $server 2>/dev/null; timeout 60 tail --pid=$server -f /dev/null || kill -9 $server; wait $server 2>/dev/null' EXIT
for _ in $(seq 900); do
    curl -sf "$url/health" >/dev/null && break
    kill -0 $server 2>/dev/null || { tail -n 20 "$work/engine.log"; exit 1; }
    sleep 2
done
asked() {
    case " ${PARTS:-$1} " in *" $1 "*) true ;; *) false ;; esac
}
# both NAME COMMAND…: with the engine and without, and the rows of both compared.
both() {
    local name=$1 tool=$2
    asked "$name" || return
    shift 2
    "$bin/$tool" "$@" -m "$model" --trained-length "$trained" --corpus "$corpus" -o "$work/$name-engine.h5" --force --engine $url \
        >"$work/$name.log" 2>&1 || { tail -n 5 "$work/$name.log"; exit 1; }
    "$bin/$tool" "$@" -m "$model" --trained-length "$trained" --corpus "$corpus" -o "$work/$name-own.h5" --force --dtype f32 \
        >"$work/$name.log" 2>&1 || { tail -n 5 "$work/$name.log"; exit 1; }
    "$python" "$here/same_rows.py" "$name" "$work/$name-engine.h5" "$work/$name-own.h5" || exit 1
}
both needles dpe-eval niah -l $((4 * trained)) --samples 4 --method rope --method self-extend --method dca --method yarn \
    --method dpe:window=32,scales=2/3/4/6,groups=4,log-n=$trained
both likelihoods dpe-eval ppl -l $((2 * trained)) --samples 2 --method rope --method rerope
both detect dpe-detect -l $((2 * trained)) --samples 4 --groups 2 --select paper
for kind in product-of-means mean-of-products; do
    asked norms || break
    for side in engine own; do
        more=(--dtype f32)
        [ $side = engine ] && more=(--engine $url)
        "$bin/dpe-norms" -m "$model" --trained-length "$trained" --corpus "$corpus" --samples 3 --contribution $kind "${more[@]}" \
            -o "$work/norms-$side.h5" --force >"$work/norms.log" 2>&1 || { tail -n 5 "$work/norms.log"; exit 1; }
    done
    "$python" "$here/same_norms.py" $kind "$work/norms-engine.h5" "$work/norms-own.h5" || exit 1
done
asked hostile || exit 0
"$wire" "$model" "$trained" 1024 self-extend >"$work/wire.json" || exit 1
"$python" "$here/hostile.py" $url "$work/wire.json" || exit 1
head -c 1200 "$corpus/test/900000.txt" >"$work/asked.txt"
"$python" "$here/names.py" $url "$model" "$work/asked.txt"
