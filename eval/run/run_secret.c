/* --show: a long text with a secret is read with the table, and by the model as it is where the
 * table does not say what that finds, and each is asked for it. */
#include <string.h>

#include "data/data.h"
#include "eval/niah/niah.h"
#include "eval/run/run_tool.h"

enum { ANSWER_TEXT = 48 };

/* The text, and what is asked of it. */
struct secret {
    struct dpe_corpus *corpus;
    struct dpe_niah *niah;
    struct dpe_sample sample;
    struct dpe_text words; /* the prompt */
    int64_t length;
};

/* An answer as it comes: it ends with the model's turn, or once the secret is named. */
struct reply {
    const struct dpe_runner *run;
    const struct secret *secret;
    struct dpe_text *text;
};

static bool is_named(const struct reply *reply)
{
    const struct dpe_sample *sample = &reply->secret->sample;
    return dpe_recall(reply->text->bytes, sample->references, sample->n_references) >= 1.0;
}

static bool has_ended(void *user, const int32_t *ids, size_t n)
{
    struct reply *reply = user;
    reply->text->n = 0;
    dpe_status status =
        dpe_tokenizer_decode(reply->run->tokenizer, ids, n, true, reply->text, NULL);
    return (status == DPE_OK && is_named(reply)) || dpe_clock() > reply->run->deadline ||
           dpe_signals_asked() != DPE_STOP_NONE;
}

static dpe_status hide(const struct dpe_runner *run, struct secret *secret, struct dpe_error *err)
{
    const char *template = run->args->chat_template != NULL ? run->args->chat_template : "auto";
    struct dpe_niah_params params;
    dpe_niah_defaults(&params);
    params.values = 1;
    params.special = run->args->special;
    params.repeat_haystack = true;
    int64_t trained = 0;
    DPE_TRY(dpe_run_tool_length(run, &secret->length, &trained, err));
    DPE_TRY(dpe_job_corpus(run->args->corpus, &secret->corpus, err));
    DPE_TRY(dpe_niah_open(&params, secret->length, secret->corpus, run->tokenizer, template,
                          (uint64_t)run->args->seed, &secret->niah, err));
    DPE_TRY(dpe_niah_sample(secret->niah, 0, &secret->sample, err));
    return dpe_tokenizer_decode(run->tokenizer, secret->sample.prompt.ids, secret->sample.prompt.n,
                                true, &secret->words, err);
}

static void secret_free(struct secret *secret)
{
    dpe_text_free(&secret->words);
    dpe_sample_free(&secret->sample);
    dpe_niah_close(secret->niah);
    dpe_corpus_close(secret->corpus);
}

/* The sentence or line of a text around a byte, to *n; white space at its beginning is left out. */
static const char *sentence_around(const struct dpe_text *text, size_t at, int *n)
{
    size_t first = at;
    const size_t last = at + strcspn(text->bytes + at, ".\n");
    while (first > 0 && strchr(".\n", text->bytes[first - 1]) == NULL) {
        first--;
    }
    first += strspn(text->bytes + first, " ");
    *n = (int)(last - first);
    return text->bytes + first;
}

static void print_secret(const struct dpe_runner *run, const struct secret *secret)
{
    const char *words = secret->words.bytes;
    const char *needle = strstr(words, secret->sample.references[0]);
    size_t at = needle != NULL ? (size_t)(needle - words) : 0;
    const char *question = strrchr(words, '?');
    int n = 0;
    const char *sentence = sentence_around(&secret->words, at, &n);
    dpe_print("text             %zu tokens of %s\n", secret->sample.prompt.n, run->args->corpus);
    dpe_print("secret           at %.0f %%: %.*s.\n", 100.0 * (double)at / (double)secret->words.n,
              n, sentence);
    if (question != NULL) {
        sentence = sentence_around(&secret->words, (size_t)(question - words), &n);
        dpe_print("                 %.*s\n", n, sentence);
    }
}

/* Ask under the plan of these arguments. */
static dpe_status ask(const struct dpe_runner *run, const struct dpe_run_args *args,
                      const char *name, const struct secret *secret, struct dpe_error *err)
{
    struct dpe_runner own = *run;
    own.args = args;
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    struct reply reply = {.run = run, .secret = secret, .text = &text};
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens out = {0};
    DPE_SCOPED(dpe_session_destroy_scoped) struct dpe_session *session = NULL;
    const struct dpe_generate_options options = {
        .max_new = secret->sample.max_new, .stop = has_ended, .user = &reply};
    const int64_t read = (int64_t)secret->sample.prompt.n;
    double begin = dpe_clock();
    DPE_TRY(dpe_text_append(&text, "", 0, err));
    DPE_TRY(dpe_run_tool_session(&own, read + options.max_new, secret->length, &session, err));
    DPE_TRY(dpe_session_generate(session, secret->sample.prompt.ids, read, &options, &out, err));
    if (dpe_signals_asked() != DPE_STOP_NONE) {
        return dpe_fail(err, DPE_INCOMPLETE, "interrupted by a signal after %zu tokens", out.n);
    }
    char answer[ANSWER_TEXT];
    dpe_print("%-16s %s after %.1f s: \"%s\"\n", name, is_named(&reply) ? "found" : "not found",
              dpe_clock() - begin, dpe_printable(text.bytes, answer, sizeof answer));
    fflush(stdout);
    return DPE_OK;
}

/* What the table's evidence says of the model as it is at this length, or else its answer. */
static dpe_status ask_unchanged(const struct dpe_runner *run, const struct secret *secret,
                                struct dpe_error *err)
{
    struct dpe_run_args unchanged = *run->args;
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    DPE_TRY(unchanged.table != NULL ? dpe_table_load(unchanged.table, &table, err) : DPE_OK);
    const struct dpe_table_values *is = table != NULL ? dpe_table_values(table) : NULL;
    if (is != NULL && is->length == secret->length && is->evidence_task != NULL &&
        strcmp(is->model_fingerprint, dpe_model_fingerprint(run->model)) == 0 &&
        strcmp(is->evidence_task, "perplexity") != 0 && is->evidence_unchanged >= 0.0) {
        dpe_print("unchanged        finds %.3g %% of %lld samples (%s), as the table says\n",
                  100.0 * is->evidence_unchanged, (long long)is->evidence_samples,
                  is->evidence_task);
        return DPE_OK;
    }
    unchanged.table = NULL;
    unchanged.method = "rope";
    return ask(run, &unchanged, "unchanged", secret, err);
}

dpe_status dpe_run_tool_show(const struct dpe_runner *run, struct dpe_error *err)
{
    DPE_SCOPED(secret_free) struct secret secret = {0};
    DPE_TRY(hide(run, &secret, err));
    print_secret(run, &secret);
    const char *name = run->args->table != NULL ? "with the table" : run->args->method;
    /* First the table: one of another model is refused. */
    DPE_TRY(ask(run, run->args, name, &secret, err));
    return ask_unchanged(run, &secret, err);
}
