/* What goes wrong with a session: misuse, and values that are not numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/engine/session/session_case.h"

static void misuse_is_named(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    struct dpe_plan plan = tiny_plan(&tiny, "rope", 40);
    const struct dpe_session_options bad[] = {
        {.capacity = 0}, {.capacity = 8, .prefill_chunk = -1}, {.capacity = 8, .n_threads = -1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(dpe_session_create(tiny.model, &plan, &bad[i], &session, &err), DPE_USAGE);
    }
    const struct dpe_session_options unknown = {.device = "abacus", .capacity = 8};
    assert_int_equal(dpe_session_create(tiny.model, &plan, &unknown, &session, &err),
                     DPE_NO_DEVICE);
    assert_non_null(strstr(err.text, "'abacus'; devices: "));
    assert_non_null(strstr(err.text, "reference"));
    dpe_plan_free(&plan);

    for (int d = 0; d < N_DEVICES; d++) {
        float logits[VOCAB];
        session = open_session(&tiny, devices[d], "rope", false, 1, 16);
        feed(session, &tiny, 4, NULL);
        assert_int_equal(dpe_session_feed(session, tiny.tokens, tiny.n - 3, logits, &err),
                         DPE_USAGE);
        assert_non_null(strstr(err.text, "do not fit after 4 in a cache of 40"));
        const int32_t outside[3] = {1, VOCAB, 2};
        assert_int_equal(dpe_session_feed(session, outside, 3, logits, &err), DPE_BAD_DATA);
        assert_non_null(strstr(err.text, "token 1: expected an id from 0 to 63, found 64"));
        const int32_t negative[1] = {-1};
        assert_int_equal(dpe_session_feed(session, negative, 1, logits, &err), DPE_BAD_DATA);
        assert_int_equal(dpe_session_feed(session, tiny.tokens, 0, logits, &err), DPE_USAGE);
        TINY_OK(dpe_session_feed(session, tiny.tokens, 0, NULL, &err), err);
        assert_int_equal(dpe_session_feed(session, tiny.tokens, -1, NULL, &err), DPE_USAGE);
        assert_int_equal(dpe_session_cut(session, 5, &err), DPE_USAGE);
        assert_int_equal(dpe_session_cut(session, -1, &err), DPE_USAGE);
        assert_int_equal(session->length[0], 4);
        dpe_session_destroy(session);
    }
    dpe_session_destroy(NULL);
    tiny_close(&tiny);
}

static void nan_is_an_error_with_layer_and_position(void **state)
{
    (void)state;
    struct tiny tiny = tiny_open("llama");
    char folder[] = "/tmp/dpe_session_XXXXXX";
    assert_non_null(mkdtemp(folder));
    int64_t seventh = 0; /* a token that first comes late */
    for (int64_t i = 20; i < tiny.n; i++) {
        bool before = false;
        for (int64_t j = 0; j < i; j++) {
            before = before || tiny.tokens[j] == tiny.tokens[i];
        }
        seventh = seventh == 0 && !before ? i : seventh;
    }
    assert_true(seventh > 0);
    const struct {
        const char *tensor;
        int64_t element;
        float value;
        int layer;
        int64_t position;
    } cases[] = {
        {"model.embed_tokens.weight", tiny.tokens[seventh] * tiny.config->hidden, NAN, 0, seventh},
        {"model.layers.0.mlp.down_proj.weight", 3, INFINITY, 0, 0},
        {"model.layers.1.self_attn.v_proj.weight", 0, NAN, 1, tiny.n - 1},
        {"model.norm.weight", 5, NAN, 2, tiny.n - 1},
    };
    for (size_t i = 0; i < N_DEVICES * sizeof cases / sizeof cases[0]; i++) {
        size_t c = i / N_DEVICES;
        struct tiny bad = {.n = tiny.n};
        struct dpe_error err = {0};
        float logits[VOCAB];
        double nll[64];
        copy_with(folder, cases[c].tensor, cases[c].element, cases[c].value);
        TINY_OK(dpe_model_open(folder, NULL, &bad.model, &err), err);
        bad.config = dpe_model_config(bad.model);
        struct dpe_session *session =
            open_session(&bad, devices[i % N_DEVICES], "rope", false, 1, 64);
        assert_int_equal(dpe_session_feed(session, tiny.tokens, tiny.n, logits, &err),
                         DPE_NONFINITE);
        assert_int_equal(err.layer, cases[c].layer);
        assert_int_equal(err.position, cases[c].position);
        assert_int_equal(session->length[0], 0);
        assert_int_equal(dpe_session_nll(session, tiny.tokens, tiny.n, nll, &err), DPE_NONFINITE);
        assert_int_equal(err.layer, cases[c].layer);
        assert_int_equal(err.position, cases[c].layer > 0 ? 0 : cases[c].position);
        dpe_session_destroy(session);
        dpe_model_close(bad.model);
    }
    remove_folder(folder);
    tiny_close(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misuse_is_named),
        cmocka_unit_test(nan_is_an_error_with_layer_and_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
