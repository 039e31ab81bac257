/* The needle task in a session: prompt, generation, score. */
#include "eval.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A prediction is kept to be looked at, not to fill tables. */
enum { MAX_PREDICTION = 4096 };

struct niah_task {
    struct dpe_niah *niah;
    const struct dpe_tokenizer *tokenizer;
};

/* What a generation is asked to stop at: all references were said. */
struct listener {
    const struct dpe_tokenizer *tokenizer;
    const struct dpe_sample *sample;
    struct dpe_text text; /* of the tokens generated so far */
};

/* Decode into listener->text; a NUL would end the string too early and becomes a space. */
static dpe_status hear(struct listener *listener, const int32_t *ids, size_t n,
                       struct dpe_error *err)
{
    struct dpe_text *text = &listener->text;
    text->n = 0;
    dpe_status status = dpe_text_append(text, "", 0, err);
    if (status == DPE_OK) {
        status = dpe_tokenizer_decode(listener->tokenizer, ids, n, true, text, err);
    }
    for (size_t i = 0; i < text->n; i++) {
        if (text->bytes[i] == '\0') {
            text->bytes[i] = ' ';
        }
    }
    return status;
}

static bool said_all(void *user, const int32_t *generated, size_t n)
{
    struct listener *listener = user;
    const struct dpe_sample *sample = listener->sample;
    return hear(listener, generated, n, NULL) == DPE_OK &&
           dpe_recall(listener->text.bytes, sample->references, sample->n_references) >= 1.0;
}

/* The text, cut between characters. */
static char *keep_text(const struct dpe_text *text)
{
    size_t n = text->n < MAX_PREDICTION ? text->n : MAX_PREDICTION;
    while (n > 0 && n < text->n && ((unsigned char)text->bytes[n] & 0xc0) == 0x80) {
        n--;
    }
    return strndup(text->bytes, n);
}

static dpe_status score(struct listener *listener, const struct dpe_tokens *said,
                        struct dpe_row *row, struct dpe_error *err)
{
    const struct dpe_sample *sample = listener->sample;
    dpe_status status = hear(listener, said->ids, said->n, err);
    if (status != DPE_OK) {
        return status;
    }
    row->text = keep_text(&listener->text);
    if (row->text == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "niah: no memory for a prediction");
    }
    row->new_tokens = (int64_t)said->n;
    row->score = dpe_recall(listener->text.bytes, sample->references, sample->n_references);
    row->at_least_half = row->score >= 0.5 ? 1.0 : 0.0;
    return DPE_OK;
}

static dpe_status run_niah(void *state, struct dpe_session *session, int64_t index,
                           struct dpe_row *row, struct dpe_error *err)
{
    const struct niah_task *task = state;
    struct dpe_sample sample = {0};
    dpe_status status = dpe_niah_sample(task->niah, index, &sample, err);
    if (status != DPE_OK) {
        return status;
    }
    struct listener listener = {.tokenizer = task->tokenizer, .sample = &sample};
    struct dpe_tokens said = {0};
    const struct dpe_generate_options options = {
        .max_new = sample.max_new, .stop = said_all, .user = &listener};
    row->seed = sample.seed;
    row->prompt_tokens = (int64_t)sample.prompt.n;
    status = dpe_session_cut(session, 0, err);
    if (status == DPE_OK) {
        status = dpe_session_generate(session, sample.prompt.ids, (int64_t)sample.prompt.n,
                                      &options, &said, err);
    }
    if (status == DPE_OK) {
        status = score(&listener, &said, row, err);
    }
    dpe_tokens_free(&said);
    dpe_text_free(&listener.text);
    dpe_sample_free(&sample);
    return status;
}

static void close_niah(void *state)
{
    struct niah_task *task = state;
    dpe_niah_close(task->niah);
    free(task);
}

dpe_status dpe_task_niah(const char *name, struct dpe_niah *niah,
                         const struct dpe_tokenizer *tokenizer, struct dpe_task *task,
                         struct dpe_error *err)
{
    struct niah_task *state = dpe_alloc(1, sizeof *state);
    if (state == NULL || strlen(name) >= sizeof task->name) {
        free(state);
        dpe_niah_close(niah);
        return state == NULL ? dpe_fail(err, DPE_NO_MEMORY, "niah: no memory for a task")
                             : dpe_fail(err, DPE_INTERNAL, "task name \"%s\" is too long", name);
    }
    *state = (struct niah_task){niah, tokenizer};
    *task = (struct dpe_task){
        .n_samples = INT64_MAX, .state = state, .run = run_niah, .close = close_niah};
    snprintf(task->name, sizeof task->name, "%s", name);
    return DPE_OK;
}
