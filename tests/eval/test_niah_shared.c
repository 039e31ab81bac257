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
#include "outputs/job/job.h"
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

enum { MANY = 12, MADE = 8 };

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
static void foretold(const struct dpe_task *task, const struct dpe_session_limits *limits,
                     const struct dpe_session_work *work)
{
    struct dpe_price_answers cost = {0};
    struct dpe_sample samples[MADE];
    struct dpe_error err = {0};
    for (int i = 0; i < MADE; i++) {
        assert_int_equal(dpe_task_sample(task, i, &samples[i], NULL, &err), DPE_OK);
    }
    assert_int_equal(dpe_answering_cost(samples, MADE, MADE, limits, &cost, &err), DPE_OK);
    assert_int_equal(cost.samples, MADE);
    assert_int_equal(cost.read, work->fed);
    assert_in_range(work->decoded, 1, cost.decoded);
    assert_in_range(work->steps, 1, cost.steps);
    assert_true(cost.pairs > 0.0 && cost.pairs <= MADE * 320.0 * 320.0 / 2.0);
    for (int i = 0; i < MADE; i++) {
        dpe_sample_free(&samples[i]);
    }
}

/* Rows of samples that are made together in a session of its own; what it computed. */
static struct dpe_session_work rows_of(const struct dpe_model *model, const struct dpe_task *task,
                                       const struct dpe_plan *plan, int64_t branches,
                                       int64_t capacity, int64_t n, struct dpe_row *rows)
{
    struct dpe_error err = {0};
    struct dpe_session *session = NULL;
    const struct dpe_session_options options = {
        .capacity = capacity, .positions = 320, .branches = branches, .prefill_chunk = 64};
    assert_int_equal(dpe_session_create(model, plan, &options, &session, &err), DPE_OK);
    for (int64_t first = 0; first < MADE; first += n) {
        struct dpe_item items[MADE] = {{0}};
        for (int64_t i = 0; i < n; i++) {
            items[i].sample = first + i;
        }
        const struct dpe_job_rows part = {session, "plan", items, n, rows + first};
        assert_int_equal(dpe_task_rows(task, &part, 1, &err), DPE_OK);
    }
    const struct dpe_session_limits limits = dpe_session_limits(session);
    const struct dpe_session_work work = dpe_session_work(session);
    if (n == MADE && work.decoded > 0) {
        foretold(task, &limits, &work);
    }
    dpe_session_destroy(session);
    return work;
}

static void free_rows(struct dpe_row *rows)
{
    for (int i = 0; i < MADE; i++) {
        dpe_row_free(&rows[i]);
    }
}

static void check_rows(const struct dpe_row *rows, const struct dpe_row *want, bool bits)
{
    for (int64_t i = 0; i < MADE; i++) {
        assert_string_equal(rows[i].text, want[i].text);
        assert_true(rows[i].score == want[i].score);
        assert_true(!bits || isnan(want[i].margin) || rows[i].margin == want[i].margin);
        assert_int_equal(rows[i].new_tokens, want[i].new_tokens);
        assert_int_equal(rows[i].prompt_tokens, want[i].prompt_tokens);
        assert_int_equal(rows[i].sample, i);
    }
}

/* The reference model answers. Its answers depend neither on the other samples of the batch nor on
 * how many the session has room for; nor does what it reads, where samples are made together. */
static void batches_give_the_answers_of_single_samples(void **state)
{
    (void)state;
    static const char *const specs[] = {"", "keys=3,asked=3,values=1", "shared=4",
                                        "keys=2,asked=2,values=1,shared=2",
                                        "keys=2,asked=2,values=2,score=steps"};
    static const double most_read[] = {1.0001, 0.6, 0.85, 0.5, 0.65};
    static const struct {
        int64_t branches, capacity;
    } sizes[] = {{8, 8 * 320}, {3, 3 * 320}, {8, 320 + 70}, {1, 320}};
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    assert_int_equal(dpe_model_open(DPE_SOURCE_DIR "/data/reference", NULL, &model, &err), DPE_OK);
    const struct dpe_plan_context context = {
        .config = dpe_model_config(model), .trained_length = 256, .length = 320};
    struct dpe_plan plan;
    assert_int_equal(dpe_plan_make("dpe:window=32,groups=2,scales=2/4", &context, &plan, &err),
                     DPE_OK);
    for (int i = 0; i < 5; i++) {
        struct dpe_task task;
        struct dpe_row single[MADE];
        struct dpe_row together[MADE];
        struct dpe_row rows[MADE];
        int64_t prompts = 0;
        int64_t answers = 0;
        assert_int_equal(dpe_task_niah("niah", opened(specs[i], 320), tokenizer, &task, &err),
                         DPE_OK);
        rows_of(model, &task, &plan, 1, 320, 1, single);
        const struct dpe_session_work work =
            rows_of(model, &task, &plan, sizes[0].branches, sizes[0].capacity, MADE, together);
        check_rows(together, single, false);
        for (int j = 0; j < MADE; j++) {
            prompts += single[j].prompt_tokens;
            answers += single[j].new_tokens - 1;
        }
        for (size_t k = 1; k < sizeof sizes / sizeof sizes[0]; k++) {
            const struct dpe_session_work less =
                rows_of(model, &task, &plan, sizes[k].branches, sizes[k].capacity, MADE, rows);
            check_rows(rows, together, true);
            assert_int_equal(less.fed, work.fed);
            assert_int_equal(less.decoded, work.decoded);
            assert_true(sizes[k].branches == 1 ? less.steps == less.decoded
                                               : less.steps >= work.steps);
            free_rows(rows);
        }
        /* Tokens are decoded several at a time; what prompts share is read once. */
        assert_true(i == 4 || work.decoded == answers);
        assert_true(i < 3 ? 5 * work.steps < 3 * answers : work.steps < answers);
        const double read = (double)work.fed / (double)prompts;
        assert_true(read < most_read[i] && (i > 0 || read > 0.9));
        free_rows(single);
        free_rows(together);
        dpe_task_close(&task);
    }
    dpe_plan_free(&plan);
    dpe_model_close(model);
}

/* Two sessions beside each other: all samples under two plans, then halves of them under one. */
static void two_sessions(const struct dpe_model *model, const struct dpe_task *task,
                         const struct dpe_plan *plans)
{
    struct dpe_error err = {0};
    struct dpe_row single[2][MADE];
    struct dpe_row rows[2][MADE];
    struct dpe_item items[MADE] = {{0}};
    struct dpe_session *sessions[2] = {NULL, NULL};
    struct dpe_session_options options = {
        .capacity = 320 + 3 * 70, .positions = 320, .branches = 4, .prefill_chunk = 64};
    for (int p = 0; p < 2; p++) {
        rows_of(model, task, &plans[p], 1, 320, 1, single[p]);
        assert_int_equal(dpe_session_create(model, &plans[p], &options, &sessions[p], &err),
                         DPE_OK);
        options.beside = sessions[0];
    }
    for (int64_t i = 0; i < MADE; i++) {
        items[i].sample = i;
    }
    const struct dpe_job_rows both[] = {{sessions[0], "plan", items, MADE, rows[0]},
                                        {sessions[1], "other", items, MADE, rows[1]}};
    assert_int_equal(dpe_task_rows(task, both, 2, &err), DPE_OK);
    int64_t answers = 0;
    for (int p = 0; p < 2; p++) {
        check_rows(rows[p], single[p], false);
        assert_string_equal(rows[p][MADE - 1].plan, both[p].key);
        answers += dpe_session_work(sessions[p]).decoded;
        free_rows(rows[p]);
    }
    const int64_t steps = dpe_session_work(sessions[0]).steps + dpe_session_work(sessions[1]).steps;
    assert_true(!isnan(single[0]->margin) || 4 * steps < 3 * answers);

    assert_int_equal(dpe_session_set_plan(sessions[1], &plans[0], &err), DPE_OK);
    const int64_t half = MADE / 2 + 1;
    const struct dpe_job_rows halves[] = {
        {sessions[1], "plan", items, half, rows[0]},
        {sessions[0], "plan", items + half, MADE - half, rows[0] + half}};
    assert_int_equal(dpe_task_rows(task, halves, 2, &err), DPE_OK);
    check_rows(rows[0], single[0], false);
    free_rows(rows[0]);
    for (int p = 1; p >= 0; p--) {
        free_rows(single[p]);
        dpe_session_destroy(sessions[p]);
    }
}

static void sessions_answer_together(void **state)
{
    (void)state;
    static const char *const specs[] = {"", "keys=3,asked=3,values=1",
                                        "keys=2,asked=2,values=2,score=steps"};
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    struct dpe_plan plans[2];
    assert_int_equal(dpe_model_open(DPE_SOURCE_DIR "/data/reference", NULL, &model, &err), DPE_OK);
    const struct dpe_plan_context context = {
        .config = dpe_model_config(model), .trained_length = 256, .length = 320};
    assert_int_equal(dpe_plan_make("dpe:window=32,groups=2,scales=2/4", &context, &plans[0], &err),
                     DPE_OK);
    assert_int_equal(dpe_plan_make("yarn", &context, &plans[1], &err), DPE_OK);
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct dpe_task task;
        assert_int_equal(dpe_task_niah("niah", opened(specs[i], 320), tokenizer, &task, &err),
                         DPE_OK);
        two_sessions(model, &task, plans);
        dpe_task_close(&task);
    }
    dpe_plan_free(&plans[0]);
    dpe_plan_free(&plans[1]);
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
        cmocka_unit_test(sessions_answer_together),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, open_inputs, close_inputs);
}
