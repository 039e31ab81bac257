/* Runtimes and commands, once. */
#include "outputs/datasets/uses.h"

const struct dpe_use dpe_uses[DPE_USES] = {
    {"dpe", "dpe-run -m MODEL --table TABLE --chat, or dpe-serve -m MODEL --table TABLE", false},
    {"vLLM (outputs/vllm)",
     "DPE_TABLE=TABLE python -m vllm.entrypoints.openai.api_server --model MODEL", false},
    {"transformers (outputs/transformers)", "dpe_transformers.apply(model, \"TABLE\")", false},
    {"C (outputs/table/dpe_table.h)", "dpe_table_open(\"TABLE\", &table, why)", false},
    {"vLLM, SGLang, transformers without an adapter",
     "dpe-export TABLE -m MODEL --format longrope -o config.json", true},
    {"llama.cpp", "dpe-export TABLE --gguf MODEL -o NEW.gguf", true},
};
