/**
 * @file kinds.h
 * Results as data. A kind of result is declared once, as a list of datasets that says where the
 * values of each lie in a struct. One loop writes them all, one reads them back into the same
 * struct, one makes rows of JSON and CSV of them, one frees them.
 *
 * A struct of results begins with `int64_t n[DPE_DATASET_AXES]`, the extents of its axes in the
 * order of the list. The members that the list names are pointers to arrays, of values or of
 * records.
 */
#ifndef DPE_KINDS_H
#define DPE_KINDS_H

#include <stddef.h>

#include "engine/base/base.h"
#include "engine/tool/result.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/interval.h"

enum { DPE_DATASET_AXES = 8 /**< of a kind, at most */ };

/** A dataset, and where its values are. */
struct dpe_dataset {
    const char
        *name; /**< below the folder; "/method": an axis of the whole file, which its writer puts */
    enum dpe_column_type type; /**< in memory and in the file; DPE_COL_STRING: char *, UTF-8 */
    const char *axes; /**< names of its axes, outermost first, "method task"; NULL: it is an axis */
    size_t array;     /**< where in the struct the pointer to its elements is; DPE_DATASET_COUNT */
    size_t stride,
        at; /**< bytes from one element to the next, and from its beginning to the value */
    const char *long_name, *units, *flag_meanings; /**< as in struct dpe_column; units NULL: those
                                                      of the kind's score */
    bool optional; /**< NULL in the struct (an axis that counts: extent 0): not written; not in the
                      file: stays NULL (of records as their first member; a double beside that is
                      NaN) */
};
/** In place of `array`: an axis that counts 0, 1, 2, …, of which only the extent is kept. */
#define DPE_DATASET_COUNT SIZE_MAX

/** Where values are: in an array that is a member of a struct, and in a member of the records of
 * one. */
#define DPE_IN_ARRAY(result, member)                                                               \
    .array = offsetof(result, member), .stride = sizeof *((result *)0)->member
#define DPE_IN_RECORDS(result, records, record, member)                                            \
    .array = offsetof(result, records), .stride = sizeof(record), .at = offsetof(record, member)

/** The axes come first, then datasets in the order in which they are written. */
struct dpe_dataset_kind {
    const struct dpe_dataset *datasets;
    size_t n;
    const char *score_units;
};

/** Write all of `result` into a folder ("/norms"). A failure is the table's (dpe_h5_failed). */
void dpe_datasets_put(const struct dpe_dataset_kind *kind, const void *result, const char *folder,
                      struct dpe_h5 *table);
/** Read the datasets of `names` ("mean sem"; their axes are read too; NULL: all; "-sample": all
 * but those along that axis) into a
 * zero-initialised struct, which is to be freed after failures too. DPE_BAD_DATA where one that is
 * not optional is not there, or has another shape than its axes (the error names the dataset and
 * both, not the file); else as dpe_h5_get. */
dpe_status dpe_datasets_get(const struct dpe_dataset_kind *kind, void *result, const char *folder,
                            const char *names, struct dpe_h5 *table, struct dpe_error *err);
/** Add to the row that was begun what is at index `i`, row-major, along `axes` ("/method task"):
 * the axes themselves, and every dataset along some of them, under its own name. What is not there
 * is null. */
void dpe_datasets_fields(const struct dpe_dataset_kind *kind, const void *result, const char *axes,
                         int64_t i, struct dpe_result *out);
/** A row of the list `list` for every index along `axes`. */
void dpe_datasets_rows(const struct dpe_dataset_kind *kind, const void *result, const char *axes,
                       const char *list, struct dpe_result *out);
/** Call `each` with every string that dpe_datasets_get read; it may replace it. */
void dpe_datasets_texts(const struct dpe_dataset_kind *kind, void *result,
                        void (*each)(char **text));
/** Make the arrays of the datasets of `names`, as long as their axes, all 0; of records one is
 * enough. DPE_NO_MEMORY. Free with dpe_datasets_drop, also after a failure. */
dpe_status dpe_datasets_make(const struct dpe_dataset_kind *kind, void *result, const char *names,
                             struct dpe_error *err);
/** Free those arrays; texts in them are not their own. */
void dpe_datasets_drop(const struct dpe_dataset_kind *kind, void *result, const char *names);
/** Free what dpe_datasets_get read; the arrays of a writer are its own. */
void dpe_datasets_free(const struct dpe_dataset_kind *kind, void *result);

/* ---------------------------------------------------------------------------------------- kinds */

/* The kinds of results that tables hold (outputs/SCHEMA.md), each a struct and its declaration.
 * Whoever makes one fills the struct; reports and other readers get the same struct back. A number
 * that is added stands here, and where it is computed. Of two kinds [0] is of shares, [1] of
 * perplexity, with differences in nats per token. */

/** A profile of key pairs, in /norms. Values that were not measured are NaN. */
struct dpe_norms_result {
    int64_t n[DPE_DATASET_AXES]; /**< enum dpe_norms_axis */
    int64_t *length;             /**< tokens of an excerpt */
    float *contribution;         /**< [length][sample][layer][head][pair] */
    double *mean, *sem;          /**< [layer][head][pair] */
    uint16_t *ranking;           /**< [layer][head][k] pairs by descending mean */
};
enum dpe_norms_axis {
    DPE_NORMS_LENGTH,
    DPE_NORMS_SAMPLE,
    DPE_NORMS_LAYER,
    DPE_NORMS_HEAD,
    DPE_NORMS_PAIR,
    DPE_NORMS_K
};
extern const struct dpe_dataset_kind dpe_norms_kind;

/** A method at one length that was tuned, in /tune. Recalls of fresh samples. */
struct dpe_tuned {
    const char *method, *chosen; /**< as it was given; the setting that its search chose */
    int64_t length;              /**< tokens */
    int64_t rows, samples;       /**< of the search: all, and those that the chosen setting has */
    struct dpe_interval plain;   /**< the method at its defaults */
    struct dpe_interval tuned;   /**< the chosen setting */
    struct dpe_difference gain;  /**< tuned − plain */
    struct dpe_difference ahead; /**< tuned − that of the first method */
};
struct dpe_tune_result {
    int64_t n[DPE_DATASET_AXES]; /**< n[0]: methods × lengths */
    struct dpe_tuned *tuned;
};
extern const struct dpe_dataset_kind dpe_tune_kind;

/** A setting that was tried, in /tune/setting. */
struct dpe_raced {
    const char *spec, *plan; /**< plan: key in /plans/plan */
    int64_t of;              /**< index of its method and length in /tune/method */
    int64_t samples;         /**< that it ran */
    int64_t dropped;         /**< samples after which it was dropped, −1: it read to the end */
    double mean;             /**< recall in the search */
};
struct dpe_race_result {
    int64_t n[DPE_DATASET_AXES]; /**< n[0]: settings */
    struct dpe_raced *raced;
};
extern const struct dpe_dataset_kind dpe_race_kind;

/** A suite of tasks under several methods, in /eval/SUITE; m = method, t = task, s = sample. */
struct dpe_suite_result {
    int64_t n[DPE_DATASET_AXES]; /**< enum dpe_suite_axis */
    const char *const *method;   /**< [m] as given, of the whole table */
    const char *const *task;     /**< [t] in /tasks/task */
    const char *const *task_label, *const *task_category;
    int64_t *task_length;              /**< [t] tokens */
    const char *const *plan;           /**< [m][t] key in /plans/plan */
    int64_t *memory;                   /**< [m][t] bytes of a session, −1: not known */
    double *score;                     /**< [m][t][s]; perplexity: nats per token */
    int32_t *status;                   /**< [m][t][s] enum dpe_row_status, −1: not run */
    double *half;                      /**< [m][t][s] at least half of the values were found */
    double *nll_sum;                   /**< [m][t][s] nats */
    int64_t *n_tokens, *n_words;       /**< [m][t][s] */
    struct dpe_interval *mean;         /**< [m][t] */
    struct dpe_interval *word;         /**< [m][t] perplexity by word */
    struct dpe_difference *difference; /**< [m][t] score − score of /eval@against */
    double *half_mean;                 /**< [m][t] */
    int64_t *position;                 /**< first position of each bucket, tokens */
    double *position_mean;             /**< [m][t][position] perplexity */
    const char *const *category;       /**< the last is of all */
    int64_t *category_length;          /**< tokens */
    double *category_mean;             /**< [m][category][category_length] */
};
enum dpe_suite_axis {
    DPE_SUITE_METHOD,
    DPE_SUITE_TASK,
    DPE_SUITE_SAMPLE,
    DPE_SUITE_POSITION,
    DPE_SUITE_CATEGORY,
    DPE_SUITE_CATEGORY_LENGTH
};
extern const struct dpe_dataset_kind dpe_suite_kinds[2];

/** One needle by depth and length, in /eval/niah_grid; m = method, d = depth, l = length. */
struct dpe_grid_result {
    int64_t n[DPE_DATASET_AXES]; /**< enum dpe_grid_axis */
    const char *const *method;
    const double *depth;       /**< 0: the beginning of the haystack */
    int64_t *length;           /**< tokens */
    const char *const *plan;   /**< [m][l] */
    double *score, *half;      /**< [m][d][l][s] */
    int32_t *status;           /**< [m][d][l][s] */
    struct dpe_interval *mean; /**< [m][d][l] */
};
enum dpe_grid_axis { DPE_GRID_METHOD, DPE_GRID_DEPTH, DPE_GRID_LENGTH, DPE_GRID_SAMPLE };
extern const struct dpe_dataset_kind dpe_grid_kind;

/** Scores of a detection's task, in /detect/TASK and /validate/TASK; c = [group][length], or [plan]
 * that was validated; s = sample. Of needles or of perplexity, the others are NULL. */
struct dpe_scores_result {
    int64_t n[DPE_DATASET_AXES]; /**< enum dpe_cells_axis, enum dpe_validated_axis */
    const int64_t *length;
    const char *const *plan;
    double *recall, *half;               /**< [c][s] of the needles */
    int64_t *prompt_tokens, *new_tokens; /**< [c][s] */
    uint64_t *seed;                      /**< [c][s] 0: not run */
    double *nll_sum;                     /**< [c][s] nats */
    int64_t *n_tokens, *n_words;         /**< [c][s] scored */
    int32_t *status;                     /**< [c][s] enum dpe_row_status, −1: not run */
    double *recall_mean, *perplexity;    /**< [c] */
    double *low, *high;                  /**< [c] 95 % */
    int64_t *n_valid;                    /**< [c] */
    const struct dpe_difference *kept;   /**< [plan] the kept plan − plan */
    const int64_t *needed;               /**< [plan] samples that would show that */
    const char *const *verdict;          /**< [plan] "better": the kept one; "same plan" */
    const int64_t *short_length;         /**< tokens, of texts that the model as it is read too, */
    const struct dpe_interval *shorter;  /**< [short_length] and what it finds there */
    int64_t *position;     /**< first of a range that ends before the next power of two, tokens */
    double *perplexity_at; /**< [c][position] of texts */
};
enum dpe_cells_axis { DPE_CELLS_GROUP, DPE_CELLS_LENGTH, DPE_CELLS_SAMPLE, DPE_CELLS_POSITION };
enum dpe_validated_axis {
    DPE_VALIDATED_PLAN,
    DPE_VALIDATED_SAMPLE,
    DPE_VALIDATED_POSITION,
    DPE_VALIDATED_SHORT
};
/** What the model as it is finds in the longest of the shorter texts, of which hardly more is
 * possible; NULL: not known. */
const struct dpe_interval *dpe_validated_possible(const struct dpe_scores_result *scores);
/** Of a sweep by needles, and by perplexity. */
extern const struct dpe_dataset_kind dpe_needle_cells_kind, dpe_book_cells_kind;
extern const struct dpe_dataset_kind dpe_validated_scores_kinds[2];

/** Row keys of the validated plans, in /validate. */
struct dpe_validated_result {
    int64_t n[DPE_DATASET_AXES]; /**< plans */
    const char *const *name;     /**< [plan], of the whole table */
    const char *const *plan;     /**< [plan] key in /plans/plan */
};
extern const struct dpe_dataset_kind dpe_validated_kind;

/** Ranks of the detecting lengths, in /detect of the task that decides, else in /detect/TASK. */
struct dpe_ranking_result {
    int64_t n[DPE_DATASET_AXES]; /**< the first two of enum dpe_cells_axis */
    const int64_t *length;
    int32_t *rank;        /**< [group][length] 1 = best, −1 = none */
    int64_t *effective;   /**< [group] length of rank 1, −1 = none */
    uint8_t *informative; /**< [group] whether its lengths differ beyond noise */
    double *p_value;      /**< [group] of: they do not */
};
extern const struct dpe_dataset_kind dpe_ranking_kind;

/** Which plan each cell of a sweep ran under, in /detect. */
struct dpe_cells_result {
    int64_t n[DPE_DATASET_AXES]; /**< the first two of enum dpe_cells_axis */
    const char **plan;           /**< [group][length] key in /plans/plan */
    double *scale;               /**< [length] of the moving group */
};
extern const struct dpe_dataset_kind dpe_cells_kind;

/** The lengths of a sweep's joint plan, in /select. */
struct dpe_choices_result {
    int64_t n[DPE_DATASET_AXES]; /**< groups */
    int64_t *selected;           /**< [group] −1 = none */
};
extern const struct dpe_dataset_kind dpe_choices_kind;

/** A plan that a search tried, in /search. */
struct dpe_searched_plan {
    const char *method, *plan; /**< as --method takes it; key in /plans/plan */
    const char *kind;          /**< dpe_detect_kind_names */
    int32_t heat;              /**< that it came in, from 0 */
    int64_t contexts;          /**< that it read */
    uint8_t table, plain;      /**< a table can hold it; it needs no adapter */
    double nll;                /**< nats per token of the guard's texts; NaN */
    struct dpe_interval value; /**< recall, or perplexity */
};
struct dpe_search_result {
    int64_t n[DPE_DATASET_AXES]; /**< tried */
    struct dpe_searched_plan *tried;
};
extern const struct dpe_dataset_kind dpe_search_kind;

/** What the steps of an ablation vary, in /ablate; a step is a method. */
struct dpe_ablate_result {
    int64_t n[DPE_DATASET_AXES];
    const char *const *method;
    const char *const *axis;
    double *value; /**< rank, pairs, or tokens of a window or scaled length */
    int64_t *k;    /**< pairs of each head that move, −1: those of the detection */
};
extern const struct dpe_dataset_kind dpe_ablate_kind;

/** How far what a model expects next is from what a base does, over tokens. KL(p‖q) of the base's
 * distribution p and the other's q. */
struct dpe_kld_cell {
    int64_t n;                           /**< tokens */
    struct dpe_interval mean;            /**< of KL(p‖q), nats; over texts */
    double median, p90, p99, p999, most; /**< quantiles of KL(p‖q) over tokens, nats */
    double same_top;                     /**< share of tokens whose likeliest is the same */
    double change_mean, change_rms;      /**< of q(token) − p(token) */
    struct dpe_interval ratio;           /**< perplexity, other / base */
};
/** In /kld; m = method. */
struct dpe_kld_result {
    int64_t n[DPE_DATASET_AXES]; /**< enum dpe_kld_axis */
    const char *const *method;   /**< [m] as given */
    int64_t *position;           /**< first position of each bucket, tokens */
    const char **plan;           /**< [m] key in /plans/plan */
    struct dpe_kld_cell *whole;  /**< [m] */
    struct dpe_kld_cell *at;     /**< [m][position] */
};
enum dpe_kld_axis { DPE_KLD_METHOD, DPE_KLD_POSITION };
extern const struct dpe_dataset_kind dpe_kld_kind;

#endif
