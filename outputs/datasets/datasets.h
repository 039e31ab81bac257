/**
 * @file datasets.h
 * Results as data. A kind of result is declared once, as a list of datasets that says where the
 * values of each lie in a struct. One loop writes them all, one reads them back into the same
 * struct, one makes rows of JSON and CSV of them, one frees them.
 *
 * A struct of results begins with `int64_t n[DPE_DATASET_AXES]`, the extents of its axes in the
 * order of the list. The members that the list names are pointers to arrays, of values or of
 * records.
 */
#ifndef DPE_DATASETS_H
#define DPE_DATASETS_H

#include <stddef.h>

#include "engine/base/base.h"
#include "engine/tool/result.h"
#include "outputs/h5/h5.h"

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

/** Write all of `result` into a folder ("/norms"). Errors as dpe_h5_put. */
dpe_status dpe_datasets_put(const struct dpe_dataset_kind *kind, const void *result,
                            const char *folder, struct dpe_h5 *table, struct dpe_error *err);
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
/** Call `each` with every string that dpe_datasets_get read; it may replace it. The first failure
 * ends it. */
dpe_status dpe_datasets_texts(const struct dpe_dataset_kind *kind, void *result,
                              dpe_status (*each)(void *user, char **text), void *user);
/** Make the arrays of the datasets of `names`, as long as their axes, all 0; of records one is
 * enough. DPE_NO_MEMORY. Free with dpe_datasets_drop, also after a failure. */
dpe_status dpe_datasets_make(const struct dpe_dataset_kind *kind, void *result, const char *names,
                             struct dpe_error *err);
/** Free those arrays; texts in them are not their own. */
void dpe_datasets_drop(const struct dpe_dataset_kind *kind, void *result, const char *names);
/** Free what dpe_datasets_get read; the arrays of a writer are its own. */
void dpe_datasets_free(const struct dpe_dataset_kind *kind, void *result);

#endif
