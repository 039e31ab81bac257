/**
 * @file input.h
 * Input tables of a report, opened and read.
 */
#ifndef DPE_INPUT_H
#define DPE_INPUT_H

#include "engine/base/base.h"
#include "outputs/datasets/datasets.h"
#include "outputs/h5/h5.h"
#include "outputs/report/draw/page.h"
#include "outputs/rows/rows.h"

/** One input table. */
struct input {
    const char *path;
    char *name; /**< last part of the path, cleaned */
    struct dpe_h5 *table;
    char *kind;        /**< /identity: detect, norms, eval, table */
    char *fingerprint; /**< of the model, NULL = unknown */
    struct dpe_identity identity;
};
/** Open; names the kind and the model. */
dpe_status dpe_input_open(struct input *input, const char *path, struct dpe_error *err);
void dpe_input_close(struct input *input);

/** Numbers of a dataset with its shape. */
struct numbers {
    double *values; /**< owned */
    int rank;
    int64_t dims[5];
    size_t n;
};
/** Read as double; DPE_OK with values NULL and n = 0 when the dataset is not there. `dims` [rank]
 *  is the shape expected, −1 for any length; another shape is DPE_BAD_DATA. Free with numbers_free.
 */
dpe_status dpe_input_read_numbers(const struct input *input, const char *path, int rank,
                                  const int64_t *dims, struct numbers *numbers,
                                  struct dpe_error *err);
void dpe_input_numbers_free(struct numbers *numbers);
/** Several of them in order; a `required` one that is not there is DPE_BAD_DATA. */
struct wanted {
    const char *path;
    int rank;
    int64_t dims[5];
    bool required;
    struct numbers *into;
};
dpe_status dpe_input_read_wanted(const struct input *input, const struct wanted *wanted, size_t n,
                                 struct dpe_error *err);
/** dpe_datasets_get from an input: errors name the file, and texts are cleaned for a page. */
dpe_status dpe_input_get(const struct input *input, const struct dpe_dataset_kind *kind, void *result,
                         const char *folder, const char *names, struct dpe_error *err);
/** A text attribute, owned; NULL when it is not there (or memory is out: nothing is lost by it). */
char *dpe_input_read_words(const struct input *input, const char *object, const char *name);
/** A whole-number attribute, `otherwise` when it is not there. */
int64_t dpe_input_read_whole(const struct input *input, const char *object, const char *name,
                             int64_t otherwise);

/** A list of cleaned strings; zero-initialise, free with names_free. */
struct names {
    char **names;
    size_t n;
};
/** Absent: n = 0. `expected` −1: any number; another is DPE_BAD_DATA. */
dpe_status dpe_input_read_names(const struct input *input, const char *path, int64_t expected,
                                struct names *names, struct dpe_error *err);
void dpe_input_names_free(struct names *names);

/** The inputs and the document being written. */
struct report {
    const char *const *paths;
    struct input *inputs;
    size_t n;
    double top_k; /**< count, minus a share, 0 = by the tables */
    struct document document;
};

/** A note that a run is unfinished, if it is. */
void dpe_input_add_unfinished(struct report *report, const struct input *input);
/** An id that is unique among figures and sheets: `base`, with a number where several inputs have
 *  the dataset `has`. Owned; NULL without memory. */
char *dpe_input_report_id(const struct report *report, const struct input *input, const char *has,
                          const char *base);
/** A title; where several inputs have the dataset `has`, followed by what this one differs in ("seed
 *  1000"), or by the file's name when nothing tells them apart. Owned. */
char *dpe_input_section_title(const struct report *report, const struct input *input,
                              const char *has, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
