#!/bin/sh
# decide.sh [-o RESULTS] [-s SECONDS] [-m MODEL]... [-b BUILD]: what a card has to show, in order of what decides: whether what
# has not run on one is right; steps of 1 to 64 questions over one context; attention of heads of 256 beside cuDNN's; the
# search's first texts; then the rest (speeds, other kernels, a sweep beside the same on the CPU, compute-sanitizer, ncu).
# It runs from where cpack's archive was unpacked: no compiler, no network, nothing outside. SECONDS (default 720) is for all.
#
# RESULTS (default: decide.md beside this) is one file, complete at any time: the figures with what they shall reach, what ran,
# what that decides and how it ended, and the end of each output. Each part has a limit of its own; one that fails or hangs
# stops no other. What each printed is kept in decide.parts beside this: called again, also after a kill, the script goes on
# with the parts that have not ended there (remove one's .done to repeat it). Where a command may take less than SECONDS:
# -s with what it may take, again and again.
# MODEL: folders or GGUF files of real models for the search's first texts (default: the bundled model, and random weights of
# two shapes, stand_in.py).
# -b BUILD: where there is no card, the same on the emulated device at tiny sizes, with the programs of a build of the tests:
# that tries the parts, and says "not run" of each.
# Exit status: 0; 1 when a part failed; 75 when some were not started; 125 without a card and BUILD.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out= seconds=720 models= build=
newline='
'
while getopts o:s:m:b: option; do
    case $option in
    o) out=$OPTARG ;;
    s) seconds=$OPTARG ;;
    m) models="$models$OPTARG$newline" ;;
    b) build=$(cd "$OPTARG" && pwd) || exit 66 ;;
    *) exit 64 ;;
    esac
done
# After the given PATH: where toolkit and driver usually are.
PATH=$PATH:/usr/local/cuda/bin:/usr/local/nvidia/bin
card=1 where="on this card"
if ! gpu=$(nvidia-smi -L 2>&1); then
    card= where="not run on a card; emulated"
    [ -n "$build" ] || {
        echo "no card here (nvidia-smi: $(echo "$gpu" | head -n 1)), and no build (-b) with the emulated device: skipped"
        exit 125
    }
    gpu="no card: what follows ran on the emulated device, at tiny sizes"
fi
[ -z "$card" ] || build=
if [ -n "$build" ]; then
    state=$build/decide.parts bin=$build/bin root=$(cd "$here/../.." && pwd)
    export DPE_CUDA_MODULE="$build/tests/libdpe_cuda_emulated.so" DPE_FAKE_CUDA=capability=90
else
    state=$here/decide.parts bin=$(dirname "$here")/bin root=$here
    DPE_CUDA_MODULE=${DPE_CUDA_MODULE:-$(dirname "$here")/lib/libdpe_cuda.so}
fi
out=${out:-$(dirname "$state")/decide.md}
mkdir -p "$state" && : >>"$state/order" || exit 73
clocks= running= guard=
trap 'kill $clocks $running $guard 2>/dev/null' EXIT # dash has no jobs in $(jobs -p)
trap 'exit 143' HUP INT TERM
# program NAME: that of the archive, or the twin of a build.
program() {
    for file in "$here/$1" "$build/tests/$1_emulated" "$build/tests/${1%_gpu}"; do
        [ ! -x "$file" ] || break
    done
    echo "$file"
}
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
export DPE_SOURCE_DIR="$root"
[ -z "$card" ] || export DPE_TEST_CUDA_MODULE="$DPE_CUDA_MODULE"
ours="env LD_LIBRARY_PATH=$cublas${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64 OMP_WAIT_POLICY=passive
    DPE_DEVICE_SELF_TEST=off"
tests=$ours
this="$($ours "$bin/dpe-run" --version) on $gpu"
[ -e "$state/of" ] || echo "$this" >"$state/of"
[ "$this" = "$(cat "$state/of")" ] || {
    echo "$state has the parts of another version or card: $(cat "$state/of"); remove it" >&2
    exit 78
}
begin=$(date +%s)
left_out=
# Drivers before 535 have another name for why clocks are low, and refuse a query with a name that they do not know.
if [ -n "$card" ]; then
    reasons=clocks_event_reasons.active
    nvidia-smi --query-gpu=$reasons --format=csv >/dev/null 2>&1 || reasons=clocks_throttle_reasons.active
    nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu,$reasons --format=csv -lms 500 \
        >>"$state/clocks.txt" 2>&1 &
    clocks=$!
fi

# about PART: what it shows, what is expected, what follows from it.
about() {
    case $1 in
    instructions) echo "1: mma, wgmma, copies and barriers do what the manual says; where one does not, no kernel that has it is right" ;;
    kernels-wgmma | kernels-mma) echo "1: attention against the reference in double, 0 wrong; where some are, the rest runs without this kernel" ;;
    ladder) echo "1: every way of every part and kind of model, each in a process of its own; what users are told to attach" ;;
    recurrent) echo "1: layers with a state, against logits of transformers" ;;
    states) echo "1: copies of states give the bits of the state itself" ;;
    plans) echo "1: several plans and contexts in one step, as each alone" ;;
    parity-steps) echo "1: steps as graphs of 1 to 64 rows, experts, states, heads of 512: bit for bit as launch by launch" ;;
    golden) echo "1: every other family against logits of transformers" ;;
    parity) echo "1: methods, branches, temperatures, decoding of heads of 64 to 512, against the reference" ;;
    self-test) echo "1: what every tool does before its first session" ;;
    twenty-plans) echo "2: a step of twenty plans at once; their contexts with answers in at most 2 × the time of reading them" ;;
    questions-*) echo "2: steps of 1 to 64 questions over one context; 32 cost at most 1.3 × one" ;;
    attention-256*) echo "3: rate of heads of 256, beside cuDNN's of the part peers" ;;
    peers) echo "3: PyTorch's flash and cuDNN on this card" ;;
    stand-in-*) echo "4: makes the model of the part after it" ;;
    search-*) echo "4: a search's first 16 texts at twice the trained length; SmolLM2's shape in 10 s" ;;
    attention-*) echo "5: rates of heads of 128, which an H200 had" ;;
    bench* | mistral* | qwen* | llama*) echo "5: prefill and decoding, which an H200 had" ;;
    step-*) echo "5: a step as a graph and launch by launch: graphs stay where they are faster" ;;
    kernels-plain) echo "5: the kernel of other cards and types, against the reference, 0 wrong" ;;
    parity-select) echo "5: selections against the reference" ;;
    sweep-* | widen | agreement-*) echo "5: a sweep on the card beside the CPU's: float 99.5 % of rows equal" ;;
    memcheck | racecheck | initcheck) echo "5: compute-sanitizer, no error" ;;
    ncu-*) echo "5: what one launch is bound by" ;;
    esac
}

# write: RESULTS anew, of all parts that have ended, in their order; in a shell of its own, which leaves $code alone.
write() {
    (
        printf '# %s\n\n%s\n\ncuBLAS: %s\n\n' "$(basename "$0"), $(date -u +%Y-%m-%d\ %H:%M) UTC" "$this" "${cublas:-not found}"
        if [ -n "$python" ]; then
            "$python" "$here/summary.py" "$state" ${card:+card} 2>&1
        else
            echo "No python3 here, which makes the table of figures: they are in the parts below."
        fi
        printf '\n| part | what it is about | %s | seconds |\n|---|---|---|---:|\n' "$where"
        for name in $(cat "$state/order"); do
            [ -e "$state/$name.done" ] || continue # removed, to be repeated
            read -r code took meaning <"$state/$name.done"
            echo "| $name | $(about "$name") | $meaning | $took |"
        done
        echo "${left_out:+
Not started, as no time was left:$left_out}"
        for name in $(cat "$state/order") clocks; do
            [ -e "$state/$name.txt" ] || continue
            printf '\n## %s\n\n    %s\n\n' "$name" "$(tail -n 1 "$state/$name.done" 2>/dev/null)"
            tail -n 60 "$state/$name.txt" | cut -c1-300 | sed 's/^/    /'
            for more in jsonl md; do
                [ ! -e "$state/$name.$more" ] || sed 's/^/    /' "$state/$name.$more"
            done
        done
    ) >"$out.new" && mv "$out.new" "$out" || exit 73
}

# part NAME SECONDS COMMAND…: its end in $code, "out-of-time" where it was not started. What has ended before is not run again.
part() {
    name=$1
    limit=$2
    shift 2
    [ -n "$card" ] || limit=$((20 * limit)) # for a busy machine
    if [ -e "$state/$name.done" ]; then
        read -r code took meaning <"$state/$name.done"
        echo "$name: $meaning, before"
        return
    fi
    left=$((seconds - 10 - ($(date +%s) - begin)))
    cut=
    [ "$left" -ge "$limit" ] || { limit=$left && cut=1; }
    if [ "$limit" -lt 5 ]; then
        code=out-of-time
        left_out="$left_out $name"
        echo "$name: not started: no time is left"
        return
    fi
    start=$(date +%s)
    rm -f "$state/$name.jsonl"
    # A program that hangs in the driver does not react to the first signal, and may not react to any: then it is
    # left behind.
    timeout -k 5 "$limit" "$@" >"$state/$name.txt" 2>&1 &
    running=$!
    (
        for _ in $(seq $((limit + 10))); do
            sleep 1
            kill -0 $$ || { kill "$running" && exit; } # this script was killed
        done
        kill -9 "$running"
    ) >/dev/null 2>&1 &
    guard=$!
    wait "$running"
    code=$?
    kill "$guard" 2>/dev/null
    running= guard=
    if [ -n "$cut" ] && { [ "$code" = 124 ] || [ "$code" = 137 ]; }; then
        code=out-of-time
        left_out="$left_out $name"
        echo "$name: ended after $limit s, as no time was left"
        return
    fi
    # Messages of a sanitizer and of ncu where the driver refuses them.
    [ "$code" != 0 ] && grep -q -e "Device not supported" -e ERR_NVGPUCTRPERM "$state/$name.txt" && code=125
    case $code in
    0) meaning=passed ;;
    124 | 137) meaning="hung: ended after $limit s" ;;
    125) meaning="not possible here" ;;
    *)
        meaning=$(grep -m 1 "error:" "$state/$name.txt" || tail -n 1 "$state/$name.txt")
        meaning="failed with $code: $(echo "$meaning" | tr '|' ' ' | cut -c1-160)"
        ;;
    esac
    # In this order, so that a kill in between leaves a part that is run again.
    grep -qx "$name" "$state/order" 2>/dev/null || echo "$name" >>"$state/order"
    printf '%s\n%s\n' "$code $(($(date +%s) - start)) $meaning" "$*" >"$state/done" && mv "$state/done" "$state/$name.done"
    echo "$name: $meaning, $(($(date +%s) - start)) s"
    write
}
# bench NAME SECONDS OPTION…
bench() {
    name=$1
    limit=$2
    shift 2
    part "$name" "$limit" $ours "$bin/dpe-bench" --device cuda --json "$state/$name.jsonl" "$@"
}
# hung CODE: whether the part did not end. without KERNEL: the following parts use that kernel instead.
hung() {
    [ "$1" = 124 ] || [ "$1" = 137 ] || [ "$1" = out-of-time ]
}
without() {
    ours="$ours DPE_CUDA_ATTENTION=$1"
    tests="$tests DPE_TEST_CUDA_ATTENTION=$1"
    echo "an attention kernel failed: what follows runs with DPE_CUDA_ATTENTION=$1"
}

if [ -n "$card" ]; then
    shape=llama3-8b cases= few= short="--length 8K" first=16384 lengths="16384 131072" counts="1 2 4 8 16 32 64" questions="32K 128K"
    families= recurrent="families/qwen3_5 families/qwen3_5_moe families/qwen3_next families/olmo_hybrid families/olmo_hybrid_still"
    tokens=1200 sweep="--length 1024 --groups 8 --samples 8 --select paper --temperature off" report= step="--length 32K --repeats 1 --branches 1 --branches 32"
    beside="--length 32K --repeats 1 --beside 20"
    small="--length 1K --new 64" tiny=
else
    tests="$ours DPE_TEST_FEW=1 DPE_TEST_CUDA_FIRST=1" # which find the emulated device by themselves
    shape=$root/tests/golden/llama_bf16 cases=2 few=-q short="--length 20 --new 1 --repeats 1" first=100 lengths=100 counts="1 2 4"
    questions="20 40" families=families/qwen3_moe recurrent=families/olmo_hybrid tokens=40
    sweep="--length 96 --trained-length 64 --lengths 8,32 --window 8 --groups 2 --samples 1 --task ppl --select paper --temperature off"
    report="--shape $shape" step="$short --branches 1 --branches 9" small=$short tiny=tiny beside="$short --beside 3" texts="--length 128 --trained-length 64 --budget 400tok"
fi
model=$root/data/reference
sample=$root/data/sample
attention=$(program test_attention_gpu)
speed=$(program bench_attention_cuda)

# 1. What has not run on a card, or decides what the rest runs with.
part instructions 30 $ours "$(program test_instructions_gpu)"
part kernels-wgmma 60 $ours "$attention" wgmma $cases
wgmma=$code
part kernels-mma 40 $ours "$attention" mma $cases
mma=$code
case $mma,$wgmma in
0,0 | *,125 | 125,*) ;; # 125: not a kernel for this card
0,*) without mma ;;
*,0) without wgmma ;;
*) without plain ;;
esac
part ladder 90 $ours env DPE_DEVICE_SELF_TEST=$tokens "$bin/dpe-bench" --gpu-report "$state/ladder.md" --force $report --device cuda
part recurrent 30 $tests "$(program test_cuda_golden)" $recurrent
part states 30 $tests "$(program test_states)" cuda
# Several plans, and several contexts of one, in one step.
part plans 60 $tests "$(program test_plans_together)" cuda
# Steps as graphs up to 64 rows; several caches in one launch of attention.
part parity-steps 60 $tests "$(program test_cuda_steps)"
part golden 40 $tests "$(program test_cuda_golden)" $families
# Factors by head and depth, growing queries and branches are among its cases.
part parity 80 $tests ${few:+env DPE_TEST_CUDA_FIRST=4} "$(program test_cuda)"
# The check that every tool runs before its first session; it names a call that hangs after a minute.
part self-test 75 $ours env DPE_DEVICE_SELF_TEST=$tokens "$bin/dpe-run" -m "$model" -p "a b c" -n 1 --device cuda
# 2. Steps of many questions over one context, which is read once for all of them.
repeated=
for count in $counts; do
    repeated="$repeated --branches $count"
done
for length in $questions; do
    bench "questions-$length" 90 --shape "$shape" --length "$length" --repeats 1 --new 8 $repeated
done
# A race reads its first contexts under twenty plans, each with a cache of its own.
bench twenty-plans 90 --shape "$shape" $beside
# 3. Heads of 256. It checks a kernel over many items a block first, and measures none that is wrong.
hung "$wgmma" || part attention-256 60 $ours "$speed" $few wgmma 256 $first
hung "$mma" || part attention-256-mma 60 $ours "$speed" $few mma 256 $first
[ -z "$python" ] || part peers 60 "$python" -u "$here/peers.py" $lengths
# 4. A search's first 16 texts at twice the trained length.
search() {
    [ -z "$card" ] || {
        trained=$($ours "$bin/dpe-run" -m "$1" --info | awk '/^trained length/ { print $3 }')
        trained=${trained:-8192} # the part says what is wrong
        texts="--length $((2 * trained)) --budget $((32 * trained))tok"
    }
    part "search-$(basename "$1")" 90 $ours "$bin/dpe-detect" --model "$1" --corpus "$sample" $texts --device cuda \
        -o "$state/search.h5" --force
}
IFS=$newline
for one in ${models:-$model}; do
    unset IFS
    search "$one"
done
unset IFS
if [ -z "$models" ] && [ -n "$python" ] && [ "$code" = 0 ]; then
    for of in smollm2-135m gemma-3-270m; do
        part "stand-in-$of" 40 "$python" "$here/stand_in.py" "$of" "$model" "$state/$of" $tiny
        [ "$code" != 0 ] || search "$state/$of"
    done
fi
# 5. The rest: speeds first.
hung "$wgmma" || part attention-wgmma 60 $ours "$speed" $few wgmma 128 $lengths
bench bench 40 --shape "$shape" $short
if [ -n "$card" ]; then
    bench bench-64k 40 --shape "$shape" --length 64K --repeats 1
    for other in mistral-7b qwen2.5-7b llama3-70b-layer; do
        bench "$other" 20 --shape "$other" --length 8K --repeats 1
    done
fi
# version NAME SHAPE SETTING: a step with this in the environment.
version() {
    part "step-$1" 25 $ours "$3" "$bin/dpe-bench" --device cuda --json "$state/step-$1.jsonl" --shape "$2" $step
}
version today "$shape" DPE_CUDA_GRAPHS=
version launches "$shape" DPE_CUDA_GRAPHS=off
# What launches cost shows most where a step is short.
step=$small
version small-today "$model" DPE_CUDA_GRAPHS=
version small-launches "$model" DPE_CUDA_GRAPHS=off
part kernels-plain 30 $ours "$attention" plain $cases
part parity-select 20 $tests "$(program test_cuda_select)"
part sweep-cpu 60 $ours "$bin/dpe-detect" --model "$model" --corpus "$sample" $sweep --device cpu --dtype f32 \
    -o "$state/cpu.h5" --force
code=125
[ -z "$python" ] || part widen 20 "$python" "$here/agreement.py" widen "$model" "$state/f32"
if [ "$code" = 0 ]; then
    for dtype in f32 bf16; do
        [ "$dtype" = bf16 ] && folder=$model || folder=$state/f32
        part "sweep-$dtype" 40 $ours "$bin/dpe-detect" --model "$folder" --corpus "$sample" $sweep --device cuda \
            -o "$state/$dtype.h5" --force
        part "agreement-$dtype" 20 "$python" "$here/agreement.py" compare "$state/cpu.h5" "$state/$dtype.h5" \
            "$([ "$dtype" = f32 ] && echo 0.995 || echo 0)"
    done
fi
hung "$mma" || part attention-mma 40 $ours "$speed" $few mma 128 $lengths
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck; do
        part "$tool" 60 $tests DPE_TEST_FEW=1 compute-sanitizer --tool "$tool" --error-exitcode 1 "$(program test_cuda)"
    done
fi
if [ -n "$card" ] && command -v ncu >/dev/null; then
    part ncu-attention 40 $ours ncu --clock-control none --kernel-name-base demangled --kernel-name regex:attention --launch-skip 4 --launch-count 1 \
        --section SpeedOfLight --section ComputeWorkloadAnalysis --section WarpStateStats --section MemoryWorkloadAnalysis \
        "$bin/dpe-bench" --device cuda --shape "$shape" $short --method dpe
    # A prefill launches fewer than 1500 of these, 40 steps of decoding more than 7000. A layer has 9.
    part ncu-decode 40 $ours env DPE_CUDA_GRAPHS=off ncu --clock-control none --metrics gpu__time_duration.sum,dram__bytes_read.sum \
        --kernel-name "regex:embed|rmsnorm|product_few|add_bias|rotate|decode|combine|swiglu|nonfinite|argmax" \
        --launch-skip 1500 --launch-count 11 \
        "$bin/dpe-bench" --device cuda --shape "$shape" $short --new 40 --repeats 1 --method dpe
fi
write
echo "results in $out, $(($(date +%s) - begin)) s"
for name in $(cat "$state/order"); do
    [ -e "$state/$name.done" ] || continue
    read -r code took meaning <"$state/$name.done"
    # A peer or a tool that is not installed is not a failure of dpe.
    [ "$code" = 0 ] || [ "$code" = 125 ] || exit 1
done
[ -z "$left_out" ] || exit 75
