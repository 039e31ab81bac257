# parts.sh: sourced by the scripts beside it that need a GPU (decide.sh, check.sh, sanitize.sh), with their options:
#   [-o RESULTS] [-s SECONDS] [-q]
# They run from where cpack's archive was unpacked: no compiler, no network, nothing outside. Each takes at most SECONDS
# (default 300). Exit 0: all checks passed; 1: one failed; 125: no GPU here. -q: tiny sizes, to try the scripts themselves.
#
# RESULTS (default: the script's name without .sh, beside it) gets few files, each complete at any time: results.md (what
# ran, how it ended, the end of its output, and at the end the figures with their targets), parts.tar.gz (all output),
# bench.jsonl, and clocks.csv (clocks, power and temperature, twice a second). Every part has its own time limit; one
# that fails or hangs does not stop the others (-q: limits are 20 times as long, for a busy machine).
set -u
here=$(cd "$(dirname "$0")" && pwd)
bundle=$(dirname "$here")
out=$here/$(basename "$0" .sh)
seconds=300
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
# Drivers before 535 have another name for why clocks are low, and refuse a query with a name that they do not know.
reasons=clocks_event_reasons.active
nvidia-smi --query-gpu=$reasons --format=csv >/dev/null 2>&1 || reasons=clocks_throttle_reasons.active
nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,$reasons \
    --format=csv -lms 500 >"$out/clocks.csv" 2>&1 &
{
    echo "# $(basename "$0"), $(date -u +%Y-%m-%d\ %H:%M) UTC"
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
    case $code in
    0) meaning=passed ;;
    124 | 137) meaning="hung: ended after its limit" ;;
    125) meaning="not possible here" ;;
    out-of-time) meaning="not started: no time is left" ;;
    *)
        meaning=$(grep -m 1 "error:" "$work/parts/$name.txt" 2>/dev/null || tail -n 1 "$work/parts/$name.txt" 2>/dev/null)
        meaning="failed: $(echo "$meaning" | cut -c1-160)"
        ;;
    esac
    echo "$name: exit $code after $took s, $meaning"
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
        # A program that hangs in the driver does not react to the first signal, and may not react to any: then it is
        # left behind.
        timeout -k 5 "$limit" "$@" >"$work/parts/$name.txt" 2>&1 &
        running=$!
        (sleep $((limit + 10)) && kill -9 "$running") >/dev/null 2>&1 &
        guard=$!
        wait "$running"
        code=$?
        kill "$guard" 2>/dev/null
        # Messages of a sanitizer and of ncu where the driver refuses them.
        [ "$code" != 0 ] && grep -q -e "Device not supported" -e ERR_NVGPUCTRPERM "$work/parts/$name.txt" && code=125
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
    tests="$tests DPE_TEST_CUDA_SMALL=1 DPE_TEST_CUDA_FIRST=1" sanitizer_seconds=1 tokens=40 slack=20 instruct_device=cpu
    sweep="--length 96 --trained-length 64 --lengths 8,32 --window 8 --groups 2 --samples 1 --task ppl --select paper --temperature off"
else
    shape=llama3-8b
    short="--length 8K" long="--length 128K --repeats 1" lengths="8192 16384 32768 131072"
    sanitizer_seconds=60 tokens=1200 slack=1 instruct_device=cuda
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

# check_kernels [both]: the attention kernel that is used against the reference, mma's (`both`, or where the first is not
# right), and which of them the rest must not use.
check_kernels() {
    part kernels-wgmma 60 $ours "$here/test_attention_gpu" wgmma
    wgmma=$code
    mma=0
    if [ "$wgmma" != 0 ] || [ -n "${1:-}" ]; then
        part kernels-mma 40 $ours "$here/test_attention_gpu" mma
        mma=$code
    fi
    best=
    case $mma,$wgmma in
    0,0 | 125,125) ;;
    0,*) without mma ;;
    *,0) without wgmma ;;
    *) without plain ;;
    esac
}

# finish: figures, and the script's end.
finish() {
    [ -n "$python" ] && {
        printf '\n## Figures\n\n'
        "$python" "$here/summary.py" "$work/parts" 2>&1
    } >>"$report"
    echo "results in $report, $(($(date +%s) - begin)) s"
    exit "$failed"
}
