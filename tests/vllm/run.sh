#!/bin/bash
# run.sh BIN [MODEL TEXT]: the plugin for vLLM against dpe-run. DPE_VLLM_PYTHON is a Python with vLLM 0.32 and both packages
# (outputs/vllm/README.md, "Tests"); without it the script skips itself. CHECKS="methods table-512 …" runs some alone.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
if [ -z "${DPE_VLLM_PYTHON:-}" ]; then
    echo "skipped: DPE_VLLM_PYTHON names no Python with vLLM"
    exit 125
fi
bin=$(cd "$1" && pwd)
model=${2:-$root/data/reference}
text=${3:-$root/data/sample/test/900000.txt}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The tree's own packages, whatever is installed.
export PYTHONPATH=$root/outputs/transformers:$root/outputs/vllm
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# Two processes of vLLM share a machine with one memory node.
export VLLM_CPU_OMP_THREADS_BIND=${VLLM_CPU_OMP_THREADS_BIND:-nobind}
failed=0

check() {
    local name=$1
    shift
    case " ${CHECKS:-$name} " in *" $name "*) ;; *) return ;; esac
    echo "== $name"
    if ! "$@" >"$work/out" 2>"$work/err"; then
        failed=1
        echo "FAILED: $name"
        tail -n 15 "$work/err"
    fi
    cat "$work/out"
}
served() {
    "$DPE_VLLM_PYTHON" "$here/served.py" "$bin" "$model" "$work" "$text" "$@"
}

# What dpe-serve answers, in the place of vLLM; server.sh asks vLLM the same.
long_tasks() {
    local port=$((20000 + RANDOM % 20000)) code=0
    "$bin/dpe-export" --method self-extend -m "$model" --length 2048 -o "$work/long.h5" --force >/dev/null || return 1
    "$bin/dpe-serve" -m "$model" --table "$work/long.h5" --port "$port" --dtype f32 &
    local server=$!
    sleep 1
    "$DPE_VLLM_PYTHON" "$here/long_tasks.py" "http://127.0.0.1:$port" "$(basename "$model")" "$model" "$work/long.h5" "$work" 400 ||
        code=$?
    kill $server
    wait $server 2>/dev/null
    [ $code = 125 ] || return $code # without lm_eval
}

"$DPE_VLLM_PYTHON" -c 'import importlib.metadata as m, vllm, torch
print("vllm", vllm.__version__, "torch", torch.__version__, "transformers", m.version("transformers"))' 2>/dev/null
methods="rope yarn ntk cope rerope leaky-rerope self-extend dpe lampe dca string streaming-llm lm-infinite hirope adagrope dope dca:far-scale=1.3 dpe:far-scale=1.3"
check methods served methods ${METHODS:-$methods}
check methods-64 env DPE_TEST_CHUNK=64 "$DPE_VLLM_PYTHON" "$here/served.py" "$bin" "$model" "$work" "$text" methods self-extend dca
check table-512 served table 512
check table-64 served table 64
check table-tensor env DPE_TEST_TENSOR=2 "$DPE_VLLM_PYTHON" "$here/served.py" "$bin" "$model" "$work" "$text" table 512
check preemption served preemption
check native-write served native write
check native served native compare
check refusals served refusals
check auto served auto
check auto-ngram served auto ngram
check auto-suffix served auto suffix
check drafts served drafts draft_model
check drafts-eagle served drafts eagle
check drafts-kernel served drafts draft_model kernel
check other served other
for spec in yarn pi ntk mrrope; do check "flags-$spec" served flags "$spec"; done
check kernel "$DPE_VLLM_PYTHON" "$here/kernel.py" "$bin" "$model" ${METHODS:-$methods}
check kernel-compiles "$DPE_VLLM_PYTHON" "$here/kernel_compiles.py"
check kernel-served served kernel
check kernel-wrong served kernel wrong
check hybrid served hybrid
for kind in exaone4 llama4 llama4_moves gemma4 gemma4_shares gemma4_alike gemma4_experts; do check "$kind" served family "$kind"; done
for kind in llama4 gemma4; do check "$kind-auto" served family "$kind" auto; done
for kind in gemma4_shares llama4; do check "$kind-kernel" env DPE_TEST_TOKENS=300 "$DPE_VLLM_PYTHON" "$here/served.py" "$bin" "$model" "$work" "$text" family "$kind" kernel; done
check graphs served graphs
check fp8 served fp8
check fp8-kernel served fp8 kernel
check taken served taken
check admission served admission
check long-tasks long_tasks
check server "$here/server.sh" "$DPE_VLLM_PYTHON" "$here" "$bin" "$model" "$work" "$text"
check server-data "$here/server.sh" "$DPE_VLLM_PYTHON" "$here" "$bin" "$model" "$work" "$text" --data-parallel-size 2
check engine "$here/engine.sh" "$DPE_VLLM_PYTHON" "$here" "$bin" "$model" "$work"
check engine-tensor env PARTS="likelihoods norms" "$here/engine.sh" "$DPE_VLLM_PYTHON" "$here" "$bin" "$model" "$work" --tensor-parallel-size 2
check plain "$here/plain.sh" "$DPE_VLLM_PYTHON" "$here" "$bin" "$model" "$work"
check throughput served throughput
check throughput-dpe served throughput self-extend
[ "$failed" = 0 ] && echo "all passed"
exit "$failed"
