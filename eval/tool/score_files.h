/**
 * @file score_files.h
 * Inside of dpe-eval: files of predictions, found in the layouts in which they are published.
 */
#ifndef DPE_SCORE_FILES_H
#define DPE_SCORE_FILES_H

#include "engine/tool/tool.h"
#include "eval/score/score.h"

/** A file, its task, and whose predictions they are: the folders on the way to it but for the one
 *  that has the task's name. */
struct score_found {
    char *path, *label; /**< owned; label "" in the folder itself */
    const struct dpe_score_task *task;
    size_t rest; /**< bytes that its name has after the task's */
    bool extra;
};
struct score_files {
    struct score_found *at; /**< [n] by label, then path */
    size_t n;
};

/** All .jsonl files below a folder: FOLDER/…TASK….jsonl, FOLDER/MODEL/…TASK….jsonl and
 *  FOLDER/TASK/MODEL/….jsonl. The task is `only`, else the one in the file's name, else the one
 * that a folder on the way has as its name. Of several files of one task in one place those with
 * the shortest rest after the task's name are kept; the others are named in a warning. A file
 * without a task is DPE_BAD_DATA, or with skip_bad left out with a warning; no file is
 * DPE_NO_INPUT, or DPE_BAD_DATA when some were left out. Free with dpe_eval_free_predictions, also
 * after failures. */
dpe_status dpe_eval_find_predictions(const char *suite, const struct dpe_score_task *only,
                                     const char *folder, bool skip_bad, struct score_files *files,
                                     struct dpe_error *err);
void dpe_eval_free_predictions(struct score_files *files);
/** The task of that name, or NULL. */
const struct dpe_score_task *dpe_eval_task_named(const char *suite, const char *name);
/** Whether a name is that of one part of several, "…-3.jsonl". */
bool dpe_eval_is_part(const char *file);

#endif
