/* Folders with something wrong about their files: shards, index, kinds of files, rights, weights
 * that do not belong to the configuration, files that change, memory that runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/wait.h>

#include "tests/lib/model_files.h"

#define SHARD_A "model-00001-of-00002.safetensors"
#define SHARD_B "model-00002-of-00002.safetensors"
enum { FIRST_OF_B = 6 };

/* Two shards of the base model; `extra` (may be NULL) is put into the second as well. */
static void write_shards(const struct model_folder *folder, const char *extra)
{
    struct container container = {0};
    container_add_base(&container, 0, FIRST_OF_B, NULL);
    container_write(&container, folder_file(folder, SHARD_A), 0);
    if (extra != NULL) {
        container_add(&container, extra, "U8", "8", 8);
    }
    container_add_base(&container, FIRST_OF_B, N_BASE_TENSORS, NULL);
    container_write(&container, folder_file(folder, SHARD_B), 0);
}

/* An index of these shards, in which tensor `odd` (may be NULL) is listed in `shard`. */
static void write_index(const struct model_folder *folder, const char *odd, const char *shard)
{
    FILE *file = fopen(folder_file(folder, "model.safetensors.index.json"), "wb");
    assert_non_null(file);
    fputs("{\"metadata\":{\"total_size\":544},\"weight_map\":{", file);
    for (int i = 0; i < N_BASE_TENSORS; i++) {
        bool here = odd != NULL && strcmp(odd, base_tensors[i].name) == 0;
        const char *usual = i < FIRST_OF_B ? SHARD_A : SHARD_B;
        fprintf(file, "%s\"%s\":\"%s\"", i > 0 ? "," : "", base_tensors[i].name,
                here ? shard : usual);
        odd = here ? NULL : odd;
    }
    if (odd != NULL) {
        fprintf(file, ",\"%s\":\"%s\"", odd, shard);
    }
    fputs("}}", file);
    assert_int_equal(fclose(file), 0);
}

static struct model_folder sharded_folder(void)
{
    struct model_folder folder = folder_make();
    write_config(&folder, NULL, 0);
    write_shards(&folder, NULL);
    write_index(&folder, NULL, NULL);
    return folder;
}

static void shards_open(void **state)
{
    (void)state;
    struct model_folder folder = sharded_folder();
    expect_open(&folder, "shards", DPE_OK, NULL, NULL);
    /* The cache of the hub holds links to files elsewhere. */
    char target[512];
    snprintf(target, sizeof target, "%s", folder_file(&folder, "blob"));
    assert_int_equal(rename(folder_file(&folder, SHARD_A), target), 0);
    assert_int_equal(symlink("blob", folder_file(&folder, SHARD_A)), 0);
    expect_open(&folder, "link", DPE_OK, NULL, NULL);
    folder_remove(&folder);
}

static void shard_names_stay_in_the_folder(void **state)
{
    (void)state;
    static const struct {
        const char *name, *says;
    } rows[] = {
        {"../x.safetensors", "a file in the same folder"},
        {"/etc/passwd", "a file in the same folder"},
        {"a/b", "a file in the same folder"},
        {"..", "a file in the same folder"},
        {".", "a file in the same folder"},
        {"", "a file in the same folder"},
        {"a\\\\b", "a file in the same folder"},
        {"x\\u0000.safetensors", "expected a string"},
    };
    struct model_folder folder = sharded_folder();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_index(&folder, "lm_head.weight", rows[i].name);
        expect_open(&folder, rows[i].name, DPE_BAD_DATA, "model.safetensors.index.json: weight_map",
                    rows[i].says);
    }
    folder_remove(&folder);
}

static void an_index_that_is_wrong(void **state)
{
    (void)state;
    struct model_folder folder = sharded_folder();
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "expected JSON"},
        {"{}", "a weight_map with at least one tensor, found none"},
        {"{\"weight_map\":{}}", "found none"},
        {"{\"weight_map\":[]}", "expected a weight_map"},
        {"{\"weight_map\":{\"a\":1}}", "expected a string"},
        {"{\"weight_map\":{\"a\":\"b\",\"a\":\"b\"}}", "duplicate object key"},
        {"{\"weight_map\":{\"a\":\"b\"},\"weight_map\":{}}", "duplicate object key"},
        {"{\"weight_map\":{\"a\\u0000c\":\"b\"}}", "NUL"},
        {"{\"weight_map\":{\"a\":\"b\"}} x", "end of file expected"},
        {"{\"weight_map\":{\"a\":\"\xff\"}}", "UTF-8"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_text(&folder, "model.safetensors.index.json", rows[i].text);
        expect_open(&folder, rows[i].text, DPE_BAD_DATA, "index.json", rows[i].says);
    }
    write_index(&folder, "lm_head.weight", SHARD_A);
    expect_open(&folder, "other shard", DPE_BAD_DATA, "index.json: 1 tensors", "lm_head.weight");
    write_index(&folder, "not.there", SHARD_A);
    expect_open(&folder, "no tensor", DPE_BAD_DATA, "index.json: 1 tensors", "not.there");
    write_text(&folder, "model.safetensors.index.json",
               "{\"weight_map\":{\"a\":\"" SHARD_A "\",\"b\":\"x1\",\"c\":\"x2\",\"d\":\"x1\"}}");
    expect_open(&folder, "no shards", DPE_NO_INPUT, "2 shards are missing", "x1, x2");
    folder_remove(&folder);
}

static void fingerprint(const struct model_folder *folder, char text[65])
{
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    if (dpe_model_open(folder->path, NULL, &model, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    memcpy(text, dpe_model_fingerprint(model), 65);
    dpe_model_close(model);
}

static void a_tensor_in_two_shards(void **state)
{
    (void)state;
    struct model_folder folder = sharded_folder();
    write_shards(&folder, "model.embed_tokens.weight");
    /* The index says whose it is: an overlay leaves the older tensor in its shard. */
    expect_open(&folder, "twice", DPE_OK, NULL, NULL);
    char whole[65];
    char overlaid[65];
    fingerprint(&folder, whole);
    write_shards(&folder, "lm_head.weight");
    write_index(&folder, "lm_head.weight", SHARD_B);
    expect_open(&folder, "the other one", DPE_BAD_DATA, "lm_head.weight", NULL);
    write_shards(&folder, "none.of.the.model");
    write_index(&folder, NULL, NULL);
    fingerprint(&folder, whole);
    write_index(&folder, "none.of.the.model", SHARD_B);
    fingerprint(&folder, overlaid);
    assert_string_not_equal(whole, overlaid);
    folder_remove(&folder);
}

static void missing_tensors_are_listed_together(void **state)
{
    (void)state;
    struct model_folder folder = folder_make();
    struct container container = {0};
    write_config(&folder, NULL, 0);
    container_add_base(&container, 2, N_BASE_TENSORS - 1, NULL);
    container_write(&container, folder_file(&folder, "model.safetensors"), 0);
    expect_open(&folder, "three", DPE_BAD_DATA, "3 tensors are missing: model.embed_tokens.weight",
                "model.layers.0.input_layernorm.weight, lm_head.weight");
    const struct config_member many = {"num_hidden_layers", "100"};
    write_config(&folder, &many, 1);
    expect_open(&folder, "many", DPE_BAD_DATA, "894 tensors are missing", " more");
    container_write(&container, folder_file(&folder, "model.safetensors"), 0);
    expect_open(&folder, "empty", DPE_BAD_DATA, "903 tensors are missing", NULL);
    folder_remove(&folder);
}

static void weights_that_contradict_the_configuration(void **state)
{
    (void)state;
    struct model_folder folder = folder_make();
    static const struct {
        struct config_member member;
        const char *tensor, *says;
    } rows[] = {
        {{"hidden_size", "8"}, "model.embed_tokens.weight", "expected shape [5, 8]"},
        {{"vocab_size", "6"}, "model.embed_tokens.weight", "expected shape [6, 4]"},
        {{"head_dim", "4"}, "self_attn.q_proj.weight", "expected shape [8, 4] by config.json"},
        {{"num_key_value_heads", "2"}, "self_attn.k_proj.weight", "expected shape [4, 4]"},
        {{"intermediate_size", "4"}, "mlp.gate_proj.weight", "found [3, 4]"},
        {{"attention_bias", "true"}, "4 tensors are missing", "self_attn.o_proj.bias"},
        {{"mlp_bias", "true"}, "3 tensors are missing", "mlp.down_proj.bias"},
    };
    write_base_model(&folder);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_config(&folder, &rows[i].member, 1);
        expect_open(&folder, rows[i].says, DPE_BAD_DATA, rows[i].tensor, rows[i].says);
    }
    write_config(&folder, NULL, 0);
    struct container container = {0};
    container_add(&container, "model.layers.0.self_attn.q_proj.bias", "F32", "4", 16);
    container_add_base(&container, 0, N_BASE_TENSORS, NULL);
    container_write(&container, folder_file(&folder, "model.safetensors"), 0);
    expect_open(&folder, "bias", DPE_BAD_DATA,
                "q_proj.bias: config.json describes a model without this bias", NULL);
    container_add(&container, "model.layers.1.input_layernorm.weight", "F32", "4", 16);
    container_add_base(&container, 0, N_BASE_TENSORS, NULL);
    container_write(&container, folder_file(&folder, "model.safetensors"), 0);
    expect_open(&folder, "layers", DPE_BAD_DATA, "model.layers.1.", "the 1 layers in config.json");
    folder_remove(&folder);
}

/* Whether the head is the embedding after opening, and whether the file's own took its place. */
static void expect_head(const struct model_folder *folder, const char *row, bool tied, bool own)
{
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    if (dpe_model_open(folder->path, NULL, &model, &err) != DPE_OK) {
        fail_msg("%s: %s", row, err.text);
    }
    const struct dpe_config *config = dpe_model_config(model);
    const struct dpe_weights *weights = dpe_model_weights(model);
    assert_true((dpe_model_warning(model) != NULL) == own);
    if (config->tied_embeddings != tied || config->own_head != own ||
        (weights->lm_head.data == weights->embedding.data) != tied) {
        fail_msg("%s: tied %d, own %d", row, config->tied_embeddings, config->own_head);
    }
    dpe_model_close(model);
}

/* Where a language model lies in a text_config, both places may say whether the head is tied. */
static void ties_inside_and_outside(void **state)
{
    (void)state;
    static const struct {
        const char *inside, *outside;
        bool head, tied, own, missing;
    } rows[] = {
        {"false", "true", true, false, false, false},  {"true", "false", true, false, true, false},
        {"true", "false", false, true, false, false},  {"false", "true", false, true, false, false},
        {"null", "true", true, false, true, false},    {"null", "true", false, true, false, false},
        {"false", "false", false, false, false, true}, {"false", "null", true, false, false, false},
        {"null", "null", false, false, false, true},
    };
    struct model_folder folder = folder_make();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct container container = {0};
        char text[512];
        char row[16];
        snprintf(text, sizeof text,
                 "{\"model_type\":\"mistral\",\"hidden_size\":4,\"intermediate_size\":3,"
                 "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
                 "\"head_dim\":2,\"vocab_size\":5,\"max_position_embeddings\":32,"
                 "\"sliding_window\":null,\"tie_word_embeddings\":%s}",
                 rows[i].inside);
        const struct config_member members[] = {{"model_type", "\"mistral3\""},
                                                {"architectures", NULL},
                                                {"tie_word_embeddings", rows[i].outside},
                                                {"text_config", text}};
        snprintf(row, sizeof row, "row %zu", i);
        write_config(&folder, members, 4);
        container_add_base(&container, 0, N_BASE_TENSORS - (rows[i].head ? 0 : 1), NULL);
        container_write(&container, folder_file(&folder, "model.safetensors"), 0);
        if (rows[i].missing) {
            expect_open(&folder, row, DPE_BAD_DATA, "missing: lm_head.weight", NULL);
        } else {
            expect_head(&folder, row, rows[i].tied, rows[i].own);
        }
    }
    folder_remove(&folder);
}

/* The base model saved alone, and the one of a model that holds more. */
static void names_without_the_model_in_front(void **state)
{
    (void)state;
    static const char *const prefixes[] = {"", "language_model.", "language_model.model.",
                                           "model.language_model."};
    struct model_folder folder = folder_make();
    const struct config_member tied = {"tie_word_embeddings", "true"};
    for (size_t p = 0; p < sizeof prefixes / sizeof prefixes[0]; p++) {
        struct container container = {0};
        write_config(&folder, &tied, 1);
        for (size_t i = 0; i + 1 < N_BASE_TENSORS; i++) {
            char name[128];
            snprintf(name, sizeof name, "%s%s", prefixes[p],
                     base_tensors[i].name + strlen("model."));
            container_add(&container, name, "F32", base_tensors[i].shape,
                          4 * base_tensors[i].count);
        }
        container_write(&container, folder_file(&folder, "model.safetensors"), 0);
        expect_head(&folder, prefixes[p], true, false);
        write_config(&folder, NULL, 0);
        expect_open(&folder, prefixes[p], DPE_BAD_DATA, "missing: lm_head.weight", NULL);
    }
    folder_remove(&folder);
}

static void tied_embeddings(void **state)
{
    (void)state;
    struct model_folder folder = folder_make();
    struct container container = {0};
    const struct config_member tied = {"tie_word_embeddings", "true"};
    const char *weights = folder_file(&folder, "model.safetensors");
    char path[512];
    snprintf(path, sizeof path, "%s", weights);

    write_config(&folder, NULL, 0);
    container_add_base(&container, 0, N_BASE_TENSORS - 1, NULL);
    container_write(&container, path, 0);
    expect_open(&folder, "untied without head", DPE_BAD_DATA, "missing: lm_head.weight", NULL);
    write_config(&folder, &tied, 1);
    expect_open(&folder, "tied without head", DPE_OK, NULL, NULL);

    /* The data's bytes repeat every 60: 240 bytes later the head is a copy of the embedding. */
    container_add(&container, "model.embed_tokens.weight", "F32", "5,4", 80);
    container_add(&container, "pad", "U8", "160", 160);
    container_add(&container, "lm_head.weight", "F32", "5,4", 80);
    container_add_base(&container, 1, N_BASE_TENSORS - 1, NULL);
    container_write(&container, path, 0);
    expect_open(&folder, "tied with its copy", DPE_OK, NULL, NULL);

    container_add_base(&container, 0, N_BASE_TENSORS, NULL);
    container_write(&container, path, 0);
    expect_head(&folder, "tied with another head", false, true);
    write_config(&folder, NULL, 0);
    expect_head(&folder, "not tied", false, false);
    folder_remove(&folder);
}

static void paths_that_are_not_regular_files(void **state)
{
    (void)state;
    struct model_folder folder = folder_make();
    char path[512];
    write_config(&folder, NULL, 0);
    expect_open(&folder, "none", DPE_NO_INPUT, "expected model.safetensors or", "neither");
    write_text(&folder, "pytorch_model.bin", "x");
    expect_open(&folder, "pickled", DPE_NO_INPUT, "pytorch_model.bin is not supported", NULL);
    snprintf(path, sizeof path, "%s", folder_file(&folder, "model.safetensors"));
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_open(&folder, "fifo", DPE_NO_INPUT, "model.safetensors", "regular file");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_open(&folder, "folder", DPE_NO_INPUT, "model.safetensors", "regular file");
    rmdir(path);
    assert_int_equal(symlink("/dev/zero", path), 0);
    expect_open(&folder, "device", DPE_NO_INPUT, "model.safetensors", "regular file");
    unlink(path);
    assert_int_equal(symlink("nowhere", path), 0);
    expect_open(&folder, "dangling link", DPE_NO_INPUT, "model.safetensors", "cannot be opened");
    unlink(path);
    write_base_model(&folder);
    assert_int_equal(mkfifo(folder_file(&folder, "generation_config.json"), 0600), 0);
    expect_open(&folder, "generation", DPE_NO_INPUT, "generation_config.json", "regular file");
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    assert_int_equal(dpe_model_open("/nonexistent/folder", NULL, &model, &err), DPE_NO_INPUT);
    assert_string_equal(err.text,
                        "/nonexistent/folder: cannot be opened: No such file or directory");
    assert_int_equal(dpe_model_open(NULL, NULL, &model, &err), DPE_USAGE);
    folder_remove(&folder);
}

/* Root may read everything, so the check is made by a child that is not root. */
static void a_file_that_may_not_be_read(void **state)
{
    (void)state;
    struct model_folder folder = folder_make();
    write_base_model(&folder);
    assert_int_equal(chmod(folder.path, 0755), 0);
    assert_int_equal(chmod(folder_file(&folder, "config.json"), 0644), 0);
    assert_int_equal(chmod(folder_file(&folder, "model.safetensors"), 0), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct dpe_error err = {0};
        struct dpe_model *model = NULL;
        if (geteuid() == 0 && setuid(65534) != 0) {
            _exit(1);
        }
        dpe_status status = dpe_model_open(folder.path, NULL, &model, &err);
        bool named = strstr(err.text, "model.safetensors: cannot be opened") != NULL;
        _exit(named ? (int)status : 2);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), DPE_PERMISSION);
    folder_remove(&folder);
}

static void a_shard_that_shrinks_in_use(void **state)
{
    (void)state;
    struct model_folder folder = sharded_folder();
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    assert_int_equal(dpe_model_open(folder.path, NULL, &model, &err), DPE_OK);
    assert_int_equal(dpe_model_verify(model, &err), DPE_OK);
    assert_int_equal(truncate(folder_file(&folder, SHARD_B), 100), 0);
    assert_int_equal(dpe_model_verify(model, &err), DPE_IO);
    assert_non_null(strstr(err.text, SHARD_B));
    assert_non_null(strstr(err.text, "truncated while in use"));
    dpe_model_close(model);
    expect_open(&folder, "shorter at open", DPE_BAD_DATA, SHARD_B, "truncated");

    /* A file that was replaced is still there for whoever has it open. */
    write_shards(&folder, NULL);
    assert_int_equal(dpe_model_open(folder.path, NULL, &model, &err), DPE_OK);
    assert_int_equal(unlink(folder_file(&folder, SHARD_B)), 0);
    assert_int_equal(dpe_model_verify(model, &err), DPE_OK);
    const float *norm = dpe_model_weights(model)->final_norm.data;
    assert_true(norm[0] == norm[0]);
    dpe_model_close(model);
    folder_remove(&folder);
}

static void fingerprint_of(const struct model_folder *folder, enum dpe_fingerprint_kind kind,
                           char hex[65])
{
    const struct dpe_model_options options = {.fingerprint = kind};
    struct dpe_model *model = NULL;
    struct dpe_error err = {0};
    if (dpe_model_open(folder->path, &options, &model, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    memcpy(hex, dpe_model_fingerprint(model), 65);
    dpe_model_close(model);
}

static void fingerprints(void **state)
{
    (void)state;
    struct model_folder folder = sharded_folder();
    char fast[65];
    char full[65];
    char other[65];
    fingerprint_of(&folder, DPE_FINGERPRINT_FAST, fast);
    fingerprint_of(&folder, DPE_FINGERPRINT_FULL, full);
    /* So small that the fast one's blocks cover all of it. */
    assert_string_equal(fast, full);
    fingerprint_of(&folder, DPE_FINGERPRINT_FULL, other);
    assert_string_equal(full, other);

    const char *path = folder_file(&folder, SHARD_B);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "\x3f", 1, info.st_size - 1), 1);
    close(fd);
    fingerprint_of(&folder, DPE_FINGERPRINT_FAST, other);
    assert_string_not_equal(fast, other);
    fingerprint_of(&folder, DPE_FINGERPRINT_FULL, other);
    assert_string_not_equal(full, other);

    const struct config_member changed = {"rope_theta", "10001.0"};
    write_config(&folder, &changed, 1);
    fingerprint_of(&folder, DPE_FINGERPRINT_FAST, other);
    assert_string_not_equal(fast, other);
    folder_remove(&folder);
}

/* Calls of the allocator that still succeed; −1: all. The one after them fails, and so do all later
 * ones when memory is out for good. The linker sends the engine's calls here. */
static long allocations_left = -1;
static bool out_for_good;

static bool may_allocate(void)
{
    if (allocations_left == 0) {
        allocations_left = out_for_good ? 0 : -1;
        return false;
    }
    allocations_left -= allocations_left > 0;
    return true;
}

/* The linker's names. NOLINTBEGIN(bugprone-reserved-identifier) */
void *__real_malloc(size_t n);
void *__real_realloc(void *old, size_t n);
void *__real_aligned_alloc(size_t alignment, size_t n);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t n);
void *__wrap_realloc(void *old, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t n)
{
    return may_allocate() ? __real_malloc(n) : NULL;
}

void *__wrap_realloc(void *old, size_t n)
{
    return may_allocate() ? __real_realloc(old, n) : NULL;
}

void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    return may_allocate() ? __real_aligned_alloc(alignment, n) : NULL;
}

char *__wrap_strdup(const char *text)
{
    return may_allocate() ? __real_strdup(text) : NULL;
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* Opens with the allocation after the first `n` failing; DPE_OK when there were not as many. */
static dpe_status open_after(const struct model_folder *folder, long n)
{
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    allocations_left = n;
    dpe_status status = dpe_model_open(folder->path, NULL, &model, &err);
    allocations_left = -1;
    dpe_model_close(model);
    if (status != DPE_OK && (status != DPE_NO_MEMORY || err.text[0] == '\0')) {
        fail_msg("allocation %ld: status %d: %s", n, (int)status, err.text);
    }
    return status;
}

/* Whichever allocation fails, the failure is reported and nothing leaks (the sanitizers check). */
static void memory_that_runs_out(void **state)
{
    (void)state;
    struct model_folder folder = sharded_folder();
    struct container container = {0};
    const struct config_member members[] = {
        {"rope_scaling", "{\"type\":\"longrope\",\"factor\":2,\"short_factor\":[1],"
                         "\"long_factor\":[2]}"},
        {"eos_token_id", "[1,2,3]"},
    };
    write_config(&folder, members, 2);
    write_text(&folder, "generation_config.json", "{\"eos_token_id\": 3}");
    /* Misaligned, so that copies are made. */
    container_add_base(&container, 0, FIRST_OF_B, NULL);
    container_write(&container, folder_file(&folder, SHARD_A), 1);
    long n = 0;
    out_for_good = true;
    while (n < 10000 && open_after(&folder, n) != DPE_OK) {
        n++;
    }
    out_for_good = false;
    for (long i = 0; i < n; i++) {
        assert_int_equal(open_after(&folder, i), DPE_NO_MEMORY);
    }
    print_message("%ld allocations, each failed once and for good\n", n);
    assert_in_range(n, 50, 9999);
    folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_open),
        cmocka_unit_test(shard_names_stay_in_the_folder),
        cmocka_unit_test(an_index_that_is_wrong),
        cmocka_unit_test(a_tensor_in_two_shards),
        cmocka_unit_test(missing_tensors_are_listed_together),
        cmocka_unit_test(weights_that_contradict_the_configuration),
        cmocka_unit_test(tied_embeddings),
        cmocka_unit_test(ties_inside_and_outside),
        cmocka_unit_test(names_without_the_model_in_front),
        cmocka_unit_test(paths_that_are_not_regular_files),
        cmocka_unit_test(a_file_that_may_not_be_read),
        cmocka_unit_test(a_shard_that_shrinks_in_use),
        cmocka_unit_test(fingerprints),
        cmocka_unit_test(memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
