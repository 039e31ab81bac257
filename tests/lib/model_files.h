/**
 * @file model_files.h
 * Model folders that a test builds itself, right ones and wrong ones: a folder under /tmp, a
 * config.json of members that can be replaced, safetensors files tensor by tensor.
 *
 * The base model is a Llama with hidden 4, one layer, 2 heads on 1, head_dim 2, intermediate 3,
 * vocabulary 5.
 *
 * Include after cmocka.h and what it needs.
 */
#ifndef DPE_MODEL_FILES_H
#define DPE_MODEL_FILES_H

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "engine/model/model.h"

/** A folder made for one test; its path has room for a file name after it. */
struct model_folder {
    char path[64];
};

static inline struct model_folder folder_make(void)
{
    struct model_folder folder = {"/tmp/dpe-model-XXXXXX"};
    assert_non_null(mkdtemp(folder.path));
    return folder;
}

static inline const char *folder_file(const struct model_folder *folder, const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    return path;
}

/** Remove the folder and the files in it. */
static inline void folder_remove(const struct model_folder *folder)
{
    DIR *dir = opendir(folder->path);
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        const char *path = folder_file(folder, entry->d_name);
        if (unlink(path) != 0) {
            rmdir(path);
        }
    }
    closedir(dir);
    assert_int_equal(rmdir(folder->path), 0);
}

static inline void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(const struct model_folder *folder, const char *name, const char *text)
{
    write_bytes(folder_file(folder, name), text, strlen(text));
}

/** One member of config.json as text; value NULL leaves the member out. */
struct config_member {
    const char *key, *value;
};

/** Lengths are compared first: gcc warns about strcmp of literals whose lengths differ. */
static inline bool same_key(const char *a, const char *b)
{
    return strlen(a) == strlen(b) && memcmp(a, b, strlen(a)) == 0;
}

/** config.json of the base model with `n` members replaced, left out or added. */
static inline void write_config(const struct model_folder *folder,
                                const struct config_member *members, size_t n)
{
    static const struct config_member base[] = {
        {"model_type", "\"llama\""},  {"architectures", "[\"LlamaForCausalLM\"]"},
        {"hidden_size", "4"},         {"intermediate_size", "3"},
        {"num_hidden_layers", "1"},   {"num_attention_heads", "2"},
        {"num_key_value_heads", "1"}, {"head_dim", "2"},
        {"vocab_size", "5"},          {"max_position_embeddings", "32"},
        {"rms_norm_eps", "1e-5"},     {"rope_theta", "10000.0"},
        {"hidden_act", "\"silu\""},   {"tie_word_embeddings", "false"},
    };
    enum { N_BASE = sizeof base / sizeof base[0] };
    FILE *file = fopen(folder_file(folder, "config.json"), "wb");
    assert_non_null(file);
    const char *comma = "{";
    for (size_t i = 0; i < N_BASE + n; i++) {
        const struct config_member *member = i < N_BASE ? base + i : members + (i - N_BASE);
        bool replaced = false;
        for (size_t j = 0; i < N_BASE && j < n; j++) {
            replaced = replaced || same_key(members[j].key, member->key);
        }
        if (!replaced && member->value != NULL) {
            fprintf(file, "%s\"%s\": %s", comma, member->key, member->value);
            comma = ",\n ";
        }
    }
    fputs("}\n", file);
    assert_int_equal(fclose(file), 0);
}

/** A safetensors file in the making; its header and data grow. */
struct container {
    struct dpe_text header;
    size_t data; /**< bytes so far */
};

static inline void container_add(struct container *container, const char *name, const char *dtype,
                                 const char *shape, size_t bytes)
{
    char entry[512];
    int n = snprintf(entry, sizeof entry,
                     "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                     container->header.n == 0 ? "{" : ",", name, dtype, shape, container->data,
                     container->data + bytes);
    assert_in_range(n, 1, sizeof entry - 1);
    assert_int_equal(dpe_text_append(&container->header, entry, (size_t)n, NULL), DPE_OK);
    container->data += bytes;
}

struct base_tensor {
    const char *name, *shape;
    size_t count;
};

static const struct base_tensor base_tensors[] = {
    {"model.embed_tokens.weight", "5,4", 20},
    {"model.layers.0.input_layernorm.weight", "4", 4},
    {"model.layers.0.self_attn.q_proj.weight", "4,4", 16},
    {"model.layers.0.self_attn.k_proj.weight", "2,4", 8},
    {"model.layers.0.self_attn.v_proj.weight", "2,4", 8},
    {"model.layers.0.self_attn.o_proj.weight", "4,4", 16},
    {"model.layers.0.post_attention_layernorm.weight", "4", 4},
    {"model.layers.0.mlp.gate_proj.weight", "3,4", 12},
    {"model.layers.0.mlp.up_proj.weight", "3,4", 12},
    {"model.layers.0.mlp.down_proj.weight", "4,3", 12},
    {"model.norm.weight", "4", 4},
    {"lm_head.weight", "5,4", 20},
};
enum { N_BASE_TENSORS = sizeof base_tensors / sizeof base_tensors[0] };

/** Add the base tensors first … last − 1 in F32, all but the one named `without` (may be NULL). */
static inline void container_add_base(struct container *container, size_t first, size_t last,
                                      const char *without)
{
    for (size_t i = first; i < last; i++) {
        if (without == NULL || strcmp(base_tensors[i].name, without) != 0) {
            container_add(container, base_tensors[i].name, "F32", base_tensors[i].shape,
                          4 * base_tensors[i].count);
        }
    }
}

/** Write length, header (as it is) and `data` bytes, byte i being i mod 60, so that no float among
 *  them is huge. */
static inline void write_raw(const char *path, const char *header, size_t n, size_t data)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 8; i++) {
        fputc((int)((uint64_t)n >> (8 * i) & 0xff), file);
    }
    assert_int_equal(fwrite(header, 1, n, file), n);
    for (size_t i = 0; i < data; i++) {
        fputc((int)(i % 60), file);
    }
    assert_int_equal(fclose(file), 0);
}

/** Close the header, pad it with spaces to a multiple of 8 plus `pad`, write the file, start again.
 */
static inline void container_write(struct container *container, const char *path, size_t pad)
{
    const char *end = container->header.n == 0 ? "{}" : "}";
    assert_int_equal(dpe_text_append(&container->header, end, strlen(end), NULL), DPE_OK);
    while (container->header.n % 8 != pad) {
        assert_int_equal(dpe_text_append(&container->header, " ", 1, NULL), DPE_OK);
    }
    write_raw(path, container->header.bytes, container->header.n, container->data);
    dpe_text_free(&container->header);
    container->data = 0;
}

/** config.json and model.safetensors of the base model. */
static inline void write_base_model(const struct model_folder *folder)
{
    struct container container = {0};
    write_config(folder, NULL, 0);
    container_add_base(&container, 0, N_BASE_TENSORS, NULL);
    container_write(&container, folder_file(folder, "model.safetensors"), 0);
}

/** Open the folder and expect `want`; the message of a failure must contain each text given (NULL:
 * none). */
static inline void expect_open(const struct model_folder *folder, const char *row, dpe_status want,
                               const char *text, const char *second)
{
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    dpe_status status = dpe_model_open(folder->path, NULL, &model, &err);
    dpe_model_close(model);
    if (status != want) {
        fail_msg("%s: expected status %d, got %d: %s", row, (int)want, (int)status, err.text);
    }
    if (want != DPE_OK && strstr(err.text, folder->path) == NULL) {
        fail_msg("%s: the folder is not named: %s", row, err.text);
    }
    if (want != DPE_OK && ((text != NULL && strstr(err.text, text) == NULL) ||
                           (second != NULL && strstr(err.text, second) == NULL))) {
        fail_msg("%s: expected \"%s\" and \"%s\" in: %s", row, text, second == NULL ? "" : second,
                 err.text);
    }
}

#endif
