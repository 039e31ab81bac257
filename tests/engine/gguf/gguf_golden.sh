#!/bin/sh
# gguf_golden.sh PYTHON TESTS: every golden model that a GGUF file can hold, as such a file, against transformers; some of them, and
# the same in blocks, on the emulated cuda device too.
set -eu
python=$1 tests=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folders="llama llama_bf16 llama3 qwen2 linear yarn families/qwen3 families/qwen3_moe families/phi3 families/phi3_short families/olmo2
families/olmo3 families/granite families/glm4 families/gemma2 families/gemma3 families/gpt_oss families/mistral3
families/ministral3 families/smollm3_fourth families/glm4_moe families/glm4_moe_one_group families/minimax_m2 families/seed_oss
families/ernie4_5 families/hunyuan families/hunyuan_tied families/llama4_wide families/gemma4 families/gemma4_alike families/gemma4_experts families/exaone4 families/exaone4_windows families/cohere2 families/qwen3_5 families/qwen3_5_moe families/qwen3_next"
"$python" engine/gguf/gguf_models.py "$work" $folders
DPE_TEST_GGUF=$work "$tests/test_golden" $folders
"$python" engine/gguf/gguf_models.py "$work/whole" --whole families/qwen3_next
DPE_TEST_GGUF=$work/whole "$tests/test_golden" families/qwen3_next
if [ -x "$tests/test_cuda_golden" ]; then
    DPE_TEST_GGUF=$work "$tests/test_cuda_golden" llama_bf16 families/phi3_short
    folders="llama_bf16 families/phi3_short families/gemma3 families/qwen3_moe families/glm4_moe"
    "$python" engine/gguf/gguf_models.py "$work/blocks" --blocks $folders
    DPE_TEST_GGUF=$work/blocks "$tests/test_cuda_golden" $folders
fi
