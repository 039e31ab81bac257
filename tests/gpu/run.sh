#!/bin/sh
# run.sh [-b BUNDLE] [-o RESULTS]: everything that needs a GPU, in one call of less than nine minutes,
# from what bundle.sh made (no compiler, no network). Exit 0: all checks passed; 1: one failed; 125: no
# GPU here. RESULTS (default: results/ beside the bundle) gets results.md and the output of every part.
# Each part has its own time limit; one that fails does not stop the others.
set -u
here=$(cd "$(dirname "$0")" && pwd)
bundle=$here
out=
while getopts b:o: option; do
    case $option in
    b) bundle=$(cd "$OPTARG" && pwd) ;;
    o) out=$OPTARG ;;
    *) exit 64 ;;
    esac
done
out=${out:-$bundle/results}
mkdir -p "$out" && out=$(cd "$out" && pwd)
if ! nvidia-smi -L >"$out/gpu.txt" 2>&1; then
    echo "no GPU here (nvidia-smi: $(head -n 1 "$out/gpu.txt")): skipped"
    exit 125
fi
python=$(command -v python3 || true)
# cuBLAS: the toolkit's, or the one that PyTorch brings.
cublas=
for place in /usr/local/cuda/lib64 /usr/local/cuda-*/lib64 \
    $([ -n "$python" ] && "$python" -c 'import glob, site, sys
for p in sys.path + site.getsitepackages():
    print(*glob.glob(p + "/nvidia/*/lib"))' 2>/dev/null); do
    for file in "$place"/libcublas.so.1*; do
        [ -e "$file" ] && cublas="$cublas:$place"
    done
done
export LD_LIBRARY_PATH="$bundle/lib$cublas:${LD_LIBRARY_PATH:-}"
export DPE_SOURCE_DIR="$bundle/share" OMP_WAIT_POLICY=passive
begin=$(date +%s)
failed=0
report="$out/results.md"
{
    echo "# GPU run of $(date -u +%Y-%m-%d\ %H:%M) UTC"
    cat "$out/gpu.txt"
    nvidia-smi --query-gpu=driver_version,clocks.max.sm,memory.total,ecc.mode.current --format=csv
    "$bundle/bin/dpe-run" --version
} >"$report" 2>&1

# part NAME SECONDS COMMAND…: output to NAME.txt, its end into the report.
part() {
    name=$1
    limit=$2
    shift 2
    left=$((530 - ($(date +%s) - begin)))
    [ "$left" -lt "$limit" ] && limit=$left
    start=$(date +%s)
    if [ "$limit" -lt 5 ]; then
        code=out-of-time
    else
        timeout "$limit" "$@" >"$out/$name.txt" 2>&1
        code=$?
    fi
    # A peer that is not there is no failure of ours.
    [ "$code" = 0 ] || [ "$code" = 125 ] || failed=1
    {
        printf '\n## %s (exit %s, %d s)\n\n    %s\n\n' "$name" "$code" $(($(date +%s) - start)) "$*"
        [ -e "$out/$name.txt" ] && tail -n 60 "$out/$name.txt" | sed 's/^/    /'
    } >>"$report"
    echo "$name: exit $code after $(($(date +%s) - start)) s"
}

DPE_TEST_CUDA_MODULE="$bundle/lib/libdpe_cuda.so" part parity 90 "$bundle/tests/test_cuda"
part kernels 90 "$bundle/tests/test_attention_gpu"
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        DPE_TEST_CUDA_MODULE="$bundle/lib/libdpe_cuda.so" DPE_TEST_CUDA_SMALL=1 part "$tool" 60 \
            compute-sanitizer --tool "$tool" --error-exitcode 1 "$bundle/tests/test_cuda"
    done
fi
part attention 100 "$bundle/tests/bench_attention_cuda" 128 8192 32768 131072
part bench-8b 100 "$bundle/bin/dpe-bench" --shape llama3-8b --device cuda --length 8K --length 32K \
    --json "$out/bench-8b.json" --csv "$out/bench-8b.csv"
part bench-128k 110 "$bundle/bin/dpe-bench" --shape llama3-8b --device cuda --length 128K --repeats 1 \
    --json "$out/bench-128k.json"
part branches 30 "$bundle/bin/dpe-bench" --shape llama3-8b --device cuda --length 32K --repeats 1 \
    --branches 16 --method rope
[ -n "$python" ] && part peers 60 "$python" "$here/peers.py"
echo "results in $report, $(($(date +%s) - begin)) s"
exit "$failed"
