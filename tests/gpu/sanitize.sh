#!/bin/sh
# sanitize.sh [-o RESULTS] [-s SECONDS] [-q]: compute-sanitizer over the backend's test, other shapes and branches, and
# instruct.sh with the model of the folder DPE_INSTRUCT_MODEL and the texts of DPE_INSTRUCT_CORPUS (without: the bundled
# ones; parts.sh has the options).
. "$(dirname "$0")/parts.sh"

check_kernels
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck; do
        part "$tool" $sanitizer_seconds $tests DPE_TEST_CUDA_SMALL=1 compute-sanitizer --tool "$tool" --error-exitcode 1 \
            "$here/test_cuda"
    done
fi
hung "$wgmma" || part attention-64 30 $ours "$here/bench_attention_cuda" wgmma 64 $lengths
bench branches 40 --shape "$shape" ${long% --repeats 1} --repeats 1 --branches 4 --method rope
# A model of one's own needs more than these seconds: instruct.sh by itself then continues what is there.
part instruct 75 env LD_LIBRARY_PATH="$libraries" "$here/instruct.sh" -m "${DPE_INSTRUCT_MODEL:-$here/data/reference}" \
    -c "${DPE_INSTRUCT_CORPUS:-$here/data/sample}" -d "$instruct_device" -n 4 -x 2 -s $((60 * slack)) -o "$out/instruct"
if [ -z "$quick" ]; then
    [ -z "$best" ] && part mma 30 env DPE_CUDA_ATTENTION=mma $ours "$bundle/bin/dpe-bench" --device cuda --shape "$shape" \
        --length 8K --repeats 1
    for other in mistral-7b qwen2.5-7b llama3-70b-layer; do
        bench "$other" 20 --shape "$other" --length 8K --repeats 1
    done
fi
finish
