/* The rotation of a GGUF file: every combination of its parts, against what llama.cpp computes of
 * them (rope_yarn and llama_context in its sources), written down here a second time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/model/model.h"
#include "engine/plan/plan.h"

enum { PAIRS = 16, HEAD = 2 * PAIRS, CONTEXT = 4096, STRING = 8, U32 = 4, F32 = 6 };

/* A file that grows in memory. */
struct file {
    unsigned char bytes[16384];
    size_t n;
};

static void put(struct file *file, const void *bytes, size_t n)
{
    assert_true(file->n + n <= sizeof file->bytes);
    memcpy(file->bytes + file->n, bytes, n);
    file->n += n;
}

static void put_whole(struct file *file, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)(value >> (8 * i));
        put(file, &byte, 1);
    }
}

static void put_text(struct file *file, const char *text)
{
    put_whole(file, strlen(text), 8);
    put(file, text, strlen(text));
}

static void put_key(struct file *file, const char *arch, const char *name, uint32_t type)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", arch, name);
    put_text(file, key);
    put_whole(file, type, 4);
}

static void put_f32(struct file *file, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_whole(file, bits, 4);
}

/* What a file says of its rotation; NAN, 0 and NULL: it has no such key or tensor. */
struct row {
    const char *type;
    double factor, scale_linear, attn, beta_fast, log_mul, growth;
    int original;
    char lists; /* 'f': rope_freqs; 'b', 's', 'l': both lists, the short, the long one */
    const char *arch;
};
#define NONE (double)NAN

static double divisor(char which, int j)
{
    return which == 'f' ? 1.0 + 0.25 * j : which == 's' ? 1.0 + 0.0625 * j : 2.0 + 0.5 * j;
}

static bool has(const struct row *row, char which)
{
    return row->lists == which || (row->lists == 'b' && which != 'f');
}

static void write_file(const char *path, const struct row *row)
{
    static const struct {
        const char *name;
        uint32_t value;
    } sizes[] = {{"block_count", 1},          {"context_length", CONTEXT},
                 {"embedding_length", HEAD},  {"feed_forward_length", HEAD},
                 {"attention.head_count", 1}, {"rope.dimension_count", HEAD}};
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"rope.scaling.factor", row->factor},
                   {"rope.scale_linear", row->scale_linear},
                   {"rope.scaling.attn_factor", row->attn},
                   {"rope.scaling.yarn_beta_fast", row->beta_fast},
                   {"rope.scaling.yarn_log_multiplier", row->log_mul},
                   {"attention.temperature_scale", row->growth},
                   {"attention.layer_norm_rms_epsilon", 1e-5},
                   {"rope.freq_base", 5e5}};
    static const struct {
        const char *name;
        char which;
    } lists[] = {{"rope_freqs.weight", 'f'},
                 {"rope_factors_short.weight", 's'},
                 {"rope_factors_long.weight", 'l'}};
    static struct file body;
    body.n = 0;
    uint64_t values = 1;
    uint64_t tensors = 0;
    put_text(&body, "general.architecture");
    put_whole(&body, STRING, 4);
    put_text(&body, row->arch);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++, values++) {
        put_key(&body, row->arch, sizes[i].name, U32);
        put_whole(&body, sizes[i].value, 4);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (!isnan(numbers[i].value)) {
            put_key(&body, row->arch, numbers[i].name, F32);
            put_f32(&body, (float)numbers[i].value);
            values++;
        }
    }
    if (row->original > 0) {
        put_key(&body, row->arch, "rope.scaling.original_context_length", U32);
        put_whole(&body, (uint64_t)row->original, 4);
        values++;
    }
    if (row->type != NULL) {
        put_key(&body, row->arch, "rope.scaling.type", STRING);
        put_text(&body, row->type);
        values++;
    }
    for (size_t i = 0; i < 3; i++) {
        if (has(row, lists[i].which)) {
            put_text(&body, lists[i].name);
            put_whole(&body, 1, 4);
            put_whole(&body, PAIRS, 8);
            put_whole(&body, 0, 4);
            put_whole(&body, tensors++ * PAIRS * 4, 8);
        }
    }
    static struct file file;
    file.n = 0;
    put(&file, "GGUF", 4);
    put_whole(&file, 3, 4);
    put_whole(&file, tensors, 8);
    put_whole(&file, values, 8);
    put(&file, body.bytes, body.n);
    while (file.n % 32 != 0) {
        put(&file, "", 1);
    }
    for (size_t i = 0; i < 3; i++) {
        for (int j = 0; j < PAIRS && has(row, lists[i].which); j++) {
            put_f32(&file, (float)divisor(lists[i].which, j));
        }
    }
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(file.bytes, 1, file.n, out), file.n);
    assert_int_equal(fclose(out), 0);
}

/* llama.cpp: theta / ff, times freq_scale, mixed by YaRN's ramp; mscale. */
static double wanted(const struct row *row, int64_t length, int j, double *attention)
{
    double ropescale = !isnan(row->factor)         ? row->factor
                       : !isnan(row->scale_linear) ? row->scale_linear
                                                   : 0.0;
    double scale = ropescale == 0.0 ? 1.0 : 1.0 / ropescale;
    bool yarn = row->type != NULL && strcmp(row->type, "yarn") == 0;
    int original = row->original > 0 ? row->original : CONTEXT;
    if (row->type != NULL && strcmp(row->type, "none") == 0) {
        scale = 1.0;
    }
    double ff = has(row, 'f')                         ? divisor('f', j)
                : length > original && has(row, 'l')  ? divisor('l', j)
                : length <= original && has(row, 's') ? divisor('s', j)
                                                      : 1.0;
    double extrapolated = pow(5e5, -2.0 * j / HEAD) / ff;
    double interpolated = extrapolated * scale;
    *attention = isnan(row->attn) ? 1.0 : (double)(float)row->attn;
    if (!yarn) {
        return interpolated;
    }
    double fast = isnan(row->beta_fast) ? 32.0 : row->beta_fast;
    double corr[2] = {floor(HEAD * log(original / (fast * 2.0 * M_PI)) / (2.0 * log(5e5))),
                      ceil(HEAD * log(original / (2.0 * M_PI)) / (2.0 * log(5e5)))};
    double low = fmax(0.0, corr[0]);
    double high = fmin(HEAD - 1.0, corr[1]);
    double y = (j - low) / fmax(0.001, high - low);
    double ramp = 1.0 - fmin(1.0, fmax(0.0, y));
    double mscale = 1.0 - 0.1 * log(scale);
    *attention *= mscale;
    if (!isnan(row->log_mul) && row->log_mul != 0.0) {
        *attention /= 1.0 - 0.1 * (double)(float)row->log_mul * log(scale);
    }
    return interpolated * (1.0 - ramp) + extrapolated * ramp;
}

static void check_row(const char *path, const struct row *row, size_t index)
{
    static const int64_t lengths[] = {100, 512, 513, 4096, 20000};
    const struct dpe_model_options options = {.config_only = true};
    struct dpe_model *model = NULL;
    struct dpe_error err = {0};
    write_file(path, row);
    if (dpe_model_open(path, &options, &model, &err) != DPE_OK) {
        fail_msg("row %zu: %s", index, err.text);
    }
    const struct dpe_config *config = dpe_model_config(model);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        double inv_freq[PAIRS];
        double a = 0.0;
        assert_int_equal(dpe_rope_native(config, lengths[i], inv_freq, &a, &err), DPE_OK);
        for (int j = 0; j < PAIRS; j++) {
            double attention = 0.0;
            double want = wanted(row, lengths[i], j, &attention);
            if (!(fabs(inv_freq[j] / want - 1.0) < 1e-6) || !(fabs(a / attention - 1.0) < 1e-6)) {
                fail_msg("row %zu, length %lld, pair %d: %.9g (a %.9g), expected %.9g (a %.9g)",
                         index, (long long)lengths[i], j, inv_freq[j], a, want, attention);
            }
        }
    }
    bool grows = !isnan(row->growth) && strcmp(row->arch, "mistral3") == 0;
    assert_true(fabs(config->query_growth - (grows ? row->growth : 0.0)) < 1e-6);
    assert_true(!grows || config->query_length == (row->original > 0 ? row->original : CONTEXT));
    dpe_model_close(model);
}

static void the_parts_are_multiplied(void **state)
{
    (void)state;
    static const char *const types[] = {NULL, "none", "linear", "yarn", "longrope"};
    static const double factors[][2] = {{NONE, NONE}, {4, NONE}, {NONE, 3}, {2.5, 3},
                                        {0, NONE},    {1, NONE}, {NONE, 1}, {0, 3}};
    static const char lists[] = {0, 'f', 'b', 's', 'l'};
    char path[] = "/tmp/dpe-gguf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    size_t index = 0;
    for (size_t t = 0; t < 5; t++) {
        for (size_t f = 0; f < 8; f++) {
            for (size_t l = 0; l < 5; l++) {
                for (int more = 0; more < 3; more++) {
                    const struct row row = {
                        .type = types[t],
                        .factor = factors[f][0],
                        .scale_linear = factors[f][1],
                        .attn = more == 1 ? 1.19 : NONE,
                        .beta_fast = more == 2 ? 20.0 : NONE,
                        .log_mul = more == 2   ? 0.75
                                   : more == 1 ? 0.0
                                               : NONE,
                        .growth = more > 0 ? 0.1 : NONE,
                        .original = more == 0 ? 0 : 512,
                        .lists = lists[l],
                        .arch = more == 1   ? "llama"
                                : more == 2 ? "mistral3"
                                : l > 1     ? "phi3"
                                            : "qwen2",
                    };
                    check_row(path, &row, index++);
                }
            }
        }
    }
    unlink(path);
}

static void what_llama_cpp_refuses_is_refused(void **state)
{
    (void)state;
    static const struct {
        struct row row;
        const char *says;
    } rows[] = {
        {{"ntk", 2, NONE, NONE, NONE, NONE, NONE, 0, 0, "llama"}, "none, linear, yarn or longrope"},
        {{NULL, 0.5, NONE, NONE, NONE, NONE, NONE, 0, 0, "llama"},
         "rope.scaling.factor: expected a number of"},
        {{NULL, NONE, -2, NONE, NONE, NONE, NONE, 0, 0, "llama"},
         "rope.scale_linear: expected a number of"},
        {{"yarn", 2, NONE, 1e9, NONE, NONE, NONE, 0, 0, "llama"}, "attention_factor"},
    };
    char path[] = "/tmp/dpe-gguf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct dpe_model_options options = {.config_only = true};
        struct dpe_model *model = NULL;
        struct dpe_error err = {0};
        write_file(path, &rows[i].row);
        assert_int_equal(dpe_model_open(path, &options, &model, &err), DPE_BAD_DATA);
        if (strstr(err.text, rows[i].says) == NULL) {
            fail_msg("row %zu: %s", i, err.text);
        }
    }
    unlink(path);
}

/* Ids that a file leaves out are those of its kind of tokenizer, where it has so many tokens. */
static void ids_of_a_kind_of_tokenizer(void **state)
{
    static const struct {
        const char *kind;
        int tokens, bos, eos; /* ids in the file; -1: none */
        int64_t want_bos, want_eos;
    } rows[] = {
        {"llama", 3, -1, -1, 1, 2},   {"llama", 3, 0, 1, 0, 1},   {"llama", 2, -1, -1, 1, -1},
        {"gpt2", 30, -1, -1, -1, -1}, {"gpt2", 30, 5, -1, 5, -1}, {"llama", 0, -1, -1, -1, -1},
    };
    const struct row plain = {NULL, NONE, NONE, NONE, NONE, NONE, NONE, 0, 0, "llama"};
    char path[] = "/tmp/dpe-gguf-XXXXXX";
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static struct file file;
        struct dpe_model *model = NULL;
        const struct dpe_model_options options = {.config_only = true};
        struct dpe_error err = {0};
        write_file(path, &plain);
        FILE *in = fopen(path, "rb");
        assert_non_null(in);
        file.n = fread(file.bytes, 1, sizeof file.bytes, in);
        fclose(in);
        /* The metadata of the plain file end at its padding: find the end of its last value. */
        static const char last[] = "llama.rope.freq_base";
        size_t end = 0;
        for (size_t at = 0; at + sizeof last < file.n; at++) {
            end = memcmp(file.bytes + at, last, sizeof last - 1) == 0 ? at + sizeof last - 1 + 8
                                                                      : end;
        }
        file.n = end;
        uint64_t more = 1;
        put_text(&file, "tokenizer.ggml.model");
        put_whole(&file, STRING, 4);
        put_text(&file, rows[i].kind);
        if (rows[i].tokens > 0) {
            put_text(&file, "tokenizer.ggml.tokens");
            put_whole(&file, 9, 4);
            put_whole(&file, STRING, 4);
            put_whole(&file, (uint64_t)rows[i].tokens, 8);
            for (int k = 0; k < rows[i].tokens; k++) {
                put_text(&file, "t");
            }
            more++;
        }
        for (int k = 0; k < 2; k++) {
            int id = k == 0 ? rows[i].bos : rows[i].eos;
            if (id >= 0) {
                put_text(&file,
                         k == 0 ? "tokenizer.ggml.bos_token_id" : "tokenizer.ggml.eos_token_id");
                put_whole(&file, U32, 4);
                put_whole(&file, (uint64_t)id, 4);
                more++;
            }
        }
        file.bytes[16] = (unsigned char)(file.bytes[16] + more);
        while (file.n % 32 != 0) {
            put(&file, "", 1);
        }
        FILE *out = fopen(path, "wb");
        assert_non_null(out);
        assert_int_equal(fwrite(file.bytes, 1, file.n, out), file.n);
        assert_int_equal(fclose(out), 0);
        if (dpe_model_open(path, &options, &model, &err) != DPE_OK) {
            fail_msg("row %zu: %s", i, err.text);
        }
        const struct dpe_config *config = dpe_model_config(model);
        assert_int_equal(config->bos_id, rows[i].want_bos);
        assert_int_equal(config->n_eos, rows[i].want_eos >= 0);
        assert_true(config->n_eos == 0 || config->eos_ids[0] == rows[i].want_eos);
        dpe_model_close(model);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_are_multiplied),
        cmocka_unit_test(what_llama_cpp_refuses_is_refused),
        cmocka_unit_test(ids_of_a_kind_of_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
