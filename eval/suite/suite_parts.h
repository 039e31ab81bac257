/**
 * @file suite_parts.h
 * What the files of suites share. Used inside eval/ only.
 */
#ifndef DPE_SUITE_PARTS_H
#define DPE_SUITE_PARTS_H

#include "engine/base/base.h"
#include "eval/suite/official.h"
#include "eval/suite/suite.h"
#include "eval/task/task.h"

/** Room for one more task: its label, category, length and n_samples are set, n_samples as
 * requested; the caller opens `task` under the name that is already in it and calls dpe_suite_keep.
 * NULL if memory is out or a name is too long (see `err`, never NULL here). */
struct dpe_suite_task *dpe_suite_add(struct dpe_suite *suite, const char *label,
                                     const char *category, int64_t length, int64_t n_samples,
                                     struct dpe_error *err);
/** The task of the last dpe_suite_add is open: count it, and run at most what it has. */
void dpe_suite_keep(struct dpe_suite *suite);
/** The same of the questions of a source, which the task takes over. */
dpe_status dpe_suite_keep_questions(struct dpe_suite *suite, struct dpe_suite_task *added,
                                    struct dpe_source *source,
                                    const struct dpe_tokenizer *tokenizer, struct dpe_error *err);

/* Openers: `suite` has its name and nothing else, `err` is not NULL. */
dpe_status dpe_suite_open_niah(const struct dpe_suite_options *options, struct dpe_suite *suite,
                               struct dpe_error *err);
dpe_status dpe_suite_open_grid(const struct dpe_suite_options *options, struct dpe_suite *suite,
                               struct dpe_error *err);
dpe_status dpe_suite_open_ppl(const struct dpe_suite_options *options, struct dpe_suite *suite,
                              struct dpe_error *err);

dpe_status dpe_suite_open_ruler(const struct dpe_suite_options *options, struct dpe_suite *suite,
                                struct dpe_error *err);
dpe_status dpe_suite_open_ruler2(const struct dpe_suite_options *options, struct dpe_suite *suite,
                                 struct dpe_error *err);
dpe_status dpe_suite_open_infinitebench(const struct dpe_suite_options *options,
                                        struct dpe_suite *suite, struct dpe_error *err);

/** RULER's tasks from official files. */
dpe_status dpe_suite_read_ruler(const struct dpe_suite_options *options, struct dpe_suite *suite,
                                struct dpe_error *err);

#endif
