/* Opening a Hugging Face folder as it is. */
#include "engine/model/model.h"
#include "engine/system/folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/model/config/config_parse.h"
#include "engine/model/gguf_model.h"
#include "engine/model/weights/opened.h"
#include "engine/model/weights/safetensors.h"
#include "engine/text/json.h"

/* Large enough for any real one, small enough that a tree of it is no danger. */
static const uint64_t max_config = 4 << 20;

/* A config.json of `dpe-export --format hf` has the model's own within it, as a text. The model is
 * read and hashed by that, so that it is the one that it was. */
static dpe_status take_own(const char *file, struct dpe_model *model, size_t *n,
                           struct dpe_error *err)
{
    DPE_SCOPED(json_decrefp) json_t *root = NULL;
    DPE_TRY(dpe_json_parse(file, model->config_json, *n, &root, err));
    const json_t *inner = json_object_get(root, "text_config");
    const json_t *new = json_object_get(json_is_object(inner) ? inner : root, "rope_parameters");
    const json_t *old = json_object_get(json_is_object(inner) ? inner : root, "rope_scaling");
    const char *own = json_string_value(json_object_get(json_is_object(new) ? new : old, "config"));
    model->config.exported = own != NULL;
    if (own != NULL) {
        free(model->config_json);
        model->config_json = strdup(own);
        *n = strlen(own);
        return DPE_MADE(model->config_json, err, "%s: out of memory", file);
    }
    return DPE_OK;
}

static dpe_status open_config(struct dpe_model *model, struct dpe_sha256 *hash,
                              struct dpe_error *err)
{
    DPE_OWNED char *file = dpe_folder_join(model->folder, "config.json");
    DPE_OWNED char *second = dpe_folder_join(model->folder, "generation_config.json");
    DPE_OWNED char *generation = NULL;
    size_t n = 0;
    size_t n_generation = 0;
    struct stat info;
    DPE_TRY(DPE_MADE(file != NULL ? second : NULL, err, "%s: out of memory", model->folder));
    DPE_TRY(dpe_read_file(file, max_config, &model->config_json, &n, err));
    DPE_TRY(take_own(file, model, &n, err));
    if (lstat(second, &info) == 0 || errno != ENOENT) { /* a folder may be without it */
        DPE_TRY(dpe_read_file(second, max_config, &generation, &n_generation, err));
    }
    DPE_TRY(dpe_config_parse(file, model->config_json, n, second, generation, n_generation,
                             &model->config, err));
    dpe_sha256_add(hash, model->config_json, n);
    return DPE_OK;
}

/* Data bytes, shard after shard: all of them, or FAST_BLOCKS evenly spaced small blocks, which is
 * what tells a model from its fine-tuned twin without reading all of it. Through read and not
 * through the mapping, so that a file that shrinks meanwhile is an error. */
static dpe_status hash_data(const struct dpe_model *model, enum dpe_fingerprint_kind kind,
                            struct dpe_sha256 *hash, struct dpe_error *err)
{
    enum { FULL_BLOCK = 1 << 20, FAST_BLOCK = 4096, FAST_BLOCKS = 256 };
    uint64_t block = kind == DPE_FINGERPRINT_FULL ? FULL_BLOCK : FAST_BLOCK;
    DPE_OWNED unsigned char *bytes = NULL;
    DPE_TRY(DPE_NEW(&bytes, block, err, "%s: out of memory", model->folder));
    for (int i = 0; i < model->n_shards; i++) {
        const struct dpe_shard *shard = model->shards + i;
        uint64_t stride = (shard->size - shard->data) / FAST_BLOCKS;
        stride = kind == DPE_FINGERPRINT_FULL || stride < block ? block : stride;
        for (uint64_t at = shard->data; at < shard->size; at += stride) {
            uint64_t end = shard->size - at < block ? shard->size : at + block;
            DPE_TRY(kind == DPE_FINGERPRINT_FULL ? dpe_shard_read(shard, at, end, bytes, err)
                                                 : dpe_shard_sample(shard, at, end, bytes, err));
            dpe_sha256_add(hash, bytes, (size_t)(end - at));
        }
    }
    return DPE_OK;
}

static dpe_status open_weights(struct dpe_model *model, struct dpe_sha256 *hash,
                               struct dpe_error *err)
{
    struct dpe_shard_table table = {0};
    dpe_status status =
        dpe_shards_open(model->folder, &model->shards, &model->n_shards, &table, hash, err);
    if (status == DPE_OK) {
        status = dpe_model_bind(model, &table, err);
    }
    free(table.tensors);
    return status;
}

static dpe_status open_files(struct dpe_model *model, const struct dpe_model_options *options,
                             struct dpe_sha256 *hash, struct dpe_error *err)
{
    model->config.max_position = options->trained_length;
    if (dpe_folder_is_gguf(model->folder)) {
        DPE_TRY(dpe_model_open_gguf(model, options->config_only, hash, err));
    } else {
        DPE_TRY(open_config(model, hash, err));
        DPE_TRY(options->config_only ? DPE_OK : open_weights(model, hash, err));
    }
    return options->config_only ? DPE_OK : hash_data(model, options->fingerprint, hash, err);
}

dpe_status dpe_model_open(const char *folder, const struct dpe_model_options *options,
                          struct dpe_model **model, struct dpe_error *err)
{
    static const struct dpe_model_options defaults = {0};
    options = options == NULL ? &defaults : options;
    if (folder == NULL || model == NULL) {
        return dpe_fail(err, DPE_USAGE, "a model needs a folder");
    }
    if (folder[0] == '\0') {
        /* Its files would be looked for in the root. */
        return dpe_fail(err, DPE_NO_INPUT, "\"\": expected the folder of a model");
    }
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *opened = NULL;
    DPE_TRY(dpe_folder_explain(folder, err));
    DPE_TRY(dpe_folder_explain_file(folder, err));
    DPE_TRY(DPE_NEW(&opened, 1, err, "%s: out of memory", folder));
    opened->folder = strdup(folder);
    DPE_TRY(DPE_MADE(opened->folder, err, "%s: out of memory", folder));
    struct dpe_sha256 *hash = dpe_sha256_new();
    const dpe_status status = open_files(opened, options, hash, err);
    const dpe_status finished =
        dpe_sha256_finish(hash, opened->fingerprint, status == DPE_OK ? err : NULL);
    DPE_TRY(status);
    DPE_TRY(finished);
    *model = opened;
    opened = NULL;
    return DPE_OK;
}

void dpe_model_close(struct dpe_model *model)
{
    if (model == NULL) {
        return;
    }
    for (int i = 0; i < model->n_shards; i++) {
        dpe_shard_close(model->shards + i);
    }
    for (size_t i = 0; i < model->n_copies; i++) {
        free(model->copies[i]);
    }
    free(model->copies);
    free(model->shards);
    for (int64_t i = 0; model->weights.layers != NULL && i < model->config.n_layers; i++) {
        free(model->weights.layers[i].experts);
    }
    free(model->weights.layers);
    dpe_config_release(&model->config);
    free(model->folder);
    free(model->config_json);
    free(model);
}

const struct dpe_config *dpe_model_config(const struct dpe_model *model)
{
    return &model->config;
}

const struct dpe_weights *dpe_model_weights(const struct dpe_model *model)
{
    return model->weights.layers == NULL ? NULL : &model->weights;
}

const char *dpe_model_types(const struct dpe_model *model)
{
    return model->types[0] != '\0' ? model->types : NULL;
}

const char *dpe_model_folder(const struct dpe_model *model)
{
    return model->folder;
}

const char *dpe_model_config_json(const struct dpe_model *model)
{
    return model->config_json;
}

const char *dpe_model_fingerprint(const struct dpe_model *model)
{
    return model->fingerprint;
}

const char *dpe_model_warning(const struct dpe_model *model)
{
    return model->config.own_head ? "tie_word_embeddings is set, and lm_head differs from the "
                                    "embedding: the head of the file is used"
                                  : NULL;
}

dpe_status dpe_model_verify(const struct dpe_model *model, struct dpe_error *err)
{
    for (int i = 0; i < model->n_shards; i++) {
        DPE_TRY(dpe_shard_verify(model->shards + i, err));
    }
    return DPE_OK;
}
