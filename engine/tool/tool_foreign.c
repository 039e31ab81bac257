/* Names that other programs give to options which the tools have under names of their own. */
#include <string.h>

#include "engine/tool/tool_internal.h"

static const struct {
    const char *theirs;  /* of llama.cpp, vLLM, SGLang, or the Hugging Face tools */
    const char *ours[3]; /* the first that the tool has is meant */
} foreign[] = {
    {"ctx-size", {"context", "length"}},
    {"max-model-len", {"length"}},
    {"context-length", {"length", "context"}},
    {"max-length", {"length"}},
    {"n-predict", {"max-new"}},
    {"predict", {"max-new"}},
    {"max-tokens", {"max-new"}},
    {"max-new-tokens", {"max-new"}},
    {"n-gpu-layers", {"device"}},
    {"gpu-layers", {"device"}},
    {"main-gpu", {"device"}},
    {"gpu-memory-utilization", {"max-memory"}},
    {"mem-fraction-static", {"max-memory"}},
    {"tensor-parallel-size", {"tensor-parallel"}},
    {"tp-size", {"tensor-parallel"}},
    {"rope-scaling", {"method", "against"}},
    {"rope-scale", {"method", "against"}},
    {"rope-freq-base", {"method", "against"}},
    {"rope-freq-scale", {"method", "against"}},
    {"yarn-orig-ctx", {"trained-length"}},
    {"yarn-ext-factor", {"method"}},
    {"yarn-attn-factor", {"method"}},
    {"grp-attn-n", {"method"}},
    {"grp-attn-w", {"method"}},
    {"hf-overrides", {"method"}},
    {"json-model-override-args", {"method"}},
    {"cache-type-k", {"kv-cache-dtype"}},
    {"cache-type-v", {"kv-cache-dtype"}},
    {"batch-size", {"chunk", "batch"}},
    {"ubatch-size", {"chunk"}},
    {"max-num-batched-tokens", {"chunk"}},
    {"chunked-prefill-size", {"chunk"}},
    {"max-num-seqs", {"slots", "batch"}},
    {"parallel", {"slots"}},
    {"temp", {"temperature"}},
    {"conversation", {"chat"}},
    {"interactive", {"chat"}},
    {"system-prompt", {"system"}},
    {"file", {"prompt-file"}},
    {"perplexity", {"nll"}},
    {"model-path", {"model"}},
    {"hf-repo", {"model"}},
    {"alias", {"name"}},
    {"served-model-name", {"name"}},
    {"api-key", {"api-key-file"}},
};

static bool has(const struct dpe_command_line *line, const char *name)
{
    for (int i = 0; i < line->n_sets; i++) {
        for (const struct dpe_option *at = line->sets[i].set->options;
             at != NULL && (at->key != 0 || at->name != NULL || at->doc != NULL); at++) {
            if (at->name != NULL && strcmp(at->name, name) == 0) {
                return true;
            }
        }
    }
    return false;
}

const char *dpe_tool_foreign(const struct dpe_command_line *line, const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        if (strlen(foreign[i].theirs) != n || strncmp(foreign[i].theirs, name, n) != 0) {
            continue;
        }
        for (size_t k = 0; k < 3 && foreign[i].ours[k] != NULL; k++) {
            if (has(line, foreign[i].ours[k])) {
                return foreign[i].ours[k];
            }
        }
    }
    return NULL;
}
