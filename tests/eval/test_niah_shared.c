/* Needle samples that share a context: several keys queried one after another, contexts with one
 * first half; batches of them give the rows of single samples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/ops/options.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "engine/session/session.h"
#include "eval/niah/niah.h"
#include "eval/task/task.h"
#include "outputs/h5/rows.h"
#include "outputs/job/price.h"
#include "tests/lib/sample_inputs.h"

static struct dpe_niah *opened(const char *spec, int64_t length)
{
    struct dpe_niah_params params;
    struct dpe_niah *niah = NULL;
    struct dpe_error err = {0};
    dpe_niah_defaults(&params);
    if (dpe_niah_parse(spec, &params, &err) != DPE_OK ||
        dpe_niah_open(&params, length, corpus, tokenizer, NULL, 11, &niah, &err) != DPE_OK) {
        fail_msg("%s: %s", spec, err.text);
    }
    return niah;
}

enum { MANY = 12 };

static void samples_of(const struct dpe_niah *niah, struct dpe_sample samples[MANY])
{
    struct dpe_error err = {0};
    for (int i = 0; i < MANY; i++) {
        samples[i] = (struct dpe_sample){0};
        if (dpe_niah_sample(niah, i, &samples[i], &err) != DPE_OK) {
            fail_msg("sample %d: %s", i, err.text);
        }
    }
}

static void free_samples(struct dpe_sample samples[MANY])
{
    for (int i = 0; i < MANY; i++) {
        dpe_sample_free(&samples[i]);
    }
}

static int64_t common(const struct dpe_sample *a, const struct dpe_sample *b)
{
    size_t n = 0;
    while (n < a->prompt.n && n < b->prompt.n && a->prompt.ids[n] == b->prompt.ids[n]) {
        n++;
    }
    return (int64_t)n;
}

static void sizes_are_right(const struct dpe_sample samples[MANY], int64_t length)
{
    for (int i = 0; i < MANY; i++) {
        int64_t n = (int64_t)samples[i].prompt.n + samples[i].max_new;
        assert_in_range(n, length - 16, length);
    }
}

static void several_keys_are_asked_of_one_context(void **state)
{
    (void)state;
    struct dpe_niah *niah = opened("keys=4,values=2,asked=4", 1024);
    struct dpe_sample samples[MANY];
    samples_of(niah, samples);
    sizes_are_right(samples, 1024);
    for (int i = 1; i < MANY; i++) {
        int64_t same = common(&samples[i - 1], &samples[i]);
        if (i % 4 == 0) { /* another context */
            assert_true(same < 600);
        } else { /* all but the question */
            assert_true(same > (int64_t)samples[i].prompt.n - 60);
        }
    }
    for (int i = 0; i < MANY; i++) {
        char *text = text_of(&samples[i]);
        assert_int_equal(samples[i].n_references, 2);
        for (int j = i / 4 * 4; j < i / 4 * 4 + 4; j++) {
            for (int v = 0; v < 2; v++) {
                assert_non_null(strstr(text, samples[j].references[v]));
                assert_true(i == j ||
                            strcmp(samples[i].references[0], samples[j].references[v]) != 0);
            }
        }
        free(text);
    }
    free_samples(samples);
    dpe_niah_close(niah);
}

static void contexts_share_their_first_half(void **state)
{
    (void)state;
    struct dpe_niah *niah = opened("shared=4", 1024);
    struct dpe_niah *plain = opened("", 1024);
    struct dpe_sample samples[MANY];
    struct dpe_sample alone[MANY];
    samples_of(niah, samples);
    samples_of(plain, alone);
    sizes_are_right(samples, 1024);
    for (int i = 1; i < MANY; i++) {
        int64_t same = common(&samples[i - 1], &samples[i]);
        int shared = 0;
        for (int a = 0; a < 4; a++) {
            for (int b = 0; b < 4; b++) {
                shared += strcmp(samples[i - 1].references[a], samples[i].references[b]) == 0;
            }
        }
        if (i % 4 == 0) {
            assert_true(same < 300);
            assert_int_equal(shared, 0);
        } else {
            assert_in_range(same, 430, 1000);
            assert_int_equal(shared, 2);
        }
    }
    /* Without sharing samples are what they always were. */
    for (int i = 1; i < MANY; i++) {
        assert_true(common(&alone[i - 1], &alone[i]) < 300);
    }
    free_samples(samples);
    free_samples(alone);
    dpe_niah_close(niah);
    dpe_niah_close(plain);
}

/* What was foretold is what was read; answers may end earlier than they might. */
static void foretold(const struct dpe_task *task, const struct dpe_session *session,
                     const struct dpe_session_work *before)
{
    const struct dpe_session_limits limits = dpe_session_limits(session);
    const struct dpe_session_work after = dpe_session_work(session);
    struct dpe_price_answers cost = {0};
    struct dpe_sample samples[8];
    struct dpe_error err = {0};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(dpe_task_sample(task, i, &samples[i], NULL, &err), DPE_OK);
    }
    assert_int_equal(dpe_answering_cost(samples, 8, 8, &limits, &cost, &err), DPE_OK);
    assert_int_equal(cost.samples, 8);
    assert_int_equal(cost.read, after.fed - before->fed);
    assert_in_range(after.decoded - before->decoded, 1, cost.decoded);
    assert_in_range(after.steps - before->steps, 1, cost.steps);
    assert_true(cost.pairs > 0.0 && cost.pairs <= 8.0 * 320.0 * 320.0 / 2.0);
    for (int i = 0; i < 8; i++) {
        dpe_sample_free(&samples[i]);
    }
}

/* The reference model answers; its answers must not depend on the other samples of the batch. */
static void batches_give_the_answers_of_single_samples(void **state)
{
    (void)state;
    static const char *const specs[] = {"", "keys=3,asked=3,values=1", "shared=4",
                                        "keys=2,asked=2,values=1,shared=2"};
    static const double most_read[] = {1.0, 0.6, 0.85, 0.5};
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    assert_int_equal(dpe_model_open(DPE_SOURCE_DIR "/data/reference", NULL, &model, &err), DPE_OK);
    const struct dpe_plan_context context = {
        .config = dpe_model_config(model), .trained_length = 256, .length = 320};
    struct dpe_plan plan;
    assert_int_equal(dpe_plan_make("dpe:window=32,groups=2,scales=2/4", &context, &plan, &err),
                     DPE_OK);
    for (int i = 0; i < 4; i++) {
        struct dpe_task task;
        struct dpe_session *session = NULL;
        const struct dpe_session_options options = {
            .capacity = 8 * 320, .positions = 320, .branches = 8, .prefill_chunk = 64};
        assert_int_equal(dpe_task_niah("niah", opened(specs[i], 320), tokenizer, &task, &err),
                         DPE_OK);
        assert_int_equal(dpe_session_create(model, &plan, &options, &session, &err), DPE_OK);
        struct dpe_row single[8];
        struct dpe_row together[8];
        const int64_t indices[8] = {0, 1, 2, 3, 4, 5, 6, 7};
        for (int j = 0; j < 8; j++) {
            assert_int_equal(dpe_task_row(&task, session, "plan", j, &single[j], &err), DPE_OK);
        }
        struct dpe_session_work before = dpe_session_work(session);
        assert_int_equal(dpe_session_cut(session, 0, &err), DPE_OK);
        assert_int_equal(dpe_task_rows(&task, session, "plan", indices, 8, together, &err), DPE_OK);
        struct dpe_session_work after = dpe_session_work(session);
        int64_t prompts = 0;
        int64_t answers = 0;
        for (int j = 0; j < 8; j++) {
            assert_string_equal(together[j].text, single[j].text);
            assert_true(together[j].score == single[j].score);
            assert_int_equal(together[j].new_tokens, single[j].new_tokens);
            assert_int_equal(together[j].prompt_tokens, single[j].prompt_tokens);
            assert_int_equal(together[j].sample, j);
            prompts += single[j].prompt_tokens;
            answers += single[j].new_tokens - 1;
            dpe_row_free(&single[j]);
            dpe_row_free(&together[j]);
        }
        /* Tokens are decoded several at a time; what prompts share is read once. */
        assert_int_equal(after.decoded - before.decoded, answers);
        int64_t steps = after.steps - before.steps;
        assert_true(i < 3 ? 5 * steps < 3 * answers : steps < answers);
        double read = (double)(after.fed - before.fed) / (double)prompts;
        assert_true(read < most_read[i] && (i > 0 || read > 0.9));
        foretold(&task, session, &before);
        dpe_session_destroy(session);
        dpe_task_close(&task);
    }
    dpe_plan_free(&plan);
    dpe_model_close(model);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static const char *const specs[] = {"asked=2", "keys=2,asked=3", "keys=4,asked=2,queries=2",
                                        "asked=0", "shared=0",       "shared=1000"};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct dpe_niah_params params;
        struct dpe_error err = {0};
        dpe_niah_defaults(&params);
        assert_int_equal(dpe_niah_parse(specs[i], &params, &err), DPE_USAGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_keys_are_asked_of_one_context),
        cmocka_unit_test(contexts_share_their_first_half),
        cmocka_unit_test(batches_give_the_answers_of_single_samples),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, open_inputs, close_inputs);
}
