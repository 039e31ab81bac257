/* Opening a model in GGUF files, its tensors under the names that a Hugging Face folder has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/bytes.h"
#include "engine/model/config/config_parse.h"
#include "engine/model/gguf_model.h"
#include "engine/text/json.h"

/* --------------------------------------------------------------------------- names of tensors */

/* "NUMBER.rest" → the number, and *rest after the point; −1 when it is none. */
static int64_t layer_number(const char *name, const char **rest)
{
    int64_t layer = 0;
    return dpe_scan_int(&name, 0, 1 << 20, &layer) && *name == '.' ? (*rest = name + 1, layer) : -1;
}

/* A name in a GGUF file, and ours. */
struct named {
    const char *gguf, *name;
};

/* The name of a tensor of a layer without its layer and suffix; NULL: none is known. */
static const char *layer_name(const struct dpe_config *config, const char *name)
{
    const struct dpe_family *family = dpe_family_of(config);
    const struct dpe_norm_names *norms = dpe_family_norms(family, false);
    const bool gated = family->shared_gate;
    const char *third = norms->after_attention != NULL ? norms->after_attention : norms->before_mlp;
    const struct named names[] = {
        {"attn_norm", norms->before_attention},
        {"post_attention_norm", third},
        {"ffn_norm", norms->before_mlp},
        {"post_ffw_norm", norms->after_mlp},
        {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
        {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
        {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
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
        {"ffn_gate_inp.scale", "router.scale"},
        {"ffn_down_exps.scale", "router.per_expert_scale"},
        {"exp_probs_b", "mlp.gate.e_score_correction_bias"},
        {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
        {"ffn_gate_shexp", gated ? "mlp.shared_expert.gate_proj" : "mlp.shared_experts.gate_proj"},
        {"ffn_up_shexp", gated ? "mlp.shared_expert.up_proj" : "mlp.shared_experts.up_proj"},
        {"ffn_down_shexp", gated ? "mlp.shared_expert.down_proj" : "mlp.shared_experts.down_proj"},
        {"ffn_gate_up_exps", "mlp.experts.%lld.gate_up_proj"},
        {"ffn_gate_exps", "mlp.experts.%lld.gate_proj"},
        {"ffn_up_exps", "mlp.experts.%lld.up_proj"},
        {"ffn_down_exps", "mlp.experts.%lld.down_proj"},
        {"inp_gate", "per_layer_input_gate"},
        {"proj", "per_layer_projection"},
        {"post_norm", "post_per_layer_input_norm"},
        {"layer_output_scale", "layer_scalar"},
    };
    static const struct named states[] = {
        {"attn_qkv", "linear_attn.in_proj_qkv"}, {"attn_gate", "linear_attn.in_proj_z"},
        {"ssm_beta", "linear_attn.in_proj_b"},   {"ssm_alpha", "linear_attn.in_proj_a"},
        {"ssm_conv1d", "linear_attn.conv1d"},    {"ssm_dt", "linear_attn.dt_bias"},
        {"ssm_a", "linear_attn.A_log"},          {"ssm_norm", "linear_attn.norm"},
        {"ssm_out", "linear_attn.out_proj"},     {"ssm_ba", "linear_attn.in_proj_ba"},
        {"ssm_in", "linear_attn.in_proj_qkvz"},
    };
    const struct named *found = family->recurrent != NULL ? DPE_NAMED(states, name) : NULL;
    found = found != NULL ? found : DPE_NAMED(names, name);
    return found != NULL ? found->name : NULL;
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
    DPE_TRY(DPE_MADE(to->name, c->err, "%s: out of memory for its tensors", c->file->path));
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
    const char *kinds[] = {strrchr(pattern, '.') + 1, NULL};
    struct dpe_gguf_tensor part = *tensor;
    int64_t parts = 1;
    if (strcmp(kinds[0], "gate_up_proj") == 0 && part.rank == 3 && part.shape[1] % 2 == 0) {
        kinds[0] = "gate_proj";
        kinds[1] = "up_proj";
        parts = 2;
        part.shape[1] /= 2;
    }
    bytes /= (uint64_t)parts;
    for (int64_t i = 0; i < parts * n; i++) {
        char name[128];
        uint64_t begin = tensor->begin + (uint64_t)i * bytes;
        snprintf(name, sizeof name, "model.layers.%lld.mlp.experts.%lld.%s%s", (long long)layer,
                 (long long)(i / parts), kinds[i % parts], suffix);
        DPE_TRY(add(c, &part, name, part.rank - 1, begin, begin + bytes));
    }
    return DPE_OK;
}

static dpe_status add_layer_tensor(struct collector *c, const struct dpe_gguf_tensor *tensor)
{
    const char *rest = NULL;
    int64_t layer = layer_number(tensor->name + strlen("blk."), &rest);
    const char *suffix = layer >= 0 ? strrchr(rest, '.') : NULL;
    const bool recurrent = dpe_family_of(c->config)->recurrent != NULL;
    const char *end = layer >= 0 ? rest + strlen(rest) : NULL;
    if (recurrent && layer >= c->config->n_layers) {
        return DPE_OK; /* it predicts further tokens */
    }
    const bool whole =
        layer >= 0 && ((recurrent && strcmp(rest, "ssm_a") == 0) ||
                       (c->config->experts_beside && strstr(rest, ".scale") != NULL));
    suffix = whole ? end : suffix;
    char own[64];
    if (suffix == NULL ||
        (suffix != end && strcmp(suffix, ".weight") != 0 && strcmp(suffix, ".bias") != 0) ||
        (size_t)(suffix - rest) >= sizeof own) {
        return unknown(c, tensor);
    }
    if (layer >= c->config->n_layers && layer < c->config->n_layers + c->config->further_layers) {
        return DPE_OK;
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
    bool bare = strcmp(name, "self_attn.sinks") == 0 || strcmp(name, "linear_attn.dt_bias") == 0 ||
                strcmp(name, "layer_scalar") == 0 || strstr(name, "correction_bias") != NULL;
    snprintf(full, sizeof full, "model.layers.%lld.%s%s", (long long)layer, name,
             bare ? "" : suffix);
    DPE_TRY(add(c, tensor, full, tensor->rank, tensor->begin, tensor->end));
    struct dpe_shard_tensor *to = &c->table->tensors[c->table->n - 1];
    if (to->rank == 1 && strcmp(name, "mlp.shared_expert_gate") == 0) {
        to->rank = 2; /* a matrix of one row, which the file has as a vector */
        to->shape[1] = to->shape[0];
        to->shape[0] = 1;
    }
    return DPE_OK;
}

static dpe_status add_tensor(struct collector *c, const struct dpe_gguf_tensor *tensor)
{
    static const struct named names[] = {
        {"token_embd.weight", "model.embed_tokens.weight"},
        {"output_norm.weight", "model.norm.weight"},
        {"output.weight", "lm_head.weight"},
        {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
        {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
        {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
        {"rope_freqs.weight", NULL}, /* the configuration has it */
        {"rope_factors_long.weight", NULL},
        {"rope_factors_short.weight", NULL},
    };
    if (strncmp(tensor->name, "blk.", 4) == 0) {
        return add_layer_tensor(c, tensor);
    }
    const struct named *found = DPE_NAMED(names, tensor->name);
    return found == NULL ? unknown(c, tensor)
           : found->name == NULL
               ? DPE_OK
               : add(c, tensor, found->name, tensor->rank, tensor->begin, tensor->end);
}

/* The tensors under the names of a Hugging Face folder, appended to *table; names are owned by the
 *  entries (free each). A tensor that is not known is DPE_BAD_DATA: what it does would be left out.
 */
static dpe_status collect_tensors(const struct dpe_gguf_set *set, const struct dpe_config *config,
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

/* ------------------------------------------------------------------------------------- opening */

static void close_set(struct dpe_gguf_set *set)
{
    for (int i = 0; i < set->n; i++) {
        dpe_gguf_close(set->files[i]);
    }
    free(set->files);
}

static dpe_status open_set(const char *path, struct dpe_gguf_set *set, struct dpe_error *err)
{
    DPE_SCOPED(dpe_gguf_close_scoped) struct dpe_gguf *first = NULL;
    DPE_OWNED char *next = strdup(path);
    int n = 0;
    DPE_TRY(DPE_MADE(next, err, "%s: out of memory", path));
    DPE_TRY(dpe_gguf_open(path, &first, err));
    DPE_TRY(dpe_gguf_count(first, &n, err));
    DPE_TRY(DPE_NEW(&set->files, (size_t)n, err, "%s: out of memory", path));
    set->files[set->n++] = first;
    first = NULL;
    for (; set->n < n; set->n++) {
        const size_t end = (size_t)snprintf(NULL, 0, DPE_GGUF_PART, set->n + 1, n);
        snprintf(next + strlen(path) - end, end + 1, DPE_GGUF_PART, set->n + 1, n);
        DPE_TRY(dpe_gguf_open(next, &set->files[set->n], err));
    }
    for (int i = 0; i < n; i++) {
        DPE_TRY(dpe_gguf_check_types(set->files[i], err));
    }
    return DPE_OK;
}

/* A file of the set as a mapped shard, and its name, size and header into the hash. */
static dpe_status map_file(struct dpe_gguf *file, struct dpe_shard *shard, struct dpe_sha256 *hash,
                           struct dpe_error *err)
{
    unsigned char size[8];
    *shard = (struct dpe_shard){.fd = file->fd, .size = file->size, .data = file->data};
    file->fd = -1;
    shard->name = strdup(dpe_last_part(file->path));
    shard->path = strdup(file->path);
    DPE_TRY(
        DPE_MADE(shard->name != NULL ? shard->path : NULL, err, "%s: out of memory", file->path));
    dpe_store_u64(size, shard->size, sizeof size);
    dpe_sha256_add(hash, shard->name, strlen(shard->name) + 1);
    dpe_sha256_add(hash, size, sizeof size);
    dpe_sha256_add(hash, file->header, file->n_header);
    return dpe_shard_map(shard, err);
}

/* "Q4_K 27, Q6_K 9, F32 109": how many tensors of each type there are. */
static void name_types(const struct dpe_gguf_set *set, struct dpe_model *model)
{
    int64_t count[DPE_DTYPES] = {0};
    for (int f = 0; f < set->n; f++) {
        for (size_t i = 0; i < set->files[f]->n_tensors; i++) {
            const struct dpe_gguf_tensor *tensor = &set->files[f]->tensors[i];
            count[tensor->dtype]++;
            model->config.weight_bytes += (int64_t)(tensor->end - tensor->begin);
        }
    }
    for (int i = DPE_DTYPES - 1; i >= 0; i--) {
        if (count[i] > 0) {
            dpe_append(model->types, sizeof model->types, "%s%s %lld",
                       model->types[0] != '\0' ? ", " : "", dpe_block_types[i].name,
                       (long long)count[i]);
        }
    }
}

/* Names are the entries' own. */
static void free_table(struct dpe_shard_table *table)
{
    for (size_t i = 0; i < table->n; i++) {
        free((char *)(uintptr_t)table->tensors[i].name);
    }
    free(table->tensors);
}

static dpe_status open_weights(struct dpe_model *model, struct dpe_gguf_set *set,
                               struct dpe_sha256 *hash, struct dpe_error *err)
{
    DPE_SCOPED(free_table) struct dpe_shard_table table = {0};
    DPE_TRY(DPE_NEW(&model->shards, (size_t)set->n, err, "%s: out of memory", model->folder));
    while (model->n_shards < set->n) {
        struct dpe_shard *shard = &model->shards[model->n_shards];
        DPE_TRY(map_file(set->files[model->n_shards++], shard, hash, err));
    }
    DPE_TRY(collect_tensors(set, &model->config, &table, err));
    DPE_TRY(dpe_shard_table_sort(&table, model->shards, err));
    return dpe_model_bind(model, &table, err);
}

dpe_status dpe_model_open_gguf(struct dpe_model *model, bool config_only, struct dpe_sha256 *hash,
                               struct dpe_error *err)
{
    DPE_SCOPED(close_set) struct dpe_gguf_set set = {0};
    DPE_TRY(open_set(model->folder, &set, err));
    DPE_TRY(dpe_gguf_config(&set, &model->config_json, &model->own_family, err));
    DPE_TRY(dpe_config_parse(model->folder, model->config_json, strlen(model->config_json), NULL,
                             NULL, 0, &model->config, err));
    model->config.family = &model->own_family;
    model->config.recurrent.tiled =
        model->own_family.recurrent != NULL && model->own_family.recurrent->tiled;
    dpe_sha256_add(hash, model->config_json, strlen(model->config_json));
    name_types(&set, model);
    return config_only ? DPE_OK : open_weights(model, &set, hash, err);
}
