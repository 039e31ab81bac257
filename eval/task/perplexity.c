/* Perplexity of books: tokenized when the task is opened, one row a book. */
#include "data/data.h"
#include "engine/base/base.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "eval/task/task.h"
#include "outputs/h5/rows.h"
#include "outputs/job/job.h"

#include <stdlib.h>
#include <string.h>

struct ppl_book {
    int32_t *ids; /* [n] */
    int64_t n, n_words;
    size_t index; /* in the corpus */
};

struct ppl_task {
    struct dpe_ppl_options options; /* max_tokens = length: one window, no sliding */
    struct ppl_book *books;
    size_t n;
};

/* Words of the text that tokens 1 … n − 1 stand for. */
static dpe_status count_scored_words(const struct dpe_tokenizer *tokenizer, const int32_t *ids,
                                     int64_t n, int64_t *n_words, struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    DPE_TRY(dpe_tokenizer_decode(tokenizer, ids + 1, (size_t)n - 1, true, &text, err));
    *n_words = dpe_count_words(text.bytes, text.n);
    return DPE_OK;
}

/* Tokenize one book and keep it when it is long enough. */
static dpe_status take_book(struct ppl_task *task, size_t index, const struct dpe_book *book,
                            const struct dpe_tokenizer *tokenizer, struct dpe_error *err)
{
    const struct dpe_ppl_options *options = &task->options;
    const struct dpe_encode_options encode = {
        .add_special = true,
        .special = options->special,
        .advice = "choose whether it is ordinary text (literal) or the token (parse) with "
                  "--special-in-text (dpe-detect: --niah special=)"};
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens tokens = {0};
    DPE_TRY(dpe_tokenizer_encode(tokenizer, book->text, book->n, &encode, &tokens, err));
    if (tokens.n < (size_t)options->length) {
        return DPE_OK;
    }
    struct ppl_book *kept = &task->books[task->n];
    bool cut = options->max_tokens > 0 && tokens.n > (size_t)options->max_tokens;
    kept->n = cut ? options->max_tokens : (int64_t)tokens.n;
    DPE_TRY(count_scored_words(tokenizer, tokens.ids, kept->n, &kept->n_words, err));
    DPE_TRY(DPE_NEW(&kept->ids, (size_t)kept->n, err, "no memory for its tokens"));
    memcpy(kept->ids, tokens.ids, (size_t)kept->n * sizeof *kept->ids);
    kept->index = index;
    task->n++;
    return DPE_OK;
}

static int bucket_of(int64_t position)
{
    int bucket = 0;
    while (position > 1) {
        position /= 2;
        bucket++;
    }
    return bucket;
}

/* nll[t − 1] of the tokens t = `scored` … end − 1 in the window that begins at `begin`. */
static dpe_status run_window(struct dpe_session *session, const int32_t *ids, int64_t begin,
                             int64_t scored, int64_t end, double *nll, struct dpe_error *err)
{
    DPE_TRY(dpe_session_cut(session, 0, err));
    if (scored - 1 > begin) {
        DPE_TRY(dpe_session_feed(session, ids + begin, scored - 1 - begin, NULL, err));
    }
    return dpe_session_nll(session, ids + scored - 1, end - scored + 1, nll + scored - 1, err);
}

static dpe_status run_book(const struct ppl_task *task, struct dpe_session *session, int64_t index,
                           struct dpe_row *row, struct dpe_error *err)
{
    const struct ppl_book *book = &task->books[index];
    int64_t n_scored = book->n - 1;
    DPE_OWNED double *nll = NULL;
    DPE_OWNED double *buckets = NULL;
    DPE_TRY(DPE_NEW(&nll, (size_t)n_scored, err, "perplexity: no memory for %lld values",
                    (long long)n_scored));
    DPE_TRY(DPE_NEW(&buckets, (size_t)bucket_of(n_scored) + 1, err,
                    "perplexity: no memory for %lld values", (long long)n_scored));
    row->prompt_tokens = book->n;
    int64_t scored = 1;
    for (int64_t begin = 0; scored < book->n; begin += task->options.stride) {
        int64_t rest = book->n - begin;
        int64_t end = rest < task->options.length ? book->n : begin + task->options.length;
        DPE_TRY(run_window(session, book->ids, begin, scored, end, nll, err));
        scored = end;
    }
    double sum = 0.0;
    for (int64_t i = 0; i < n_scored; i++) {
        sum += nll[i];
        buckets[bucket_of(i + 1)] += nll[i];
    }
    row->nll_sum = sum;
    row->n_tokens = n_scored;
    row->n_words = book->n_words;
    row->n_buckets = bucket_of(n_scored) + 1;
    row->buckets = buckets;
    buckets = NULL;
    return DPE_OK;
}

static dpe_status run_ppl(void *state, const struct dpe_job_rows *parts, int64_t n,
                          struct dpe_error *err)
{
    for (const struct dpe_job_rows *part = parts; part < parts + n; part++) {
        for (int64_t i = 0; i < part->n; i++) {
            DPE_TRY(run_book(state, part->session, part->items[i].sample, &part->rows[i], err));
        }
    }
    return DPE_OK;
}

static void close_ppl(void *state)
{
    struct ppl_task *task = state;
    for (size_t i = 0; i < task->n; i++) {
        free(task->books[i].ids);
    }
    free(task->books);
    free(task);
}

static void drop_task(struct ppl_task **task)
{
    if (*task != NULL) {
        close_ppl(*task);
    }
}

static dpe_status open_books(struct ppl_task *state, const struct dpe_corpus *corpus,
                             const struct dpe_tokenizer *tokenizer, struct dpe_error *err)
{
    for (size_t i = 0; i < corpus->n; i++) {
        const struct dpe_book *book = &corpus->books[i];
        const dpe_status status = take_book(state, i, book, tokenizer, err);
        if (status != DPE_OK) {
            dpe_fail_prefix(err, "%s: book %s", corpus->path, book->id);
            return status;
        }
    }
    if (state->n == 0) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected a book of at least %lld tokens, found none among %zu",
                        corpus->path, (long long)state->options.length, corpus->n);
    }
    return DPE_OK;
}

dpe_status dpe_task_ppl_sliding(const char *name, const struct dpe_corpus *corpus,
                                const struct dpe_tokenizer *tokenizer,
                                const struct dpe_ppl_options *options, struct dpe_task *task,
                                int64_t *skipped, struct dpe_error *err)
{
    DPE_SCOPED(drop_task) struct ppl_task *state = NULL;
    const bool one = options->max_tokens == options->length;
    if (options->length < 2 || options->stride < 1 ||
        (options->stride >= options->length && !one) || strlen(name) >= sizeof task->name) {
        return dpe_fail(err, DPE_USAGE,
                        "perplexity \"%s\": expected a short name, a window of at least 2 tokens "
                        "and a stride of at least 1 and below the window of %lld tokens (the first "
                        "token of a window has none before it), found %lld",
                        name, (long long)options->length, (long long)options->stride);
    }
    if (options->max_tokens != 0 && options->max_tokens < options->length) {
        return dpe_fail(
            err, DPE_USAGE,
            "perplexity \"%s\": --max-tokens: expected at least a window of %lld tokens "
            "(--length) of each book, found %lld",
            name, (long long)options->length, (long long)options->max_tokens);
    }
    DPE_TRY(DPE_NEW(&state, 1, err, "perplexity: no memory for the list of books"));
    DPE_TRY(DPE_NEW(&state->books, corpus->n, err, "perplexity: no memory for the list of books"));
    state->options = *options;
    DPE_TRY(open_books(state, corpus, tokenizer, err));
    *skipped = (int64_t)(corpus->n - state->n);
    *task = (struct dpe_task){.n_samples = (int64_t)state->n,
                              .together = 1,
                              .state = state,
                              .run = run_ppl,
                              .close = close_ppl};
    memcpy(task->name, name, strlen(name) + 1);
    state = NULL;
    return DPE_OK;
}

dpe_status dpe_task_ppl(const char *name, const struct dpe_corpus *corpus,
                        const struct dpe_tokenizer *tokenizer, int64_t length,
                        enum dpe_special_policy special, struct dpe_task *task, int64_t *skipped,
                        struct dpe_error *err)
{
    const struct dpe_ppl_options options = {
        .length = length, .stride = length, .max_tokens = length, .special = special};
    return dpe_task_ppl_sliding(name, corpus, tokenizer, &options, task, skipped, err);
}

size_t dpe_task_ppl_book(const struct dpe_task *task, int64_t index)
{
    const struct ppl_task *state = task->state;
    return state->books[index].index;
}

const int32_t *dpe_task_ppl_tokens(const struct dpe_task *task, int64_t index)
{
    const struct ppl_task *state = task->state;
    return state->books[index].ids;
}
