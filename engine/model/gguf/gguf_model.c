/* Opening a model in GGUF files. */
#include "engine/model/gguf/gguf_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/bytes.h"
#include "engine/model/config/config_parse.h"

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
    DPE_SCOPED(dpe_gguf_free_paths) char **paths = NULL;
    int n = 0;
    DPE_TRY(dpe_gguf_open(path, &first, err));
    DPE_TRY(dpe_gguf_split(first, &paths, &n, err));
    DPE_TRY(DPE_NEW(&set->files, (size_t)n, err, "%s: out of memory", path));
    set->files[set->n++] = first;
    first = NULL;
    for (; set->n < n; set->n++) {
        DPE_TRY(dpe_gguf_open(paths[set->n], &set->files[set->n], err));
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
    const char *slash = strrchr(file->path, '/');
    unsigned char size[8];
    *shard = (struct dpe_shard){.fd = file->fd, .size = file->size, .data = file->data};
    file->fd = -1;
    shard->name = strdup(slash != NULL ? slash + 1 : file->path);
    shard->path = strdup(file->path);
    if (shard->name == NULL || shard->path == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", file->path);
    }
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
    DPE_TRY(dpe_gguf_tensors(set, &model->config, &table, err));
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
    dpe_sha256_add(hash, model->config_json, strlen(model->config_json));
    name_types(&set, model);
    return config_only ? DPE_OK : open_weights(model, &set, hash, err);
}
