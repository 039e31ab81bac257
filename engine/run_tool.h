/**
 * @file run_tool.h
 * Inside of dpe-run: what its files share. No library.
 */
#ifndef DPE_RUN_TOOL_H
#define DPE_RUN_TOOL_H

#include "job.h"

enum mode { MODE_GENERATE, MODE_TOKENIZE, MODE_NLL, MODE_INFO, MODE_SHOW_PLAN };

/** The command line. */
struct arguments {
    struct dpe_tool_options tool;
    enum mode mode;
    const char *model, *prompt, *prompt_file, *nll_file, *method, *table, *special;
    int64_t context, max_new, trained_length, length, chunk;
    bool score_all, raw, other_model;
};

/** A model, its tokenizer when one is needed, and the lengths everything is computed from. */
struct run {
    const struct arguments *args;
    struct dpe_model *model;
    struct dpe_tokenizer *tokenizer;
    int64_t trained_length;
    double deadline;
};

/** The plan of --method or --table for a length; owned by the caller. */
dpe_status run_make_plan(const struct run *run, int64_t length, struct dpe_plan *plan,
                         struct dpe_error *err);
/** Describe the model. */
void run_info(const struct run *run);
/** Describe the plan. */
dpe_status run_show_plan(const struct run *run, struct dpe_error *err);

#endif
