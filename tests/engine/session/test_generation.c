/* Greedy generation: its tokens, and where it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/engine/session/session_case.h"

static bool stop_after_three(void *user, const int32_t *generated, size_t n)
{
    *(int32_t *)user = generated[n - 1];
    return n == 3;
}

static void generation_follows_the_largest_logit(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama3");
    struct dpe_error err = {0};
    for (int d = 0; d < N_DEVICES; d++) {
        struct dpe_session *session = open_session(&tiny, devices[d], "rope", false, 1, 16);
        int32_t want[12];
        float logits[VOCAB];
        feed(session, &tiny, 10, logits);
        for (int i = 0; i < 12; i++) {
            want[i] = 0;
            for (int32_t t = 1; t < VOCAB; t++) {
                want[i] = logits[t] > logits[want[i]] ? t : want[i];
            }
            TINY_OK(dpe_session_feed(session, &want[i], 1, logits, &err), err);
        }
        struct dpe_tokens out = {0};
        int32_t before = 7;
        TINY_OK(dpe_tokens_append(&out, &before, 1, &err), err);
        struct dpe_generate_options options = {.max_new = 12, .ignore_eos = true};
        cut(session, 0);
        TINY_OK(dpe_session_generate(session, tiny.tokens, 10, &options, &out, &err), err);
        assert_int_equal(out.n, 13);
        assert_int_equal(out.ids[0], 7);
        assert_memory_equal(out.ids + 1, want, sizeof want);
        assert_int_equal(session->length[0], 10 + 11);

        int32_t last = -1;
        options.stop = stop_after_three;
        options.user = &last;
        out.n = 0;
        cut(session, 0);
        TINY_OK(dpe_session_generate(session, tiny.tokens, 10, &options, &out, &err), err);
        assert_int_equal(out.n, 3);
        assert_int_equal(last, want[2]);
        assert_int_equal(session->length[0], 12);

        out.n = 0;
        options.max_new = 0;
        cut(session, 0);
        TINY_OK(dpe_session_generate(session, tiny.tokens, 10, &options, &out, &err), err);
        assert_int_equal(out.n, 0);
        assert_int_equal(session->length[0], 10);

        cut(session, 0);
        options.max_new = tiny.n - 10 + 2;
        assert_int_equal(dpe_session_generate(session, tiny.tokens, 10, &options, &out, &err),
                         DPE_USAGE);
        options.max_new = INT64_MAX;
        assert_int_equal(dpe_session_generate(session, tiny.tokens, 10, &options, &out, &err),
                         DPE_USAGE);
        assert_int_equal(dpe_session_generate(session, tiny.tokens, 0, &options, &out, &err),
                         DPE_USAGE);
        dpe_tokens_free(&out);
        dpe_session_destroy(session);
    }
    tiny_close(&tiny);
}

/* Any of several end ids of generation_config.json ends a generation and is not part of it. */
static void generation_ends_at_any_end_id(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    struct dpe_error err = {0};
    struct dpe_tokens all = {0};
    struct dpe_tokens out = {0};
    struct dpe_generate_options options = {.max_new = 8, .ignore_eos = true};
    struct dpe_session *session = open_session(&tiny, "reference", "rope", false, 1, 16);
    TINY_OK(dpe_session_generate(session, tiny.tokens, 20, &options, &all, &err), err);
    dpe_session_destroy(session);
    assert_int_equal(all.n, 8);
    size_t end = 1; /* the first id, from the second on, that did not come before */
    for (size_t i = 0; end < 8 && i < end;) {
        bool repeats = all.ids[i] == all.ids[end];
        end += repeats;
        i = repeats ? 0 : i + 1;
    }
    assert_true(end < 8);

    char folder[] = "/tmp/dpe_session_XXXXXX";
    char path[128];
    assert_non_null(mkdtemp(folder));
    copy_with(folder, "model.norm.weight", 0,
              ((const float *)dpe_model_weights(tiny.model)->final_norm.data)[0]);
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fprintf(file, "{\"eos_token_id\": [63, %d]}", all.ids[end]);
    assert_int_equal(fclose(file), 0);
    struct tiny twin = {.n = tiny.n};
    TINY_OK(dpe_model_open(folder, NULL, &twin.model, &err), err);
    twin.config = dpe_model_config(twin.model);
    options.ignore_eos = false;
    for (int d = 0; d < N_DEVICES; d++) {
        session = open_session(&twin, devices[d], "rope", false, 1, 16);
        out.n = 0;
        TINY_OK(dpe_session_generate(session, tiny.tokens, 20, &options, &out, &err), err);
        assert_int_equal(out.n, end);
        assert_memory_equal(out.ids, all.ids, end * sizeof *out.ids);
        dpe_session_destroy(session);
    }
    remove_folder(folder);
    dpe_model_close(twin.model);
    dpe_tokens_free(&all);
    dpe_tokens_free(&out);
    tiny_close(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generation_follows_the_largest_logit),
        cmocka_unit_test(generation_ends_at_any_end_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
