/**
 * @file run_tool.h
 * Inside of dpe-run: what its files share. No library.
 */
#ifndef DPE_RUN_TOOL_H
#define DPE_RUN_TOOL_H

#include "eval/chat/chat.h"
#include "eval/run/conversation.h"
#include "outputs/read/read.h"

/** The bytes of a file, or of standard input when it is "-"; NUL-terminated, owned by the caller.
 */
dpe_status dpe_run_tool_read(const struct dpe_runner *run, const char *file, char **bytes,
                             size_t *n, struct dpe_error *err);

/** Streams the text as it comes; bytes of an unfinished UTF-8 sequence wait for the next token. */
struct stream {
    const struct dpe_tokenizer *tokenizer;
    size_t printed; /**< bytes of the decoded text so far */
    double deadline;
    bool late;
    struct dpe_chat_ends ends; /**< ids that end the text */
};
/** Print what is new of the text of these ids; `last`: unfinished bytes too. */
void dpe_run_tool_print(struct stream *stream, const int32_t *ids, size_t n, bool last);
/** A dpe_stop over a struct stream. */
bool dpe_run_tool_token(void *user, const int32_t *generated, size_t n);

/** After an answer without words: a warning, if the model has a chat template. */
void dpe_run_tool_hint(const struct dpe_runner *run, const int32_t *ids, size_t n);

/** The table that --table or --method names, or NULL. */
static inline const char *dpe_run_tool_table(const struct dpe_run_args *args)
{
    return args->table != NULL    ? args->table
           : args->method != NULL ? dpe_plan_table_of_spec(args->method)
                                  : NULL;
}
/** The length that is shown without a text: --length, else that of the table, its longest, else
 * four times the trained one; and the trained length, which is the table's where there is one.
 * Errors of the table. */
dpe_status dpe_run_tool_length(const struct dpe_runner *run, int64_t *length, int64_t *trained,
                               struct dpe_error *err);
/** The position methods and their keys, as a table for people. */
void dpe_run_tool_methods(void);
/** Hide a secret in a text as long as the table is for, ask for it with --table or --method, and
 * with the model unchanged, unless the table's evidence says what that finds, and print the
 * answers. */
dpe_status dpe_run_tool_show(const struct dpe_runner *run, struct dpe_error *err);
/** What other runtimes compute from the configuration of --model, and apply of --table, for a text
 * of
 *  --length tokens. *agree: all the same, and each runs such a text. */
dpe_status dpe_run_tool_runtimes(const struct dpe_run_args *args, bool *agree,
                                 struct dpe_error *err);
/** Describe the model. */
dpe_status dpe_run_tool_info(const struct dpe_runner *run, struct dpe_error *err);
/** What --nll measured: sums over n windows of `context` tokens, of which `scored` each. */
struct nll_result {
    size_t tokens;
    int64_t context, scored, n;
    double *sum; /**< [n] nats */
    double seconds;
};
dpe_status dpe_run_tool_print_nll(const struct dpe_runner *run, const struct nll_result *result,
                                  struct dpe_error *err);
/** Describe a plan made for a length; `entry` of a table that it is of, or why it is not the
 * method's; else "". */
void dpe_run_tool_show_plan(const struct dpe_runner *run, const struct dpe_plan *plan,
                            int64_t length, const char *entry);
/** The same as a table of one entry in its JSON form. DPE_NO_MEMORY, and as dpe_table_for_plan. */
dpe_status dpe_run_tool_plan_json(const struct dpe_runner *run, const struct dpe_plan *plan,
                                  int64_t length, struct dpe_error *err);

#endif
