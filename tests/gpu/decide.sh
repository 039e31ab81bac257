#!/bin/sh
# decide.sh [-o RESULTS] [-s SECONDS] [-q]: what decides, before everything else (parts.sh has the options): single
# instructions, the attention kernels, their speed beside PyTorch's, prefill and decode of an 8B model at 8k and 128k,
# and, where ncu may be used, one launch of attention and every kernel of a step of decoding.
. "$(dirname "$0")/parts.sh"

lengths=${quick:+64}
lengths=${lengths:-16384 131072}
part instructions 30 $ours "$here/test_instructions_gpu"
check_kernels
# These first check a kernel over many items a block, and measure none that is wrong.
if ! hung "$wgmma"; then
    part attention-wgmma 60 $ours "$here/bench_attention_cuda" wgmma 128 $lengths
    [ "$wgmma" = 0 ] && [ "$code" != 0 ] && [ "$code" != out-of-time ] &&
        without "$([ "$mma" = 0 ] && echo mma || echo plain)"
fi
[ -n "$python" ] && part peers 60 "$python" -u "$here/peers.py" $lengths
bench bench-128k 100 --shape "$shape" $long
bench bench 60 --shape "$shape" $short
if command -v ncu >/dev/null; then
    part ncu-attention 40 $ours ncu --kernel-name-base demangled --kernel-name regex:attention --launch-skip 4 --launch-count 1 \
        --section SpeedOfLight --section WarpStateStats --section MemoryWorkloadAnalysis \
        "$bundle/bin/dpe-bench" --device cuda --shape "$shape" ${short%% --length*} --method dpe
    part ncu-decode 40 $ours ncu --metrics gpu__time_duration.sum,dram__bytes_read.sum --launch-skip 400 --launch-count 40 \
        "$bundle/bin/dpe-bench" --device cuda --shape "$shape" ${short%% --length*} --method dpe
fi
finish
