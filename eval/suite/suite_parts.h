/**
 * @file suite_parts.h
 * What the files of suites share. Used inside eval/ only.
 */
#ifndef DPE_SUITE_PARTS_H
#define DPE_SUITE_PARTS_H

#include "engine/base/base.h"
#include "eval/chat/chat.h"
#include "eval/ruler/ruler.h"
#include "eval/score/score.h"
#include "eval/suite/suite.h"
#include "eval/task/prompt.h"
#include "eval/task/task.h"

/** Add a task, which it takes, on failure too, as "LABEL-LENGTH", with at most n_samples. */
dpe_status dpe_suite_add(struct dpe_suite *suite, const char *label, const char *category,
                         int64_t length, int64_t n_samples, struct dpe_task *task,
                         struct dpe_error *err);
/** The same of the questions of a source. */
dpe_status dpe_suite_add_questions(struct dpe_suite *suite, const struct dpe_score_task *of,
                                   const struct dpe_suite_options *options, int64_t length,
                                   struct dpe_source *source, struct dpe_error *err);

/* `suite` has its name and nothing else, `err` is not NULL. */
dpe_suite_opener dpe_suite_open_niah, dpe_suite_open_grid, dpe_suite_open_ppl, dpe_suite_open_ruler,
    dpe_suite_open_ruler2, dpe_suite_open_infinitebench;

/* Official data of RULER and InfiniteBench: JSON lines, as sources of questions. */

/** What the sources of a folder share. They borrow it. */
struct dpe_official {
    const char *folder; /**< holds TASK.jsonl, TASK/validation.jsonl or TASK/test.jsonl */
    const struct dpe_tokenizer *tokenizer;
    bool skip_bad;
    struct dpe_chat_frame frame;
    char chat_hash[65];         /**< of the frame, "" without a template */
    struct dpe_phrases phrases; /**< infinitebench */
};
/** Of the options' data, tokenizer, skip_bad and templates. `fields` NULL: no phrases. */
dpe_status dpe_official_open(const struct dpe_suite_options *options,
                             const struct dpe_phrase_field *fields, size_t n_fields,
                             struct dpe_official **official, struct dpe_error *err);
/** NULL is allowed. */
void dpe_official_close(struct dpe_official *official);
DPE_SCOPED_HANDLE(struct dpe_official *, dpe_official_close)

/** A task at one length. */
struct dpe_official_task {
    const struct dpe_score_task *task;
    int64_t length;                    /**< tokens, prompt and answer together */
    int64_t room;                      /**< infinitebench, ruler2: tokens to generate */
    const struct dpe_ruler_kind *kind; /**< ruler: gives the room */
    dpe_scorer score;
};

/** Facts about a task's file. Zero-initialise. */
struct dpe_official_file {
    char hash[65];    /**< SHA-256 */
    int64_t left_out; /**< lines that are not samples */
    char first[1024]; /**< what is wrong with the first of them: file, line, reason */
};

/** Sample i is the i-th good line. All lines are looked at here: one that is not a JSON object,
 * lacks a field or has it of the wrong type is DPE_BAD_DATA (file, line, reason), or with skip_bad
 * left out and counted in `file`; none left is DPE_BAD_DATA, a missing file DPE_NO_INPUT. A RULER
 *  prompt (input and answer_prefix) that does not fit is an error when its sample is made; an
 *  InfiniteBench prompt keeps the first and the last half of the tokens that fit. Specials written
 *  in a prompt are tokens, as the official pipelines have it. A vocabulary that cannot write digits
 *  is DPE_BAD_DATA for tasks whose answers have them. */
dpe_status dpe_official_source(const struct dpe_official *official,
                               const struct dpe_official_task *task, struct dpe_source *source,
                               struct dpe_official_file *file, struct dpe_error *err);

#endif
