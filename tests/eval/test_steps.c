/* A score by steps: looks by hand, what is refused, and on the reference model against generation
 * from scratch for every step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/niah/niah.h"
#include "eval/task/task.h"
#include "tests/eval/task_row.h"
#include "tests/lib/reference_session.h"

enum { LENGTH = 256 };

static int open_all(void **state)
{
    return open_reference(state, LENGTH);
}

/* ----------------------------------------------------------------------------------------- by hand
 */

static void looks_by_hand(void **state)
{
    (void)state;
    const float logits[5] = {1.0F, 3.0F, 2.0F, -1.0F, 3.0F};
    double odds = 0.0;
    const int32_t best[1] = {1}, second[1] = {2}, two[3] = {2, 0, 2}, tied[1] = {4};
    const int32_t all[5] = {0, 1, 2, 3, 4};
    assert_int_equal(dpe_steps_look(logits, 5, best, 1, &odds), 1);
    assert_true(odds == 0.0); /* token 4 is as likely and wrong */
    assert_int_equal(dpe_steps_look(logits, 5, second, 1, &odds), -1);
    assert_true(odds == -1.0);
    assert_int_equal(dpe_steps_look(logits, 5, two, 3, &odds), -1);
    assert_true(fabs(odds - (log(exp(2.0) + exp(1.0)) - 3.0)) < 1e-12); /* each once */
    assert_int_equal(dpe_steps_look(logits, 5, tied, 1, &odds), -1);    /* the smaller id wins */
    assert_int_equal(dpe_steps_look(logits, 5, all, 5, &odds), 1);
    assert_true(isinf(odds) && odds > 0.0);
}

/* A sample of these references, each answered as " REFERENCE."; free with dpe_sample_free. */
static struct dpe_sample sample_of(const char *const *references, size_t n, int64_t room)
{
    struct dpe_sample sample = {.index = 7, .max_new = room, .n_references = n};
    sample.references = dpe_alloc_zero(n, sizeof *sample.references);
    sample.answers = dpe_alloc_zero(n, sizeof *sample.answers);
    for (size_t i = 0; i < n; i++) {
        char text[64];
        snprintf(text, sizeof text, " %s.", references[i]);
        sample.references[i] = strdup(references[i]);
        sample.answers[i] = strdup(text);
    }
    return sample;
}

static void refuse(struct dpe_sample *sample, dpe_status status, const char *words)
{
    struct dpe_error err = {0};
    assert_int_equal(dpe_steps_check(sample, tokenizer, &err), status);
    if (strstr(err.text, words) == NULL) {
        fail_msg("expected \"%s\", found \"%s\"", words, err.text);
    }
    dpe_sample_free(sample);
}

static void what_has_no_steps_is_named(void **state)
{
    (void)state;
    const char *const apart[] = {"1234", "1278", "9912"}; /* two begin alike */
    const char *const part[] = {"8812345", "1234"};
    const char *const twice[] = {"1234", "1234"};
    const char *const empty[] = {"1234", ""};
    struct dpe_error err = {0};
    struct dpe_sample sample = sample_of(apart, 3, 60);
    if (dpe_steps_check(&sample, tokenizer, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    dpe_sample_free(&sample);
    sample = sample_of(part, 2, 60);
    refuse(&sample, DPE_BAD_DATA, "sample 7: the value \"1234\" is part of \"8812345\"");
    sample = sample_of(twice, 2, 60);
    refuse(&sample, DPE_BAD_DATA, "the value \"1234\" is part of");
    sample = sample_of(empty, 2, 60);
    refuse(&sample, DPE_BAD_DATA, "the value \"\" is part of");
    sample = sample_of(apart, 0, 60);
    refuse(&sample, DPE_BAD_DATA, "sample 7 has no value to ask for");
    sample = sample_of(apart, 3, 4);
    refuse(&sample, DPE_BAD_DATA, "but there is room for 4");
    sample = sample_of(apart, 1, 60);
    free(sample.answers[0]);
    sample.answers[0] = strdup(" 12 34.");
    refuse(&sample, DPE_BAD_DATA, "does not hold the value \"1234\"");
    sample = sample_of(apart, 1, 60);
    free(sample.answers[0]);
    free(sample.answers);
    sample.answers = NULL;
    refuse(&sample, DPE_USAGE, "free text, which has no steps");
}

/* ------------------------------------------------------------------------------------ on the model
 */

static void open_niah(const char *spec, struct dpe_niah **niah)
{
    struct dpe_niah_params params;
    struct dpe_error err = {0};
    dpe_niah_defaults(&params);
    if (dpe_niah_parse(spec, &params, &err) != DPE_OK ||
        dpe_niah_open(&params, LENGTH, corpus, tokenizer, NULL, 5, niah, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
}

/* The same by generating from scratch: prompt and given values as one text, then greedy tokens. The
 * order is read off the lines of what was run: a step that was found names its value or, where not,
 * none. */
static double by_generation(const struct dpe_sample *sample, const size_t *order)
{
    double found = 0.0;
    for (size_t step = 0; step < sample->n_references; step++) {
        struct dpe_error err = {0};
        struct dpe_tokens text = {0};
        struct dpe_tokens out = {0};
        struct dpe_text words = {0};
        struct dpe_text given = {0};
        for (size_t i = 0; i < step; i++) {
            const char *answer = sample->answers[order[i]] + (i == 0 ? sample->skip[order[i]] : 0);
            assert_int_equal(dpe_text_append(&given, answer, strlen(answer), &err), DPE_OK);
        }
        assert_int_equal(dpe_tokens_append(&text, sample->prompt.ids, sample->prompt.n, &err),
                         DPE_OK);
        if (given.n > 0) {
            assert_int_equal(
                dpe_tokenizer_encode(tokenizer, given.bytes, given.n, NULL, &text, &err), DPE_OK);
        }
        const struct dpe_generate_options options = {.max_new = 14};
        assert_int_equal(dpe_session_cut(session, 0, &err), DPE_OK);
        assert_int_equal(
            dpe_session_generate(session, text.ids, (int64_t)text.n, &options, &out, &err), DPE_OK);
        assert_int_equal(dpe_tokenizer_decode(tokenizer, out.ids, out.n, true, &words, &err),
                         DPE_OK);
        assert_int_equal(dpe_text_append(&words, "", 0, &err), DPE_OK);
        for (size_t i = step; i < sample->n_references; i++) {
            const char *answer =
                sample->answers[order[i]] + (step == 0 ? sample->skip[order[i]] : 0);
            size_t n = strlen(answer) - 1; /* without the full stop */
            found += words.bytes != NULL && strncmp(words.bytes, answer, n) == 0;
        }
        dpe_tokens_free(&text);
        dpe_tokens_free(&out);
        dpe_text_free(&words);
        dpe_text_free(&given);
    }
    return found / (double)sample->n_references;
}

/* The order that dpe_steps_run draws. */
static void order_of(const struct dpe_sample *sample, size_t *order)
{
    struct dpe_rng rng;
    dpe_rng_seed(&rng, sample->seed, (uint64_t)sample->index);
    for (size_t i = 0; i < sample->n_references; i++) {
        size_t k = (size_t)dpe_rng_below(&rng, (uint32_t)i + 1);
        order[i] = order[k];
        order[k] = i;
    }
}

static void steps_are_those_of_generation(void **state)
{
    (void)state;
    struct dpe_niah *niah = NULL;
    double all = 0.0;
    enum { SAMPLES = 3 };
    open_niah("score=steps,values=3", &niah);
    for (int64_t i = 0; i < SAMPLES; i++) {
        struct dpe_sample sample = {0};
        struct dpe_steps steps = {0};
        struct dpe_text text = {0};
        struct dpe_error err = {0};
        size_t order[3];
        assert_int_equal(dpe_niah_sample(niah, i, &sample, &err), DPE_OK);
        assert_int_equal(sample.n_references, 3);
        assert_int_equal(dpe_session_cut(session, 0, &err), DPE_OK);
        if (dpe_steps_run(session, &sample, (int64_t)sample.prompt.n, tokenizer, &steps, &text,
                          &err) != DPE_OK) {
            fail_msg("%s", err.text);
        }
        order_of(&sample, order);
        assert_true(fabs(steps.found - by_generation(&sample, order)) < 1e-9);
        assert_true(steps.margin > 0.0 && steps.margin <= 1.0);
        /* Every step that is found has log-odds of at least 0. */
        assert_true(steps.margin >= 0.5 * steps.found);
        all += steps.found;
        dpe_text_free(&text);
        dpe_sample_free(&sample);
    }
    assert_true(all > 0.5 * SAMPLES); /* it was trained on these */
    dpe_niah_close(niah);
}

/* Of one value that is found every token is greedy and right: the margin is that of the least gap
 * between the two likeliest tokens. */
static void a_margin_is_that_of_the_least_gap(void **state)
{
    (void)state;
    enum { SAMPLES = 8 };
    const int64_t vocab = dpe_session_limits(session).vocab;
    float *logits = calloc((size_t)vocab, sizeof *logits);
    struct dpe_niah *niah = NULL;
    int checked = 0;
    open_niah("score=steps,values=1", &niah);
    for (int64_t i = 0; i < SAMPLES; i++) {
        struct dpe_sample sample;
        struct dpe_steps steps;
        struct dpe_text text = {0};
        struct dpe_error err = {0};
        double least = INFINITY;
        assert_int_equal(dpe_niah_sample(niah, i, &sample, &err), DPE_OK);
        const int64_t prompt = (int64_t)sample.prompt.n;
        assert_int_equal(dpe_session_cut(session, 0, &err), DPE_OK);
        assert_int_equal(dpe_steps_run(session, &sample, prompt, tokenizer, &steps, &text, &err),
                         DPE_OK);
        assert_int_equal(dpe_session_cut(session, 0, &err), DPE_OK);
        assert_int_equal(dpe_session_feed(session, sample.prompt.ids, prompt, logits, &err),
                         DPE_OK);
        for (int64_t step = 0; step < steps.new_tokens; step++) {
            int32_t best = 0;
            double second = -INFINITY;
            for (int32_t t = 1; t < vocab; t++) {
                second = fmax(second, logits[t] > logits[best] ? logits[best] : logits[t]);
                best = logits[t] > logits[best] ? t : best;
            }
            least = fmin(least, (double)logits[best] - second);
            assert_int_equal(dpe_session_feed(session, &best, 1, logits, &err), DPE_OK);
        }
        if (steps.found == 1.0) {
            assert_true(fabs(steps.margin - 1.0 / (1.0 + exp(-least / 0.3))) < 1e-3);
            checked++;
        }
        dpe_text_free(&text);
        dpe_sample_free(&sample);
    }
    assert_true(checked >= SAMPLES / 2);
    dpe_niah_close(niah);
    free(logits);
}

/* Rows alone, and of questions that share a context. */
static void rows_hold_what_was_measured(void **state)
{
    (void)state;
    struct dpe_niah *niah = NULL;
    struct dpe_task task;
    struct dpe_error err = {0};
    struct dpe_row rows[2], alone;
    const struct dpe_item both[2] = {{.sample = 0}, {.sample = 1}};
    open_niah("score=steps,values=1,keys=2,asked=2", &niah);
    assert_int_equal(dpe_task_niah("niah", niah, tokenizer, &task, &err), DPE_OK);
    assert_int_equal(dpe_session_cut(session, 0, &err), DPE_OK);
    const struct dpe_job_rows part = {session, "key", both, 2, rows};
    assert_int_equal(dpe_task_rows(&task, &part, 1, &err), DPE_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dpe_session_cut(session, 0, &err), DPE_OK);
        assert_int_equal(row_of(&task, session, "key", i, &alone, &err), DPE_OK);
        assert_true(alone.score == rows[i].score);
        assert_true(fabs(alone.margin - rows[i].margin) < 1e-3);
        assert_true(rows[i].text[0] == (rows[i].score > 0.5 ? '+' : '-'));
        assert_true(rows[i].new_tokens >= 0 && rows[i].prompt_tokens > 0);
        dpe_row_free(&alone);
        dpe_row_free(&rows[i]);
    }
    dpe_task_close(&task);
}

/* More values than an answer has room for are refused when the task is opened. */
static void a_score_is_named(void **state)
{
    (void)state;
    struct dpe_niah_params params;
    struct dpe_error err = {0};
    dpe_niah_defaults(&params);
    assert_int_equal(dpe_niah_parse("score=steps,score=recall", &params, &err), DPE_USAGE);
    assert_int_equal(dpe_niah_parse("score=none", &params, &err), DPE_USAGE);
    assert_non_null(strstr(err.text, "expected recall or steps"));
    char spec[256];
    assert_int_equal(dpe_niah_parse("score=steps", &params, &err), DPE_OK);
    dpe_niah_format(&params, spec, sizeof spec);
    assert_non_null(strstr(spec, ",score=steps"));
    char words[DPE_TASK_WORDS];
    assert_string_equal(dpe_identity_task_words(spec, words),
                        "one key of 4 values, scored by steps");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looks_by_hand),
        cmocka_unit_test(what_has_no_steps_is_named),
        cmocka_unit_test(steps_are_those_of_generation),
        cmocka_unit_test(rows_hold_what_was_measured),
        cmocka_unit_test(a_margin_is_that_of_the_least_gap),
        cmocka_unit_test(a_score_is_named),
    };
    return cmocka_run_group_tests(tests, open_all, close_reference);
}
