/* Sources of questions as tasks: which question is asked, when generation stops, what a row keeps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/tokenizer/tokenizer.h"
#include "eval/niah/niah.h"
#include "eval/task/task.h"
#include "outputs/h5/rows.h"
#include "tests/eval/task_row.h"
#include "tests/lib/reference_session.h"

enum { ROOM = 12 };

static int open_all(void **state)
{
    return open_reference(state, 64);
}

/* A source that remembers how it was used. */
struct quiz {
    const char *prompt, *reference;
    int asked, closed;
    int64_t last;
};

static dpe_status sample_quiz(void *state, int64_t index, struct dpe_sample *sample,
                              struct dpe_error *err)
{
    struct quiz *quiz = state;
    quiz->asked++;
    quiz->last = index;
    if (quiz->prompt == NULL) {
        return dpe_fail(err, DPE_BAD_DATA, "quiz.jsonl:3: no question");
    }
    sample->index = index;
    sample->seed = 40 + (uint64_t)index;
    sample->max_new = ROOM;
    sample->references = dpe_alloc_zero(1, sizeof *sample->references);
    assert_non_null(sample->references);
    sample->references[0] = strdup(quiz->reference);
    sample->n_references = 1;
    return dpe_tokenizer_encode(tokenizer, quiz->prompt, strlen(quiz->prompt), NULL,
                                &sample->prompt, err);
}

static void close_quiz(void *state)
{
    ((struct quiz *)state)->closed++;
}

/* Half of the points for any answer, all of them for the reference. */
static double half(const char *prediction, char *const *references, size_t n)
{
    double recall = dpe_recall(prediction, references, n);
    return isnan(recall) ? recall : 0.5 + 0.5 * recall;
}

static double never(const char *prediction, char *const *references, size_t n)
{
    (void)prediction;
    (void)references;
    return n > 0 ? 0.25 : (double)NAN;
}

static struct dpe_row ask(struct quiz *quiz, dpe_scorer score, bool growing, int64_t index)
{
    struct dpe_source source = {.name = "quiz",
                                .n_samples = 3,
                                .state = quiz,
                                .sample = sample_quiz,
                                .score = score,
                                .growing = growing,
                                .close = close_quiz};
    struct dpe_task task;
    struct dpe_row row;
    struct dpe_error err = {0};
    if (dpe_task_questions(&source, tokenizer, &task, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    assert_null(source.close); /* taken over */
    assert_string_equal(task.name, "quiz");
    assert_int_equal(task.n_samples, 3);
    if (row_of(&task, session, "key", index, &row, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    dpe_task_close(&task);
    assert_int_equal(quiz->closed, 1);
    return row;
}

static void a_row_holds_the_answer(void **state)
{
    (void)state;
    struct quiz quiz = {.prompt = "The ship sailed at dawn and", .reference = "\x01never\x01"};
    struct dpe_row row = ask(&quiz, never, false, 2);
    assert_int_equal(quiz.asked, 1);
    assert_int_equal(quiz.last, 2);
    assert_string_equal(row.task, "quiz");
    assert_int_equal(row.sample, 2);
    assert_int_equal(row.seed, 42);
    assert_true(row.score == 0.25 && row.at_least_half == 0.0);
    assert_in_range(row.new_tokens, 1, ROOM);
    assert_true(row.prompt_tokens > 3 && row.text != NULL && row.text[0] != '\0');
    assert_true(isnan(row.nll_sum) && row.n_buckets == 0);
    dpe_row_free(&row);
}

/* The model's first words are the expected answer: a growing score stops there, another goes on. */
static void only_growing_scores_stop(void **state)
{
    (void)state;
    struct quiz quiz = {.prompt = "The ship sailed at dawn and", .reference = "?"};
    struct dpe_row row = ask(&quiz, never, false, 0);
    char first[8] = {0};
    memcpy(first, row.text, strlen(row.text) < 3 ? strlen(row.text) : 3);
    int64_t all = row.new_tokens;
    assert_true(all > 3);
    dpe_row_free(&row);

    quiz = (struct quiz){.prompt = quiz.prompt, .reference = first};
    row = ask(&quiz, half, true, 0);
    assert_true(row.score == 1.0 && row.at_least_half == 1.0);
    assert_true(row.new_tokens < all);
    dpe_row_free(&row);

    quiz = (struct quiz){.prompt = quiz.prompt, .reference = first};
    row = ask(&quiz, half, false, 0);
    assert_true(row.score == 1.0);
    assert_int_equal(row.new_tokens, all);
    dpe_row_free(&row);
}

static void a_sample_that_fails_is_named(void **state)
{
    (void)state;
    struct quiz quiz = {.reference = "?"};
    struct dpe_source source = {.name = "quiz",
                                .n_samples = 3,
                                .state = &quiz,
                                .sample = sample_quiz,
                                .score = never,
                                .close = close_quiz};
    struct dpe_task task;
    struct dpe_row row;
    struct dpe_error err = {0};
    assert_int_equal(dpe_task_questions(&source, tokenizer, &task, &err), DPE_OK);
    assert_int_equal(row_of(&task, session, "key", 1, &row, &err), DPE_BAD_DATA);
    assert_string_equal(err.text, "quiz.jsonl:3: no question");
    assert_int_equal(row_of(&task, session, "key", 3, &row, &err), DPE_USAGE);
    assert_int_equal(quiz.asked, 1);
    dpe_task_close(&task);
    assert_int_equal(quiz.closed, 1);
}

static void nothing_opened_closes(void **state)
{
    (void)state;
    struct dpe_source source = {0};
    dpe_source_close(&source);
    assert_null(source.state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_holds_the_answer),
        cmocka_unit_test(only_growing_scores_stop),
        cmocka_unit_test(a_sample_that_fails_is_named),
        cmocka_unit_test(nothing_opened_closes),
    };
    return cmocka_run_group_tests(tests, open_all, close_reference);
}
