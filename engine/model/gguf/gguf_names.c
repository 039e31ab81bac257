/* The tensors of GGUF files under the names that a Hugging Face folder has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/gguf/gguf_model.h"
#include "engine/text/json.h"

const struct dpe_gguf_tensor *dpe_gguf_set_find(const struct dpe_gguf_set *set, const char *name,
                                                int *file)
{
    for (int f = 0; f < set->n; f++) {
        for (size_t i = 0; i < set->files[f]->n_tensors; i++) {
            if (strcmp(set->files[f]->tensors[i].name, name) == 0) {
                if (file != NULL) {
                    *file = f;
                }
                return &set->files[f]->tensors[i];
            }
        }
    }
    return NULL;
}

/* "NUMBER.rest" → the number, and *rest behind the point; −1 when it is none. */
static int64_t layer_number(const char *name, const char **rest)
{
    int64_t layer = 0;
    return dpe_scan_int(&name, 0, 1 << 20, &layer) && *name == '.' ? (*rest = name + 1, layer) : -1;
}

/* The name of a tensor of a layer without its layer and suffix; NULL: none is known. */
static const char *layer_name(const struct dpe_config *config, const char *name)
{
    const struct dpe_family *family = dpe_family_of(config);
    const struct dpe_norm_names *norms = family->norms;
    const char *third = norms->after_attention != NULL ? norms->after_attention : norms->before_mlp;
    const struct {
        const char *gguf, *name;
    } names[] = {
        {"attn_norm", norms->before_attention},
        {"post_attention_norm", third},
        {"ffn_norm", norms->before_mlp},
        {"post_ffw_norm", norms->after_mlp},
        {"attn_q", "self_attn.q_proj"},
        {"attn_k", "self_attn.k_proj"},
        {"attn_v", "self_attn.v_proj"},
        {"attn_qkv", "self_attn.qkv_proj"},
        {"attn_output", "self_attn.o_proj"},
        {"attn_q_norm", "self_attn.q_norm"},
        {"attn_k_norm", "self_attn.k_norm"},
        {"attn_sinks", "self_attn.sinks"},
        {"ffn_gate", "mlp.gate_proj"},
        {"ffn_up", family->gate_up_fused ? "mlp.gate_up_proj" : "mlp.up_proj"},
        {"ffn_down", "mlp.down_proj"},
        {"ffn_gate_inp", "mlp.gate"},
        {"ffn_gate_exps", "mlp.experts.%lld.gate_proj"},
        {"ffn_up_exps", "mlp.experts.%lld.up_proj"},
        {"ffn_down_exps", "mlp.experts.%lld.down_proj"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i].gguf, name) == 0) {
            return names[i].name;
        }
    }
    return NULL;
}

/* What collects the table. */
struct collector {
    const struct dpe_config *config;
    struct dpe_shard_table *table;
    const struct dpe_gguf *file;
    int shard;
    struct dpe_error *err;
};

/* One entry with a shape of its own: rows first, `rank` of them from the end of the tensor's. */
static dpe_status add(struct collector *c, const struct dpe_gguf_tensor *from, const char *name,
                      int rank, uint64_t begin, uint64_t end)
{
    struct dpe_shard_table *table = c->table;
    DPE_TRY(DPE_ROOM(&table->tensors, table->n, c->err, "%s: out of memory for its tensors",
                     c->file->path));
    struct dpe_shard_tensor *to = &table->tensors[table->n];
    *to = (struct dpe_shard_tensor){.name = strdup(name),
                                    .dtype = dpe_block_types[from->dtype].name,
                                    .shard = c->shard,
                                    .rank = rank,
                                    .begin = begin,
                                    .end = end};
    for (int i = 0; i < rank; i++) {
        to->shape[i] = from->shape[from->rank - rank + i];
    }
    if (to->name == NULL) {
        return dpe_fail(c->err, DPE_NO_MEMORY, "%s: out of memory for its tensors", c->file->path);
    }
    table->n++;
    return DPE_OK;
}

static dpe_status unknown(const struct collector *c, const struct dpe_gguf_tensor *tensor)
{
    char quoted[96];
    return dpe_fail(c->err, DPE_BAD_DATA,
                    "%s: tensor %s is not known in a %s model; without it the model would compute "
                    "something else",
                    c->file->path, dpe_json_quote(quoted, tensor->name, strlen(tensor->name)),
                    c->config->model_type);
}

/* A tensor of all experts as one for each. */
static dpe_status add_experts(struct collector *c, const struct dpe_gguf_tensor *tensor,
                              const char *pattern, int64_t layer, const char *suffix)
{
    int64_t n = tensor->shape[0];
    uint64_t bytes = (tensor->end - tensor->begin) / (uint64_t)n;
    if (n != c->config->n_experts || tensor->rank < 2) {
        char quoted[96];
        return dpe_fail(c->err, DPE_BAD_DATA, "%s: tensor %s: expected %lld experts, found %lld",
                        c->file->path, dpe_json_quote(quoted, tensor->name, strlen(tensor->name)),
                        (long long)c->config->n_experts, (long long)n);
    }
    const char *kind = strrchr(pattern, '.') + 1;
    for (int64_t e = 0; e < n; e++) {
        char name[128];
        uint64_t begin = tensor->begin + (uint64_t)e * bytes;
        snprintf(name, sizeof name, "model.layers.%lld.mlp.experts.%lld.%s%s", (long long)layer,
                 (long long)e, kind, suffix);
        DPE_TRY(add(c, tensor, name, tensor->rank - 1, begin, begin + bytes));
    }
    return DPE_OK;
}

static dpe_status add_layer_tensor(struct collector *c, const struct dpe_gguf_tensor *tensor)
{
    const char *rest = NULL;
    int64_t layer = layer_number(tensor->name + strlen("blk."), &rest);
    const char *suffix = layer >= 0 ? strrchr(rest, '.') : NULL;
    char own[64];
    if (suffix == NULL || (strcmp(suffix, ".weight") != 0 && strcmp(suffix, ".bias") != 0) ||
        (size_t)(suffix - rest) >= sizeof own) {
        return unknown(c, tensor);
    }
    snprintf(own, sizeof own, "%.*s", (int)(suffix - rest), rest);
    const char *name = layer_name(c->config, own);
    if (name == NULL) {
        return unknown(c, tensor);
    }
    if (strchr(name, '%') != NULL) {
        return add_experts(c, tensor, name, layer, suffix);
    }
    char full[128];
    bool bare = strcmp(name, "self_attn.sinks") == 0;
    snprintf(full, sizeof full, "model.layers.%lld.%s%s", (long long)layer, name,
             bare ? "" : suffix);
    return add(c, tensor, full, tensor->rank, tensor->begin, tensor->end);
}

static dpe_status add_tensor(struct collector *c, const struct dpe_gguf_tensor *tensor)
{
    static const struct {
        const char *gguf, *name; /* NULL: the configuration has it */
    } names[] = {
        {"token_embd.weight", "model.embed_tokens.weight"},
        {"output_norm.weight", "model.norm.weight"},
        {"output.weight", "lm_head.weight"},
        {"rope_freqs.weight", NULL},
        {"rope_factors_long.weight", NULL},
        {"rope_factors_short.weight", NULL},
    };
    if (strncmp(tensor->name, "blk.", 4) == 0) {
        return add_layer_tensor(c, tensor);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i].gguf, tensor->name) == 0) {
            return names[i].name == NULL
                       ? DPE_OK
                       : add(c, tensor, names[i].name, tensor->rank, tensor->begin, tensor->end);
        }
    }
    return unknown(c, tensor);
}

dpe_status dpe_gguf_tensors(const struct dpe_gguf_set *set, const struct dpe_config *config,
                            struct dpe_shard_table *table, struct dpe_error *err)
{
    struct collector c = {.config = config, .table = table, .err = err};
    for (int f = 0; f < set->n; f++) {
        c.file = set->files[f];
        c.shard = f;
        for (size_t i = 0; i < c.file->n_tensors; i++) {
            DPE_TRY(add_tensor(&c, &c.file->tensors[i]));
        }
    }
    return DPE_OK;
}
