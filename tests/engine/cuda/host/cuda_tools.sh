#!/bin/sh
# cuda_tools.sh BUILD SOURCE: messages and exit codes of a tool with the emulated CUDA module (see
# emulate/fake_runtime.cpp for the words of DPE_FAKE_CUDA), and with the real one on a machine without a device.
set -u
build=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# expect EXIT WORDS ARGUMENT…
expect() {
    code=$1
    words=$2
    shift 2
    "$build/bin/dpe-bench" --shape "$source/tests/golden/llama_bf16" --length 20 --new 1 \
        --repeats 1 --method rope "$@" >"$work/out" 2>"$work/err"
    got=$?
    if [ "$got" != "$code" ] || ! cat "$work/out" "$work/err" | grep -q "$words"; then
        echo "FAILED: $* (DPE_FAKE_CUDA=${DPE_FAKE_CUDA:-}): expected $code and \"$words\", got $got:"
        cat "$work/out" "$work/err"
        failed=1
    fi
}

export DPE_CUDA_MODULE="$build/tests/libdpe_cuda_emulated.so" XDG_CACHE_HOME="$work/cache"
# A device that computes wrong results is not used.
export DPE_FAKE_CUDA=wrong=16 DPE_DEVICE_SELF_TEST=40
expect 69 "device cuda failed its self-test and is not used; use --device cpu" --device cuda
expect 69 "device cuda failed its self-test" --device auto
export DPE_FAKE_CUDA=
expect 0 "^rope, 20 tokens" --device cuda
DPE_DEVICE_SELF_TEST=1 expect 64 "DPE_DEVICE_SELF_TEST: expected off or a number of tokens" --device cuda
export DPE_DEVICE_SELF_TEST=off
expect 0 "^rope, 20 tokens" --device cuda --json "$work/json" --csv "$work/csv"
[ "$(wc -l <"$work/csv")" = 2 ] || { echo "FAILED: expected two lines in the CSV file"; failed=1; }
python3 -c 'import json, sys
row = json.loads(open(sys.argv[1]).read())
assert row["length"] == 20 and row["prefill_s"] > 0 and row["token_s"] > 0, row' "$work/json" || failed=1
for device in cpu cuda; do
    expect 0 "^moba:block=4,k=2, 20 tokens" --device $device --method moba:block=4,k=2
    expect 0 "^vertical-slash, 20 tokens" --device $device --method vertical-slash
done
# What it multiplies in anyway may be asked for, and nothing else.
expect 0 "^rope, 20 tokens" --device cuda --dtype bf16
expect 64 "device cuda multiplies in the type of the model's weights, which is not bf16" --device cuda --dtype bf16 \
    --shape "$source/tests/golden/llama"
expect 64 "expected --device cpu or cuda, found 'reference'" --device reference --dtype bf16
expect 0 "emulated device" --device auto
expect 0 "emulated device 1" --device cuda:1
expect 69 "cuda:7: expected a number from 0 to 1" --device cuda:7
expect 64 "expected cuda or cuda:N" --device cuda:x
export DPE_FAKE_CUDA=none
expect 69 "the driver does not find a device" --device cuda
expect 0 "^# cpu" --device auto
export DPE_FAKE_CUDA=driver=12020
expect 69 "the driver is for CUDA 12.2, expected at least 13.0" --device cuda
export DPE_FAKE_CUDA=capability=70
expect 69 "compute capability 7.0" --device cuda
export DPE_FAKE_CUDA=allocate=12
expect 71 "out of device memory" --device cuda
export DPE_FAKE_CUDA=sticky=160
expect 75 "the device (emulated device 0) failed in" --device cuda
export DPE_FAKE_CUDA=memory=60000000
expect 71 "a smaller --length, --new or --chunk needs less" --device cuda
# A kernel that fails is left out, by this command and the next.
rm -r "$work/cache"
export DPE_DEVICE_SELF_TEST=24 DPE_FAKE_CUDA= DPE_FAKE_FAULT=fails:product_few
expect 0 "products of few rows by product_few is failing on this card, cublas is used (the device" --device cuda
expect 0 "products cublas.*, as faster kernels failed their test on this card before" --device cuda
# What was right before and fails now: this process cannot go on, the next one can.
DPE_FAKE_FAULT=fails:rmsnorm expect 69 "which was right before, failed its self-test; the same command again" --device cuda
DPE_FAKE_FAULT= expect 0 "^rope, 20 tokens" --device cuda
# Every kernel by itself, in a text for others.
"$build/bin/dpe-bench" --gpu-report "$work/report.txt" --shape "$source/tests/golden/llama_bf16" --device cuda \
    >"$work/out" 2>"$work/err"
[ $? = 69 ] && grep -q "1 tests are not right: $work/report.txt says which" "$work/err" &&
    grep -q "product_few is left out, cublas is used: the device (emulated device 0) failed in dpe_kernel" "$work/report.txt" &&
    grep -q "plain whole attention product_few graph: FAILS" "$work/report.txt" &&
    grep -q "plain whole attention cublas launches: right, .*machine code of sm_80" "$work/report.txt" &&
    grep -q "^card: emulated device 0" "$work/report.txt" ||
    { echo "FAILED: --gpu-report: $(cat "$work/out" "$work/err" "$work/report.txt")"; failed=1; }
expect 78 "report.txt: exists already" --gpu-report "$work/report.txt" --device cuda
"$build/bin/dpe-bench" --gpu-report "$work/none.txt" --device cpu >"$work/out" 2>"$work/err"
[ $? = 64 ] && [ ! -e "$work/none.txt" ] || { echo "FAILED: a report of the CPU: $(cat "$work/err")"; failed=1; }
# The table says by which kernels it was computed.
python3 "$source/tests/cli/tiny_model.py" "$source/data/reference/tokenizer.json" "$work/model"
rm -r "$work/cache"
"$build/bin/dpe-norms" --model "$work/model" --corpus "$source/data/sample" --length 48 --samples 2 --device cuda \
    -o "$work/kernels.h5" >"$work/out" 2>&1 || { echo "FAILED: dpe-norms: $(cat "$work/out")"; failed=1; }
h5dump -d /run/sessions/kernels "$work/kernels.h5" | grep -q "attention plain.*products cublas" ||
    { echo "FAILED: no kernels in the table: $(h5dump -d /run/sessions/kernels "$work/kernels.h5")"; failed=1; }
export DPE_DEVICE_SELF_TEST=off DPE_FAKE_FAULT=
# Halved chunks are reported.
DPE_FAKE_CUDA= "$build/bin/dpe-run" -m "$work/model" -p "a b" -n 3000 --time-budget 1 --device cuda \
    --max-memory 206M >"$work/out" 2>"$work/err"
grep -q "device memory is short: prefill chunks have 1024 tokens instead of 3003" "$work/err" ||
    { echo "FAILED: a device with too little memory: $(cat "$work/err")"; failed=1; }
# dpe-serve has as many slots as fit in 296 MiB, which is less than 8 need.
if [ -e "$build/bin/dpe-serve" ]; then
    DPE_FAKE_CUDA=memory=310378496 "$build/bin/dpe-serve" -m "$source/data/reference" --device cuda -l 4k \
        --port 0 2>"$work/err" &
    server=$!
    while ! grep -q "sequences of\|error" "$work/err" && kill -0 $server 2>/dev/null; do
        sleep 0.1
    done
    kill $server 2>/dev/null
    wait $server
    grep -q ": 3 sequences of up to 4096 tokens" "$work/err" ||
        { echo "FAILED: slots on a device: $(cat "$work/err")"; failed=1; }
fi
# A profile whose norms are summed on the device is that of the processor.
for device in cpu cuda; do
    DPE_FAKE_CUDA= "$build/bin/dpe-norms" --model "$work/model" --corpus "$source/data/sample" --length 48 \
        --samples 2 --device $device -o "$work/$device.h5" >"$work/out" 2>&1 ||
        { echo "FAILED: dpe-norms on $device: $(cat "$work/out")"; failed=1; }
done
h5diff -p 1e-5 "$work/cpu.h5" "$work/cuda.h5" /norms/mean /norms/mean >"$work/out" 2>&1 ||
    { echo "FAILED: norms differ: $(cat "$work/out")"; failed=1; }
export DPE_CUDA_MODULE="$work/nothing.so"
expect 69 "DPE_CUDA_MODULE: .*nothing.so" --device cuda
unset DPE_CUDA_MODULE DPE_FAKE_CUDA
if ! nvidia-smi -L >"$work/gpu" 2>&1; then
    if [ -e "$build/lib/libdpe_cuda.so" ]; then
        expect 69 "has no NVIDIA driver" --device cuda
    else
        expect 69 "built without CUDA" --device cuda
    fi
    expect 0 "^# cpu" --device auto
fi
[ "$failed" = 0 ] && echo "all as expected"
exit "$failed"
