#!/bin/sh
# run.sh [-o RESULTS] [-s SECONDS] [-q]: everything that needs a GPU, in one call (default: 530 s), from
# where cpack's archive was unpacked: no compiler, no network, nothing outside. Exit 0: all checks passed;
# 1: one failed; 125: no GPU here. -q: tiny sizes, to try the script itself.
#
# RESULTS (default: results/ beside this script) gets few files, each complete at any time: results.md (what ran, how
# it ended, the end of its output, and at the end the figures with their targets),
# parts.tar.gz (all output) and bench.jsonl. Every part has its own time limit; one that fails or hangs
# does not stop the others (-q: limits are 20 times as long, for a busy machine). Checks come first, single instructions before kernels; where an attention kernel is
# wrong or hangs, everything after it runs without it. Then figures, then the sanitizers as far as time allows.
set -u
here=$(cd "$(dirname "$0")" && pwd)
bundle=$(dirname "$here")
out=$here/results
seconds=530
quick=
while getopts o:s:q option; do
    case $option in
    o) out=$OPTARG ;;
    s) seconds=$OPTARG ;;
    q) quick=1 ;;
    *) exit 64 ;;
    esac
done
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 73
report=$out/results.md
work=$(mktemp -d) && mkdir "$work/parts" || exit 73
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
# After the given PATH: where toolkit and driver usually are.
PATH=$PATH:/usr/local/cuda/bin:/usr/local/nvidia/bin
if ! nvidia-smi -L >"$work/gpu" 2>&1; then
    echo "no GPU here (nvidia-smi: $(head -n 1 "$work/gpu")): skipped"
    exit 125
fi
python=$(command -v python3 || true)
# cuBLAS: the toolkit's, or the one that PyTorch brings. Only for dpe's own programs: Python's modules
# find their own.
cublas=
for place in /usr/local/cuda/lib64 /usr/local/cuda-*/lib64 /usr/local/cuda/targets/*/lib \
    $([ -n "$python" ] && "$python" -c 'import glob, site, sys
for p in sys.path + site.getsitepackages():
    print(*glob.glob(p + "/nvidia/*/lib"))' 2>/dev/null); do
    for file in "$place"/libcublas.so.1*; do
        [ -e "$file" ] && cublas="$cublas$place:"
    done
done
libraries=$cublas${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64 # where the driver's libraries usually are
ours="env LD_LIBRARY_PATH=$libraries OMP_WAIT_POLICY=passive DPE_SOURCE_DIR=$here DPE_DEVICE_SELF_TEST=off"
tests="$ours DPE_TEST_CUDA_MODULE=${DPE_CUDA_MODULE:-$bundle/lib/libdpe_cuda.so}"
begin=$(date +%s)
failed=0
{
    echo "# GPU run of $(date -u +%Y-%m-%d\ %H:%M) UTC"
    cat "$work/gpu"
    nvidia-smi --query-gpu=driver_version,clocks.max.sm,clocks.sm,power.limit,memory.total,ecc.mode.current \
        --format=csv
    $ours "$bundle/bin/dpe-run" --version
    echo "cuBLAS: ${cublas:-not found}"
} >"$report" 2>&1

# report NAME CODE SECONDS COMMAND…: adds a part to the report.
report() {
    name=$1
    code=$2
    took=$3
    shift 3
    # A peer or a tool that is not installed is not a failure of dpe.
    [ "$code" = 0 ] || [ "$code" = 125 ] || failed=1
    {
        printf '\n## %s (exit %s, %d s)\n\n    %s\n\n' "$name" "$code" "$took" "$*"
        [ -e "$work/parts/$name.txt" ] && tail -n 60 "$work/parts/$name.txt" | cut -c1-300 | sed 's/^/    /'
    } >>"$report"
    tar -C "$work" -czf "$out/parts.tar.gz.new" parts && mv "$out/parts.tar.gz.new" "$out/parts.tar.gz"
    cat "$work"/parts/*.jsonl >"$out/bench.jsonl" 2>/dev/null
    echo "$name: exit $code after $took s"
}

# part NAME SECONDS COMMAND…: output to NAME.txt.
part() {
    name=$1
    limit=$(($2 * slack))
    shift 2
    left=$((seconds - 10 - ($(date +%s) - begin)))
    [ "$left" -lt "$limit" ] && limit=$left
    start=$(date +%s)
    if [ "$limit" -lt 5 ]; then
        code=out-of-time
    else
        # A program that hangs in the driver does not react to the first signal.
        timeout -k 5 "$limit" "$@" >"$work/parts/$name.txt" 2>&1
        code=$?
        # A sanitizer's message where the driver refuses it.
        [ "$code" != 0 ] && grep -q "Device not supported" "$work/parts/$name.txt" && code=125
    fi
    report "$name" "$code" $(($(date +%s) - start)) "$@"
}

# bench NAME SECONDS OPTION…
bench() {
    name=$1
    limit=$2
    shift 2
    part "$name" "$limit" $ours "$bundle/bin/dpe-bench" --device cuda --json "$work/parts/$name.jsonl" "$@"
}

if [ -n "$quick" ]; then
    shape=$here/tests/golden/llama_bf16
    short="--length 20 --new 1 --repeats 1" long="--length 24 --new 1 --repeats 1" lengths="64"
    tests="$tests DPE_TEST_CUDA_SMALL=1" sanitizer_seconds=8 tokens=40 slack=20
    sweep="--length 96 --trained-length 64 --lengths 8,32 --window 8 --groups 2 --samples 1 --task ppl --select paper --temperature off"
else
    shape=llama3-8b
    short="--length 8K --length 32K" long="--length 128K --repeats 1" lengths="8192 16384 32768 131072"
    sanitizer_seconds=70 tokens=1200 slack=1
    sweep="--length 1024 --groups 8 --samples 8 --select paper --temperature off"
fi

# hung CODE: whether the part ran out of time. without KERNEL: the following parts use that kernel instead.
hung() {
    [ "$1" = 124 ] || [ "$1" = 137 ] || [ "$1" = out-of-time ]
}
without() {
    best=$1
    ours="$ours DPE_CUDA_ATTENTION=$best"
    tests="$tests DPE_TEST_CUDA_ATTENTION=$best"
    printf '\n**An attention kernel failed: what follows ran with DPE_CUDA_ATTENTION=%s.**\n' "$best" >>"$report"
}

# The sweep on the CPU runs during the first checks, which measure no time.
model=$here/data/reference
(timeout $((150 * slack)) $ours "$bundle/bin/dpe-detect" --model "$model" --corpus "$here/data/sample" $sweep --device cpu \
    -o "$work/cpu.h5" >"$work/parts/sweep-cpu.txt" 2>&1; echo "exit $?" >>"$work/parts/sweep-cpu.txt") &
part instructions 30 $ours "$here/test_instructions_gpu"
part kernels-mma 40 $ours "$here/test_attention_gpu" mma
mma=$code
part kernels-wgmma 60 $ours "$here/test_attention_gpu" wgmma
wgmma=$code
# Kernels that the rest must not use.
best=
case $mma,$wgmma in
0,0 | 125,125) ;;
0,*) without mma ;;
*,0) without wgmma ;;
*) without plain ;;
esac
part kernels-variants 60 $ours "$here/test_attention_gpu" variants
variants=$code
part kernels-plain 30 $ours "$here/test_attention_gpu" plain
# The check that every tool runs before its first session; it names a call that hangs after a minute.
part self-test 75 $ours env DPE_DEVICE_SELF_TEST=$tokens "$bundle/bin/dpe-run" -m "$model" -p "a b c" -n 1 --device cuda
part parity 80 $tests "$here/test_cuda"
wait
if [ -n "$python" ] && "$python" "$here/agreement.py" widen "$model" "$work/f32" >"$work/parts/widen.txt" 2>&1; then
    for dtype in f32 bf16; do
        [ "$dtype" = bf16 ] && folder=$model || folder=$work/f32
        part "sweep-$dtype" 60 $ours "$bundle/bin/dpe-detect" --model "$folder" --corpus "$here/data/sample" \
            $sweep --device cuda -o "$work/$dtype.h5"
        part "agreement-$dtype" 20 "$python" "$here/agreement.py" compare "$work/cpu.h5" "$work/$dtype.h5" \
            "$([ "$dtype" = f32 ] && echo 0.995 || echo 0)"
    done
fi
# These first check a kernel over many items a block, and measure none that is wrong.
if ! hung "$wgmma"; then
    part attention-wgmma 60 $ours "$here/bench_attention_cuda" wgmma 128 $lengths
    [ "$wgmma" = 0 ] && [ "$code" != 0 ] && [ "$code" != out-of-time ] && {
        wgmma=$code
        without "$([ "$mma" = 0 ] && echo mma || echo plain)"
    }
fi
hung "$mma" || part attention-mma 50 $ours "$here/bench_attention_cuda" mma 128 $lengths
[ -n "$python" ] && part peers 100 "$python" -u "$here/peers.py" $lengths
bench bench 90 --shape "$shape" $short
bench bench-128k 130 --shape "$shape" $long
if ! hung "$wgmma"; then
    hung "$variants" || part attention-variants 70 $ours "$here/bench_attention_cuda" variants 128 $lengths
    part attention-64 30 $ours "$here/bench_attention_cuda" wgmma 64 $lengths
fi
bench branches 60 --shape "$shape" ${long% --repeats 1} --repeats 1 --branches 4 --method rope
if [ -z "$quick" ]; then
    [ -z "$best" ] && part mma 30 env DPE_CUDA_ATTENTION=mma $ours "$bundle/bin/dpe-bench" --device cuda --shape "$shape" \
        --length 8K --repeats 1
    for other in mistral-7b qwen2.5-7b llama3-70b-layer; do
        bench "$other" 20 --shape "$other" --length 8K --repeats 1
    done
fi
if command -v compute-sanitizer >/dev/null; then
    slack=1
    for tool in memcheck racecheck initcheck; do
        part "$tool" $sanitizer_seconds $tests DPE_TEST_CUDA_SMALL=1 compute-sanitizer --tool "$tool" --error-exitcode 1 \
            "$here/test_cuda"
    done
fi
[ -n "$python" ] && {
    printf '\n## Figures\n\n'
    "$python" "$here/summary.py" "$work/parts" 2>&1
} >>"$report"
echo "results in $report, $(($(date +%s) - begin)) s"
exit "$failed"
