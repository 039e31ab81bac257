/**
 * @file session_case.h
 * What tests of sessions over the golden tiny models share: the devices, opening a session, feeding
 * it and cutting it back, logits that may differ by rounding only, and models with a number
 * replaced. Include after cmocka.h.
 */
#ifndef DPE_SESSION_CASE_H
#define DPE_SESSION_CASE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session/session_internal.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

static const char *const devices[] = {"reference", "cpu"};
enum { N_DEVICES = 2, VOCAB = 64 };

/** Feed the model's tokens from where the session stands up to `to`. */
static inline void feed(struct dpe_session *session, const struct tiny *tiny, int64_t to,
                        float *logits)
{
    struct dpe_error err = {0};
    int64_t from = session->length[0];
    TINY_OK(dpe_session_feed(session, tiny->tokens + from, to - from, logits, &err), err);
    assert_int_equal(session->length[0], to);
}

static inline void cut(struct dpe_session *session, int64_t keep)
{
    struct dpe_error err = {0};
    TINY_OK(dpe_session_cut(session, keep, &err), err);
}

/** Rounding, not meaning: logits of these models spread over about 1 to 10. */
static inline void same_to_rounding(const char *what, const float *got, const float *want)
{
    double wanted[VOCAB];
    for (int i = 0; i < VOCAB; i++) {
        wanted[i] = (double)want[i];
    }
    assert_int_equal(near_f32(what, got, wanted, VOCAB, 2e-5), 0);
}

/** A session under a plan for all tokens of the model, with a mask if requested. */
static inline struct dpe_session *session_with(const struct tiny *tiny, const char *spec,
                                               bool masked,
                                               const struct dpe_session_options *options)
{
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    struct dpe_plan plan = tiny_plan(tiny, spec, tiny->n);
    if (masked) {
        tiny_mask(&plan);
    }
    TINY_OK(dpe_session_create(tiny->model, &plan, options, &session, &err), err);
    dpe_plan_free(&plan);
    return session;
}

/** The same with room for just these tokens. */
static inline struct dpe_session *open_session(const struct tiny *tiny, const char *device,
                                               const char *spec, bool masked, int n_threads,
                                               int64_t chunk)
{
    const struct dpe_session_options options = {
        .device = device, .n_threads = n_threads, .capacity = tiny->n, .prefill_chunk = chunk};
    return session_with(tiny, spec, masked, &options);
}

/** Replace an element of an F32 tensor in the bytes of a safetensors file. */
static inline void patch_tensor(char *safetensors, const char *tensor, int64_t element, float value)
{
    uint64_t header = 0;
    memcpy(&header, safetensors, sizeof header);
    const char *entry = strstr(safetensors + 8, tensor);
    assert_non_null(entry);
    entry = strstr(entry, "data_offsets");
    assert_non_null(entry);
    int64_t at = strtoll(strchr(entry, '[') + 1, NULL, 10) + element * (int64_t)sizeof value;
    memcpy(safetensors + 8 + header + at, &value, sizeof value);
}

/** A copy of the llama folder in `folder`, with a float of a tensor replaced. */
static inline void copy_with(const char *folder, const char *tensor, int64_t element, float value)
{
    static const char *const names[] = {"config.json", "generation_config.json",
                                        "model.safetensors"};
    for (int i = 0; i < 3; i++) {
        size_t n = 0;
        char path[512];
        char *bytes = NULL;
        struct dpe_error err = {0};
        snprintf(path, sizeof path, "%s/tests/golden/llama/%s", DPE_SOURCE_DIR, names[i]);
        TINY_OK(dpe_read_file(path, 1 << 20, &bytes, &n, &err), err);
        if (i == 2) {
            patch_tensor(bytes, tensor, element, value);
        }
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(bytes, 1, n, file), n);
        assert_int_equal(fclose(file), 0);
        free(bytes);
    }
}

static inline void remove_folder(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

#endif
