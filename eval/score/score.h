/**
 * @file score.h
 * Scoring rules of RULER, InfiniteBench and the needle task, and predictions of other programs.
 * Used inside eval/ only.
 *
 * A rule gives one sample's score, 0 … 1, the very number that the official Python script computes
 * (eval/README.md lists the few inputs on which it differs). Texts are UTF-8 C strings. NaN: no
 * memory.
 */
#ifndef DPE_SCORE_H
#define DPE_SCORE_H

#include "engine/base/base.h"
#include "eval/score/jsonl.h"

typedef double dpe_scoring(const char *prediction, char *const *references, size_t n);
typedef dpe_scoring *dpe_rule;

/* RULER: control characters become newlines, white space at both ends goes. */
/** Share of the references that the prediction holds, case-insensitive. n ≥ 1. */
double dpe_score_all(const char *prediction, char *const *references, size_t n);
/** 1 when it holds any of them. */
double dpe_score_part(const char *prediction, char *const *references, size_t n);

/* RULER v2: of a reference that the prediction does not hold, 1 less the share of its words that
 * would have to change to make one of the other, at least 0. */
/** Mean over the references. */
double dpe_score_near_all(const char *prediction, char *const *references, size_t n);
/** The same of what follows the last empty line. */
double dpe_score_near_last(const char *prediction, char *const *references, size_t n);
/** Best over the references, documents that were copied left out. */
double dpe_score_near_part(const char *prediction, char *const *references, size_t n);
/** 1 where the letter in the last \boxed{}, else after the last "Answer:", is the first reference.
 */
double dpe_score_multichoice(const char *prediction, char *const *references, size_t n);

/* InfiniteBench, in both sets. */
/** Best token F1 over the references, normalised as for SQuAD. */
double dpe_score_f1(const char *prediction, char *const *references, size_t n);
/** The first run of ASCII digits is the first reference. */
double dpe_score_integer(const char *prediction, char *const *references, size_t n);
/** The first reference is a word of the prediction, ASCII punctuation taken as spaces. */
double dpe_score_word(const char *prediction, char *const *references, size_t n);
/* The set "official". References of choice and debug are text and letter. */
dpe_scoring dpe_score_choice, dpe_score_dialogue, dpe_score_debug, dpe_score_number;
/* The set "string", looser. */
dpe_scoring dpe_score_choice_string, dpe_score_dialogue_string, dpe_score_debug_string,
    dpe_score_number_string;

/** What the references of a task must be. */
enum dpe_references {
    DPE_REFERENCES_TEXTS,  /**< strings or numbers, one or a list */
    DPE_REFERENCES_PAIR,   /**< a list of two strings or more: text, letter */
    DPE_REFERENCES_NUMBER, /**< a number, or a list that begins with one */
};

/** Which fields a benchmark's files have, and which of two is preferred. */
enum dpe_record_format {
    DPE_RECORD_RULER,         /**< input, outputs; predictions in pred */
    DPE_RECORD_INFINITEBENCH, /**< context, input, answer; predictions in prediction */
    DPE_RECORD_RULER2,        /**< question, expected_answer; predictions in generation */
};

/** A task that can be scored. */
struct dpe_score_task {
    const char *suite, *name, *category; /**< category "" where the suite has none */
    enum dpe_record_format format;
    enum dpe_references references;
    dpe_rule rule;              /**< the suite's own */
    const char *scorer, *other; /**< names of the rule and of the looser one, "" when none */
    dpe_rule other_rule;        /**< NULL when `other` is "" */
    const char *later;          /**< name of a third set, of a later official script; NULL: none */
    dpe_rule later_rule;
};
/** Task i of a suite in its customary order; NULL after the last one and for unknown suites. */
const struct dpe_score_task *dpe_score_task(const char *suite, size_t i);
/** The rule of a task in a set of rules by name, and that name as it is kept: the suite's own (NULL
 *  too), the looser one, and of infinitebench "official-2024-08". InfiniteBench's released script
 *  changed its rule of En.Dia on 2024-08-08 (commit 214808d): any label in the upper-cased text,
 * which is this set; "official" is the script of June 2024 (88b3daa): the first label among the
 * upper-cased words. All other tasks are the same in both. NULL for a set that the suite does not
 * have. */
dpe_rule dpe_score_rule(const struct dpe_score_task *task, const char *scorer, const char **name);
/** The sets of rules that a task's suite has, for messages: "all and part". Returns `text`. */
const char *dpe_score_sets(const struct dpe_score_task *task, char text[80]);
/** The task whose name stands in a file's name (between characters that are
 * neither letters nor digits; the longest one), NULL if the name holds none. */
const struct dpe_score_task *dpe_score_task_of_file(const char *suite, const char *path);

struct dpe_score_options {
    const struct dpe_score_task *task;
    dpe_rule rule; /**< of the task, or chosen by name */
    bool skip_bad;
    int threads; /**< 0: OpenMP's default */
};

/** What a file's lines came to. Sums are over `scored` lines in their order. */
struct dpe_score_sums {
    int64_t scored;    /**< lines with a score; empty predictions are among them */
    int64_t empty;     /**< empty predictions (score 0) */
    int64_t no_object; /**< lines that are not JSON objects: left out */
    int64_t bad;       /**< objects that lack a field or have one of the wrong type: left out */
    double sum;
    int64_t at_least_half; /**< lines with a score ≥ 0.5 */
    char first[512];       /**< the first line that was left out or empty, in words */
};

/** Add a file's lines to `sums` (zeroed before the first file). Without skip_bad the first line
 *  that is empty, bad or not an object is DPE_BAD_DATA: file, line, reason. A file without any
 * scored line is DPE_BAD_DATA. */
dpe_status dpe_score_file(const char *path, const struct dpe_score_options *options,
                          struct dpe_score_sums *sums, struct dpe_error *err);

#endif
