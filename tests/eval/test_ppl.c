/* Perplexity and needle rows of the reference model: against token-by-token logits, and against a
 * generation that was not stopped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "data/data.h"
#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "eval/niah/niah.h"
#include "eval/task/task.h"
#include "outputs/h5/rows.h"
#include "tests/eval/task_row.h"
#include "tests/lib/reference_session.h"
#include "tests/lib/text_folder.h"

enum { LENGTH = 70 };

static int open_all(void **state)
{
    return open_reference(state, 256) == 0 ? make_folder(state) : -1;
}

static int close_all(void **state)
{
    return close_reference(state) == 0 ? remove_folder(state) : -1;
}

/* −ln softmax(logits)[id] in double. */
static double nll_of(const float *logits, int64_t vocab, int32_t id)
{
    double largest = -INFINITY;
    for (int64_t i = 0; i < vocab; i++) {
        largest = (double)logits[i] > largest ? (double)logits[i] : largest;
    }
    double sum = 0.0;
    for (int64_t i = 0; i < vocab; i++) {
        sum += exp((double)logits[i] - largest);
    }
    return largest + log(sum) - (double)logits[id];
}

static void rows_are_sums_of_token_logits(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    struct dpe_task task = {0};
    int64_t skipped = -1;
    if (dpe_task_ppl("ppl", corpus, tokenizer, LENGTH, DPE_SPECIAL_ERROR, &task, &skipped, &err) !=
        DPE_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(skipped, 0);
    assert_int_equal(task.n_samples, corpus->n);
    struct dpe_row row;
    if (row_of(&task, session, "key", 1, &row, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    const struct dpe_book *book = &corpus->books[1];
    const struct dpe_encode_options options = {.add_special = true};
    struct dpe_tokens tokens = {0};
    assert_int_equal(dpe_tokenizer_encode(tokenizer, book->text, book->n, &options, &tokens, NULL),
                     DPE_OK);
    int64_t vocab = dpe_model_config(model)->vocab;
    float *logits = dpe_alloc((size_t)vocab, sizeof *logits);
    assert_non_null(logits);
    double sum = 0.0;
    double buckets[7] = {0};
    assert_int_equal(dpe_session_cut(session, 0, NULL), DPE_OK);
    for (int i = 0; i + 1 < LENGTH; i++) {
        assert_int_equal(dpe_session_feed(session, tokens.ids + i, 1, logits, NULL), DPE_OK);
        double nll = nll_of(logits, vocab, tokens.ids[i + 1]);
        sum += nll;
        buckets[(int)floor(log2(i + 1.0) + 1e-9)] += nll;
    }
    assert_int_equal(row.n_tokens, LENGTH - 1);
    assert_int_equal(row.prompt_tokens, LENGTH);
    assert_true(fabs(row.nll_sum - sum) < 1e-4 * sum);
    assert_int_equal(row.n_buckets, 7); /* 1, 2–3, 4–7, … 64–69 */
    for (int b = 0; b < 7; b++) {
        assert_true(fabs(row.buckets[b] - buckets[b]) < 1e-4 * sum);
    }
    /* Words of the text that the scored tokens are: everything but the BOS. */
    struct dpe_text text = {0};
    assert_int_equal(dpe_tokenizer_decode(tokenizer, tokens.ids, LENGTH, true, &text, NULL),
                     DPE_OK);
    assert_int_equal(strncmp(text.bytes, book->text, text.n), 0);
    assert_int_equal(row.n_words, dpe_count_words(book->text, text.n));
    assert_true(isnan(row.score));
    dpe_text_free(&text);
    dpe_tokens_free(&tokens);
    free(logits);
    dpe_row_free(&row);
    dpe_task_close(&task);
}

static void short_books_are_counted(void **state)
{
    (void)state;
    file_with("a.txt", "Too short.");
    file_with("b.txt",
              "This one is long enough for eight tokens, and then it goes on for a while.");
    file_with("c.txt", "Short as well.");
    struct dpe_corpus *texts = NULL;
    assert_int_equal(dpe_corpus_open(folder, &texts, NULL), DPE_OK);
    struct dpe_task task = {0};
    struct dpe_error err = {0};
    int64_t skipped = -1;
    assert_int_equal(
        dpe_task_ppl("ppl", texts, tokenizer, 12, DPE_SPECIAL_ERROR, &task, &skipped, &err),
        DPE_OK);
    assert_int_equal(skipped, 2);
    assert_int_equal(task.n_samples, 1);
    assert_int_equal(dpe_task_ppl_book(&task, 0), 1);
    struct dpe_row row;
    assert_int_equal(row_of(&task, session, "key", 1, &row, &err), DPE_USAGE);
    assert_int_equal(row_of(&task, session, "key", 0, &row, &err), DPE_OK);
    assert_int_equal(row.n_tokens, 11);
    dpe_row_free(&row);
    dpe_task_close(&task);
    assert_int_equal(
        dpe_task_ppl("ppl", texts, tokenizer, 1000, DPE_SPECIAL_ERROR, &task, &skipped, &err),
        DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "at least 1000 tokens"));
    assert_non_null(strstr(err.text, folder));
    assert_int_equal(
        dpe_task_ppl("ppl", texts, tokenizer, 1, DPE_SPECIAL_ERROR, &task, &skipped, &err),
        DPE_USAGE);
    dpe_corpus_close(texts);
    file_with("c.txt", "An <|eos|> here.");
    assert_int_equal(dpe_corpus_open(folder, &texts, NULL), DPE_OK);
    assert_int_equal(
        dpe_task_ppl("ppl", texts, tokenizer, 12, DPE_SPECIAL_ERROR, &task, &skipped, &err),
        DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "book c"));
    assert_int_equal(
        dpe_task_ppl("ppl", texts, tokenizer, 12, DPE_SPECIAL_LITERAL, &task, &skipped, &err),
        DPE_OK);
    dpe_task_close(&task);
    dpe_corpus_close(texts);
}

/* A window of 40 over 100 tokens of a book, 15 at a time: token t is scored by the first window
 * that holds it, with everything before it in that window. */
static void a_window_slides(void **state)
{
    (void)state;
    enum { WINDOW = 40, STRIDE = 15, N = 100 };
    struct dpe_error err = {0};
    struct dpe_task task = {0};
    int64_t skipped = -1;
    const struct dpe_ppl_options sliding = {.length = WINDOW, .stride = STRIDE, .max_tokens = N};
    if (dpe_task_ppl_sliding("ppl", corpus, tokenizer, &sliding, &task, &skipped, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    struct dpe_row row;
    assert_int_equal(row_of(&task, session, "key", 0, &row, &err), DPE_OK);
    const struct dpe_book *book = &corpus->books[0];
    const struct dpe_encode_options options = {.add_special = true};
    struct dpe_tokens tokens = {0};
    assert_int_equal(dpe_tokenizer_encode(tokenizer, book->text, book->n, &options, &tokens, NULL),
                     DPE_OK);
    double buckets[7] = {0};
    double sum = 0.0;
    for (int t = 1; t < N; t++) {
        int begin = 0;
        while (begin + WINDOW <= t) {
            begin += STRIDE;
        }
        double nll[WINDOW];
        assert_int_equal(dpe_session_cut(session, 0, NULL), DPE_OK);
        assert_int_equal(dpe_session_nll(session, tokens.ids + begin, t - begin + 1, nll, NULL),
                         DPE_OK);
        sum += nll[t - begin - 1];
        buckets[(int)floor(log2(t) + 1e-9)] += nll[t - begin - 1];
    }
    assert_int_equal(row.prompt_tokens, N);
    assert_int_equal(row.n_tokens, N - 1);
    assert_true(fabs(row.nll_sum - sum) < 1e-5 * sum);
    assert_int_equal(row.n_buckets, 7);
    for (int b = 0; b < 7; b++) {
        assert_true(fabs(row.buckets[b] - buckets[b]) < 1e-5 * sum);
    }
    dpe_row_free(&row);
    dpe_task_close(&task);
    dpe_tokens_free(&tokens);
}

/* A book that one window holds has the perplexity of its first tokens. */
static void one_window_does_not_slide(void **state)
{
    (void)state;
    const struct dpe_ppl_options sliding = {
        .length = LENGTH, .stride = LENGTH - 1, .max_tokens = LENGTH};
    struct dpe_task tasks[2];
    struct dpe_row rows[2];
    int64_t skipped = -1;
    assert_int_equal(
        dpe_task_ppl_sliding("ppl", corpus, tokenizer, &sliding, &tasks[0], &skipped, NULL),
        DPE_OK);
    assert_int_equal(dpe_task_ppl("ppl", corpus, tokenizer, LENGTH, DPE_SPECIAL_ERROR, &tasks[1],
                                  &skipped, NULL),
                     DPE_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(row_of(&tasks[i], session, "key", 2, &rows[i], NULL), DPE_OK);
        dpe_task_close(&tasks[i]);
    }
    assert_true(rows[0].nll_sum == rows[1].nll_sum);
    assert_int_equal(rows[0].n_words, rows[1].n_words);
    assert_int_equal(rows[0].n_tokens, rows[1].n_tokens);
    dpe_row_free(&rows[0]);
    dpe_row_free(&rows[1]);
}

/* The row has the text of a generation without our stop, up to the last value. */
static void needle_rows_score_the_generation(void **state)
{
    (void)state;
    struct dpe_niah_params params;
    struct dpe_niah *niah = NULL;
    struct dpe_task task = {0};
    struct dpe_error err = {0};
    dpe_niah_defaults(&params);
    if (dpe_niah_open(&params, 160, corpus, tokenizer, NULL, 1, &niah, &err) != DPE_OK ||
        dpe_task_niah("niah", niah, tokenizer, &task, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    for (int64_t index = 0; index < 2; index++) {
        struct dpe_row row;
        if (row_of(&task, session, "key", index, &row, &err) != DPE_OK) {
            fail_msg("%s", err.text);
        }
        struct dpe_sample sample = {0};
        assert_int_equal(dpe_niah_sample(niah, index, &sample, NULL), DPE_OK);
        struct dpe_tokens full = {0};
        struct dpe_text text = {0};
        const struct dpe_generate_options options = {.max_new = sample.max_new};
        assert_int_equal(dpe_session_cut(session, 0, NULL), DPE_OK);
        assert_int_equal(dpe_session_generate(session, sample.prompt.ids, (int64_t)sample.prompt.n,
                                              &options, &full, NULL),
                         DPE_OK);
        assert_int_equal(dpe_tokenizer_decode(tokenizer, full.ids, full.n, true, &text, NULL),
                         DPE_OK);
        double recall =
            text.n == 0 ? 0.0 : dpe_recall(text.bytes, sample.references, sample.n_references);
        assert_true(row.score == recall);
        assert_true(row.at_least_half == (recall >= 0.5 ? 1.0 : 0.0));
        assert_in_range(row.new_tokens, 0, full.n);
        assert_int_equal(strncmp(text.n == 0 ? "" : text.bytes, row.text, strlen(row.text)), 0);
        if (recall < 1.0) {
            assert_int_equal(row.new_tokens, full.n);
        } else {
            size_t n = strlen(row.text);
            assert_true(n >= 7 && strstr(row.text, sample.references[0]) != NULL);
        }
        assert_int_equal(row.prompt_tokens, sample.prompt.n);
        assert_int_equal(row.seed, 1);
        assert_true(isnan(row.nll_sum));
        dpe_text_free(&text);
        dpe_tokens_free(&full);
        dpe_sample_free(&sample);
        dpe_row_free(&row);
    }
    dpe_task_close(&task);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_sums_of_token_logits),
        cmocka_unit_test(short_books_are_counted),
        cmocka_unit_test(a_window_slides),
        cmocka_unit_test(one_window_does_not_slide),
        cmocka_unit_test(needle_rows_score_the_generation),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
