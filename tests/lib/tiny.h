/**
 * @file tiny.h
 * The golden tiny models in tests: opening one with its tokens and logits, and sessions over it.
 * Include after cmocka.h.
 */
#ifndef DPE_TINY_H
#define DPE_TINY_H

#include <stdio.h>
#include <stdlib.h>

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/ops/options.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "engine/session/session.h"

struct tiny {
    struct dpe_model *model;
    const struct dpe_config *config;
    int32_t tokens[64];
    int64_t n;      /**< tokens */
    float *logits;  /**< [n][vocab], by transformers in float32 */
    double *oracle; /**< the same in float64 */
};

#define TINY_OK(call, err)                                                                         \
    do {                                                                                           \
        dpe_status tiny_status = (call);                                                           \
        if (tiny_status != DPE_OK) {                                                               \
            fail_msg("%s: %s", #call, (err).text);                                                 \
        }                                                                                          \
    } while (0)

/** Where the golden files are: the source tree, unless DPE_SOURCE_DIR in the environment names
 * another (tests that run on another machine than they were built on). */
static inline const char *tiny_source(void)
{
    const char *moved = getenv("DPE_SOURCE_DIR");
    return moved != NULL ? moved : DPE_SOURCE_DIR;
}

static inline char *tiny_read(const char *folder, const char *name, size_t *n)
{
    char path[512];
    char *bytes = NULL;
    struct dpe_error err = {0};
    snprintf(path, sizeof path, "%s/tests/golden/%s/%s", tiny_source(), folder, name);
    TINY_OK(dpe_read_file(path, 1 << 20, &bytes, n, &err), err);
    return bytes;
}

static inline struct tiny tiny_open(const char *folder)
{
    struct tiny tiny = {0};
    struct dpe_error err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/%s", tiny_source(), folder);
    /* The same models as GGUF files (tests/engine/gguf/gguf_models.py). */
    const char *files = getenv("DPE_TEST_GGUF");
    if (files != NULL) {
        size_t at = (size_t)snprintf(path, sizeof path, "%s/", files);
        snprintf(path + at, sizeof path - at, "%s.gguf", folder);
        for (char *c = path + at; *c != 0; c++) {
            *c = (char)(*c == '/' ? '-' : *c);
        }
    }
    TINY_OK(dpe_model_open(path, NULL, &tiny.model, &err), err);
    tiny.config = dpe_model_config(tiny.model);
    size_t n = 0;
    char *text = tiny_read(folder, "tokens.json", &n);
    for (char *at = text; *at != 0 && *at != ']';) {
        char *end = NULL;
        long id = strtol(at, &end, 10);
        if (end != at) {
            assert_true(tiny.n < 64);
            tiny.tokens[tiny.n++] = (int32_t)id;
            at = end;
        } else {
            at++;
        }
    }
    free(text);
    size_t count = (size_t)(tiny.n * tiny.config->vocab);
    tiny.logits = (float *)(void *)tiny_read(folder, "logits.f32", &n);
    assert_int_equal(n, count * sizeof(float));
    float *oracle = (float *)(void *)tiny_read(folder, "oracle.f32", &n);
    assert_int_equal(n, count * sizeof(float));
    tiny.oracle = malloc(count * sizeof *tiny.oracle);
    assert_non_null(tiny.oracle);
    for (size_t i = 0; i < count; i++) {
        tiny.oracle[i] = (double)oracle[i];
    }
    free(oracle);
    return tiny;
}

static inline void tiny_close(struct tiny *tiny)
{
    free(tiny->logits);
    free(tiny->oracle);
    dpe_model_close(tiny->model);
}

/** A plan for a trained length of 16 and the given evaluated length. */
static inline struct dpe_plan tiny_plan(const struct tiny *tiny, const char *spec, int64_t length)
{
    struct dpe_plan plan;
    struct dpe_error err = {0};
    const struct dpe_plan_context context = {
        .config = tiny->config, .trained_length = 16, .length = length, .official = true};
    TINY_OK(dpe_plan_make(spec, &context, &plan, &err), err);
    return plan;
}

/** A session of a model under a spec. */
static inline struct dpe_session *tiny_session(const struct tiny *tiny, const char *spec,
                                               const struct dpe_session_options *options)
{
    struct dpe_session *session = NULL;
    struct dpe_error err = {0};
    struct dpe_plan plan = tiny_plan(tiny, spec, options->capacity);
    TINY_OK(dpe_session_create(tiny->model, &plan, options, &session, &err), err);
    dpe_plan_free(&plan);
    return session;
}

/** A Llama of two layers with heads of 64, for dpe_random_model. */
#define TINY_LLAMA(width, words)                                                                   \
    {                                                                                              \
        .model_type = "llama", .vocab = (words), .hidden = (width), .n_layers = 2, .n_heads = 4,   \
        .n_kv_heads = 2, .head_dim = 64, .intermediate = (width), .max_position = 128,             \
        .rms_eps = 1e-5, .bos_id = -1, .dtype = DPE_F32, .rope = {                                 \
            .theta = 1e4,                                                                          \
            .factor = NAN,                                                                         \
            .original_max_position = NAN,                                                          \
            .attention_factor = NAN,                                                               \
            .partial_rotary_factor = 1.0                                                           \
        }                                                                                          \
    }

/** A mask that differs from head to head, for every band but the first. */
static inline void tiny_mask(struct dpe_plan *plan)
{
    size_t n = (size_t)(plan->n_layers * plan->n_heads * plan->n_pairs);
    free(plan->mask);
    plan->mask = dpe_alloc(n, 1);
    assert_non_null(plan->mask);
    for (size_t i = 0; i < n; i++) {
        plan->mask[i] = (i * 2654435761U >> 9) % 3 != 0;
    }
    for (int b = 1; b < plan->n_bands; b++) {
        plan->bands[b].per_head = true;
    }
}

#endif
