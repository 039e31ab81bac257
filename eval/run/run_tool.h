/**
 * @file run_tool.h
 * Inside of dpe-run: what its files share. No library.
 */
#ifndef DPE_RUN_TOOL_H
#define DPE_RUN_TOOL_H

#include "engine/tokenizer/tokenizer.h"
#include "outputs/job/job.h"

enum mode { MODE_GENERATE, MODE_TOKENIZE, MODE_NLL, MODE_INFO, MODE_SHOW_PLAN };

/** The command line; NULL or 0: not given. */
struct arguments {
    struct dpe_tool_options tool;
    enum mode mode;
    const char *model, *prompt, *prompt_file, *nll_file, *method, *table, *score;
    enum dpe_special_policy special;
    bool special_given;
    int64_t context, max_new, trained_length, length, chunk;
    bool raw, other_model;
    enum dpe_result_format result;
};

/** A model, its tokenizer when one is needed, and the lengths everything is computed from. */
struct run {
    const struct arguments *args;
    struct dpe_model *model;
    struct dpe_tokenizer *tokenizer;
    int64_t trained_length;
    double deadline;
};

/** The position methods and their keys, as a table for people. */
void dpe_run_tool_methods(void);
/** Describe the model. */
dpe_status dpe_run_tool_info(const struct run *run, struct dpe_error *err);
/** What --nll measured: sums over n windows of `context` tokens, of which `scored` each. */
struct nll_result {
    size_t tokens;
    int64_t context, scored, n;
    double *sum; /**< [n] nats */
    double seconds;
};
dpe_status dpe_run_tool_print_nll(const struct run *run, const struct nll_result *result,
                                  struct dpe_error *err);
/** Describe a plan made for a length; `entry` of a table that it is of, "" without one. */
void dpe_run_tool_show_plan(const struct run *run, const struct dpe_plan *plan, int64_t length,
                            const char *entry);

#endif
