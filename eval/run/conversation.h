/**
 * @file conversation.h
 * A model that answers on standard output: what dpe-run is asked for, opened, and its
 * conversations, which dpe-ask has too.
 */
#ifndef DPE_CONVERSATION_H
#define DPE_CONVERSATION_H

#include "engine/tokenizer/tokenizer.h"
#include "outputs/job/job.h"

enum dpe_run_mode {
    MODE_GENERATE,
    MODE_TOKENIZE,
    MODE_NLL,
    MODE_INFO,
    MODE_SHOW,
    MODE_SHOW_PLAN,
    MODE_RUNTIMES
};

/** The command line; NULL or 0: not given. */
struct dpe_run_args {
    struct dpe_tool_options tool;
    enum dpe_run_mode mode;
    const char *model, *prompt, *prompt_file, *prompt_cache, *nll_file, *method, *table;
    bool score_all, score_given;
    enum dpe_special_policy special;
    bool special_given;
    int64_t context, max_new, trained_length, length, chunk;
    const char *runtimes; /**< which are asked */
    const char *corpus;   /**< --show: where the text comes from */
    int64_t seed;         /**< --show: which text; of a temperature: which draws */
    bool seed_given;
    double temperature, top_p; /**< of an answer; 0 and 1: the likeliest token, always */
    bool temperature_given, top_p_given;
    bool raw, other_model;
    bool chat; /**< generate: answer the messages of a conversation */
    const char *system, *chat_template, *template_vars; /**< of a conversation */
    const struct dpe_text *document; /**< stands before its first message; NULL: none */
    int64_t made_for; /**< tokens that the plan of that message is for, beyond the trained length */
    const char *told; /**< after its first answer: what was measured; NULL: nothing is said */
    bool json;
};

/** A model, its tokenizer when one is needed, and the lengths everything is computed from. */
struct dpe_runner {
    const struct dpe_run_args *args;
    struct dpe_model *model;
    struct dpe_tokenizer *tokenizer;
    const char *device; /**< that runs the model */
    int64_t trained_length;
    double deadline;
    const struct dpe_sampling *sampling; /**< of answers; NULL: the likeliest token, always */
};

/** A session for prompts and answers of up to `capacity` tokens, under the plan of --method or
 *  --table for a text of `length` tokens (beyond the trained length --length replaces it). */
dpe_status dpe_run_tool_session(const struct dpe_runner *run, int64_t capacity, int64_t length,
                                struct dpe_session **session, struct dpe_error *err);
/** Open what the arguments ask for. Close it, also after an error. */
dpe_status dpe_run_tool_open(struct dpe_runner *run, const struct dpe_run_args *args,
                             struct dpe_error *err);
void dpe_run_tool_close(struct dpe_runner *run);
/** --max-new, or where that is 0 what stands for it: room for an answer, or to go on with a text.
 */
static inline int64_t dpe_run_tool_room(int64_t max_new, bool answers)
{
    return max_new > 0 ? max_new : answers ? 512 : 64;
}
/** The template of the conversation, NULL without one, once --system and --prompt are found to go
 *  with it: for those who ask before a longer work. The caller closes it, also after an error.
 *  DPE_NO_INPUT where --chat or --system lacks a template, DPE_BAD_DATA where a text spells a
 * special token, and as dpe_chat_open. */
dpe_status dpe_run_tool_template(const struct dpe_runner *run, struct dpe_chat **template,
                                 struct dpe_error *err);
/** Answer the messages of a conversation: one of --prompt or --prompt-file, or the lines of
 *  standard input, one after another; about a document, with args->chat, both. A model without a
 *  chat template goes on with a document and the prompt, and DPE_NO_INPUT where args->chat asks for
 *  more. */
dpe_status dpe_run_tool_chat(const struct dpe_runner *run, struct dpe_error *err);

#endif
