#!/bin/sh
# decide.sh [-o RESULTS] [-s SECONDS] [-q]: what decides, before everything else (parts.sh has the options): single
# instructions, the attention kernel, layers with a state, heads of 256, the attention kernel's speed beside PyTorch's, prefill and decode of an 8B model at 8k to 128k,
# and, where ncu may be used, one launch of attention and every kernel of one layer of a step of decoding.
. "$(dirname "$0")/parts.sh"

lengths=${quick:+64}
lengths=${lengths:-16384 131072}
part instructions 30 $ours "$here/test_instructions_gpu"
check_kernels
# Layers with a state have not run on a card yet: golden logits of the families, then states that are cut, copied and branched.
hybrids="families/qwen3_5 families/qwen3_5_moe families/qwen3_next families/olmo_hybrid families/olmo_hybrid_still"
[ -n "$quick" ] && hybrids=families/olmo_hybrid
part recurrent 30 $tests "$here/test_cuda_golden" $hybrids
part states 30 $tests "$here/test_states" cuda
# These first check a kernel over many items a block, and measure none that is wrong. Heads of 256 have not run on a card yet.
hung "$mma" || part attention-256 60 $ours "$here/bench_attention_cuda" mma 256 ${lengths%% *}
if ! hung "$wgmma"; then
    part attention-wgmma 60 $ours "$here/bench_attention_cuda" wgmma 128 $lengths
    [ "$wgmma" = 0 ] && [ "$code" != 0 ] && [ "$code" != out-of-time ] &&
        without "$([ "$mma" = 0 ] && echo mma || echo plain)"
fi
[ -n "$python" ] && part peers 60 "$python" -u "$here/peers.py" $lengths
# The short one first: where the long one fails or hangs, there is this.
bench bench 40 --shape "$shape" $short
if [ -z "$quick" ]; then
    bench bench-32k 30 --shape "$shape" --length 32K --repeats 1
    bench bench-64k 40 --shape "$shape" --length 64K --repeats 1
fi
bench bench-128k 100 --shape "$shape" $long
if command -v ncu >/dev/null; then
    part ncu-attention 40 $ours ncu --clock-control none --kernel-name-base demangled --kernel-name regex:attention --launch-skip 4 --launch-count 1 \
        --section SpeedOfLight --section ComputeWorkloadAnalysis --section WarpStateStats --section MemoryWorkloadAnalysis \
        "$bundle/bin/dpe-bench" --device cuda --shape "$shape" $short --method dpe
    # A prefill launches fewer than 1500 of these, 40 steps of decoding more than 7000. A layer has 9.
    part ncu-decode 40 $ours env DPE_CUDA_GRAPHS=off ncu --clock-control none --metrics gpu__time_duration.sum,dram__bytes_read.sum \
        --kernel-name "regex:embed|rmsnorm|product_few|add_bias|rotate|decode|combine|swiglu|nonfinite|argmax" \
        --launch-skip 1500 --launch-count 11 \
        "$bundle/bin/dpe-bench" --device cuda --shape "$shape" $short --new 40 --repeats 1 --method dpe
fi
finish
