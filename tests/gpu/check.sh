#!/bin/sh
# check.sh [-o RESULTS] [-s SECONDS] [-q]: whether everything is right on this GPU (parts.sh has the options): the
# self-test, the backend against the reference, a sweep on the device beside the same on the CPU, the other variants and
# kernels, and the time of a step as a graph and launch by launch.
. "$(dirname "$0")/parts.sh"

# The sweep on the CPU runs during the checks, which measure no time, and for a third of the time at most.
model=$here/data/reference
(timeout $((seconds / 3)) $ours "$bundle/bin/dpe-detect" --model "$model" --corpus "$here/data/sample" $sweep --device cpu \
    -o "$work/cpu.h5" >"$work/parts/sweep-cpu.txt" 2>&1; echo "exit $?" >>"$work/parts/sweep-cpu.txt") &
sweep_pid=$!
check_kernels both
# The check that every tool runs before its first session; it names a call that hangs after a minute.
part self-test 75 $ours env DPE_DEVICE_SELF_TEST=$tokens "$bundle/bin/dpe-run" -m "$model" -p "a b c" -n 1 --device cuda
part parity 80 $tests "$here/test_cuda"
part parity-steps 40 $tests "$here/test_cuda_steps"
part parity-golden 20 $tests "$here/test_cuda_golden"
part parity-select 20 $tests "$here/test_cuda_select"
part kernels-variants 60 $ours "$here/test_attention_gpu" variants
variants=$code
part kernels-plain 30 $ours "$here/test_attention_gpu" plain
wait "$sweep_pid"
[ -e "$work/cpu.h5" ] || echo "sweep-cpu: $(tail -n 2 "$work/parts/sweep-cpu.txt" | tr '\n' ' '): nothing to compare sweeps with"
if [ -n "$python" ] && "$python" "$here/agreement.py" widen "$model" "$work/f32" >"$work/parts/widen.txt" 2>&1; then
    for dtype in f32 bf16; do
        [ "$dtype" = bf16 ] && folder=$model || folder=$work/f32
        part "sweep-$dtype" 40 $ours "$bundle/bin/dpe-detect" --model "$folder" --corpus "$here/data/sample" \
            $sweep --device cuda -o "$work/$dtype.h5"
        [ -e "$work/cpu.h5" ] && part "agreement-$dtype" 20 "$python" "$here/agreement.py" compare "$work/cpu.h5" \
            "$work/$dtype.h5" "$([ "$dtype" = f32 ] && echo 0.995 || echo 0)"
    done
fi
step="--length 32K --repeats 1"
[ -n "$quick" ] && step=$short
# version NAME SHAPE SETTING: a step with this in the environment.
version() {
    part "step-$1" 25 $ours "$3" "$bundle/bin/dpe-bench" --device cuda --json "$work/parts/step-$1.jsonl" --shape "$2" $step
}
version today "$shape" DPE_CUDA_GRAPHS=
version launches "$shape" DPE_CUDA_GRAPHS=off
# What launches cost shows most where a step is short.
step="--length 1K --new 64"
[ -n "$quick" ] && step=$short
version small-today "$model" DPE_CUDA_GRAPHS=
version small-launches "$model" DPE_CUDA_GRAPHS=off
hung "$mma" || part attention-mma 40 $ours "$here/bench_attention_cuda" mma 128 $lengths
hung "$wgmma" || hung "$variants" || part attention-variants 40 $ours "$here/bench_attention_cuda" variants 128 $lengths
finish
