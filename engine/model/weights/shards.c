/* Which files hold the weights of a folder: one safetensors file, or an index and its shards. */
#include "engine/model/weights/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/text/json.h"

void dpe_name_list_add(struct dpe_name_list *list, const char *name)
{
    list->n++;
    char quoted[96];
    dpe_json_quote(quoted, name, strlen(name));
    /* The last 40 bytes are kept for the count of what did not fit. */
    if (strlen(list->text) + strlen(quoted) + 2 + 40 <= sizeof list->text) {
        dpe_append(list->text, sizeof list->text, "%s%s", list->reported > 0 ? ", " : "", quoted);
        list->reported++;
    }
}

const char *dpe_name_list_text(struct dpe_name_list *list)
{
    if (list->reported < list->n) {
        dpe_append(list->text, sizeof list->text, " and %zu more", list->n - list->reported);
    }
    return list->text;
}

enum { MAX_SHARDS = 4096 };
static const char single_file[] = "model.safetensors";
static const char index_file[] = "model.safetensors.index.json";

/* One line of a weight_map; both strings live in the index. */
struct placed {
    const char *tensor, *shard;
};

struct index {
    char path[4096];
    json_t *json;
    struct placed *map; /* [n] */
    size_t n;
    const char **shards; /* [n_shards], different, in name order, or {model.safetensors} */
    size_t n_shards;
    struct dpe_error *err;
};

static void free_index(struct index *index)
{
    free(index->shards);
    free(index->map);
    json_decref(index->json);
}

/* A shard is a file of this folder and nothing else: no path leads out of it. */
static bool is_plain_basename(const char *name)
{
    return name[0] != '\0' && strlen(name) <= 255 && strchr(name, '/') == NULL &&
           strchr(name, '\\') == NULL && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static dpe_status read_index(struct index *index)
{
    const char *tensor;
    json_t *value;
    DPE_TRY(dpe_json_read(index->path, &index->json, index->err));
    json_t *map = json_object_get(index->json, "weight_map");
    if (json_object_size(map) == 0) {
        return dpe_fail(index->err, DPE_BAD_DATA,
                        "%s: expected a weight_map with at least one tensor, found none",
                        index->path);
    }
    DPE_TRY(
        DPE_NEW(&index->map, json_object_size(map), index->err, "%s: out of memory", index->path));
    struct dpe_json_reader reader = {index->path, "weight_map.", map, index->err, DPE_OK};
    json_object_foreach(map, tensor, value)
    {
        const char *shard = dpe_json_string(&reader, tensor, "");
        if (!is_plain_basename(shard)) {
            dpe_json_expected(&reader, tensor, "the name of a file in the same folder");
        }
        index->map[index->n++] = (struct placed){tensor, shard};
    }
    return reader.status;
}

static int by_tensor(const void *a, const void *b)
{
    const struct placed *x = a;
    const struct placed *y = b;
    return strcmp(x->tensor, y->tensor);
}

static int by_shard(const void *a, const void *b)
{
    const struct placed *x = a;
    const struct placed *y = b;
    return strcmp(x->shard, y->shard);
}

/* The different shard names in order; leaves the map sorted by tensor. */
static dpe_status collect_shards(struct index *index)
{
    DPE_TRY(DPE_NEW(&index->shards, index->n, index->err, "%s: out of memory", index->path));
    qsort(index->map, index->n, sizeof *index->map, by_shard);
    for (size_t i = 0; i < index->n; i++) {
        if (i == 0 || strcmp(index->map[i].shard, index->map[i - 1].shard) != 0) {
            index->shards[index->n_shards++] = index->map[i].shard;
        }
    }
    if (index->n_shards > MAX_SHARDS) {
        return dpe_fail(index->err, DPE_BAD_DATA, "%s: expected at most %d shards, found %zu",
                        index->path, MAX_SHARDS, index->n_shards);
    }
    qsort(index->map, index->n, sizeof *index->map, by_tensor);
    return DPE_OK;
}

/* Whether the folder has an entry of that name, be it a link to nowhere. */
static bool exists(const char *folder, const char *name)
{
    char path[4096];
    struct stat info;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && lstat(path, &info) == 0;
}

/* All missing shards are reported at once: each is gigabytes to download. */
static dpe_status check_present(const struct index *index, const char *folder)
{
    struct dpe_name_list missing = {0};
    for (size_t i = 0; i < index->n_shards; i++) {
        if (!exists(folder, index->shards[i])) {
            dpe_name_list_add(&missing, index->shards[i]);
        }
    }
    if (missing.n == 0) {
        return DPE_OK;
    }
    return dpe_fail(index->err, DPE_NO_INPUT, "%s: %zu shards are missing: %s", index->path,
                    missing.n, dpe_name_list_text(&missing));
}

static dpe_status find_files(struct index *index, const char *folder)
{
    if (exists(folder, single_file)) {
        DPE_TRY(DPE_NEW(&index->shards, 1, index->err, "%s: out of memory", folder));
        index->shards[0] = single_file;
        index->n_shards = 1;
        return DPE_OK;
    }
    if (!exists(folder, index_file)) {
        bool pickled =
            exists(folder, "pytorch_model.bin") || exists(folder, "pytorch_model.bin.index.json");
        return dpe_fail(index->err, DPE_NO_INPUT, "%s: expected %s or %s, found neither%s", folder,
                        single_file, index_file,
                        pickled ? "; pytorch_model.bin is not supported: save the model as "
                                  "safetensors"
                                : "");
    }
    snprintf(index->path, sizeof index->path, "%s/%s", folder, index_file);
    DPE_TRY(read_index(index));
    DPE_TRY(collect_shards(index));
    return check_present(index, folder);
}

static const struct placed *find_placed(const struct index *index, const char *tensor)
{
    const struct placed key = {.tensor = tensor};
    return bsearch(&key, index->map, index->n, sizeof *index->map, by_tensor);
}

/* Leaves the tensors of the shard that weight_map gives to it: what an overlay replaced, and what
 * no line names, is none of the model. That goes into the fingerprint, which the maps of two
 * folders with the same shards tell apart. */
static void keep_placed(const struct index *index, const struct dpe_shard *shard, size_t first,
                        struct dpe_shard_table *table, struct dpe_sha256 *hash)
{
    size_t kept = first;
    for (size_t i = first; i < table->n && index->n > 0; i++) {
        const char *name = table->tensors[i].name;
        const struct placed *placed = find_placed(index, name);
        if (placed != NULL && strcmp(placed->shard, shard->name) == 0) {
            table->tensors[kept++] = table->tensors[i];
        } else {
            dpe_sha256_add(hash, name, strlen(name) + 1);
        }
    }
    table->n = index->n > 0 ? kept : table->n;
}

static dpe_status check_placed(const struct index *index, const struct dpe_shard_table *table)
{
    struct dpe_name_list lacking = {0};
    for (size_t i = 0; i < index->n; i++) {
        if (dpe_shard_table_find(table, index->map[i].tensor) == NULL) {
            dpe_name_list_add(&lacking, index->map[i].tensor);
        }
    }
    if (lacking.n == 0) {
        return DPE_OK;
    }
    return dpe_fail(index->err, DPE_BAD_DATA,
                    "%s: %zu tensors are not in the shard that weight_map names: %s", index->path,
                    lacking.n, dpe_name_list_text(&lacking));
}

dpe_status dpe_shards_open(const char *folder, struct dpe_shard **shards, int *n,
                           struct dpe_shard_table *table, struct dpe_sha256 *hash,
                           struct dpe_error *err)
{
    DPE_SCOPED(free_index) struct index index = {.err = err};
    *n = 0;
    DPE_TRY(find_files(&index, folder));
    DPE_TRY(DPE_NEW(shards, index.n_shards, err, "%s: out of memory", folder));
    for (size_t i = 0; i < index.n_shards; i++) {
        size_t first = table->n;
        (*shards)[i].fd = -1;
        ++*n;
        DPE_TRY(dpe_shard_open(folder, index.shards[i], (int)i, *shards + i, table, hash, err));
        keep_placed(&index, *shards + i, first, table, hash);
    }
    DPE_TRY(dpe_shard_table_sort(table, *shards, err));
    return check_placed(&index, table);
}
