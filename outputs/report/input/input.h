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
#include "outputs/rows/interval.h"
#include "outputs/rows/rows.h"

/** One input table; what it owns is the report's. */
struct input {
    const char *path;
    const char *name; /**< last part of the path, cleaned */
    struct dpe_h5 *table;
    const char *kind;        /**< /identity: detect, norms, eval, table */
    const char *fingerprint; /**< of the model, NULL = unknown */
    struct dpe_identity identity;
    struct detection *detection; /**< of a detection, once it is read (report_detect.h) */
    struct suite *suites;        /**< of a comparison, once they are read (report_eval.h) */
    size_t n_suites;
    bool has_suites;
};

/** The inputs and the document being written. The first failure is kept: what reads and makes gives
 * NULL from then on, and the page is not written. */
struct report {
    struct input *inputs;
    size_t n;
    double top_k;         /**< count, minus a share, 0 = by the tables */
    const char *runtimes; /**< a folder, config.json or GGUF file that runtimes read, or NULL */
    int64_t length;       /**< of the text that they read, 0 = the model's longest */
    struct document document;
    /** What is being written about. Ids of its sheets are PREFIX-ID-SUFFIX (without what is ""),
     * with a number behind where several inputs have the dataset `has`. */
    struct subject {
        const struct input *input;
        const char *has;
        char prefix[96], suffix[32];
    } about;
    dpe_status status;     /**< of the first failure */
    struct dpe_error *err; /**< its message */
    struct kept {
        void *bytes;
        const struct dpe_dataset_kind *kind; /**< of a result; NULL: of bytes alone */
    } * kept;                                /**< freed with the report */
    size_t n_kept;
};
/** Keep a failure, unless there is one. Whether there is none. */
bool dpe_report_ok(struct report *report, dpe_status status);
/** Keep that memory is out. */
void dpe_report_no_memory(struct report *report);
/** Memory and texts that live as long as the report; zeros, and NULL after a failure. */
void *dpe_report_alloc(struct report *report, size_t n, size_t size);
char *dpe_report_text(struct report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** dpe_draw_clean_text; of NULL it is NULL. */
char *dpe_report_clean(struct report *report, const char *text, size_t columns);
/** Close the inputs and free all that the report has. */
void dpe_report_free(struct report *report);

/** Open report->inputs[report->n] and count it. */
void dpe_input_open(struct report *report, const char *path);
/** Whether it is a table that runtimes load; a detection of key pairs has a mask as well. */
bool dpe_input_has_table(const struct input *input);
/** What a report needs of /table in any table that has one; NULL: not there. */
struct table_part {
    int64_t n[DPE_DATASET_AXES];                       /**< enum table_axis */
    double *effective_length, *scale_factor;           /**< [group] */
    double *group_edge;                                /**< [edge] */
    double *inv_freq;                                  /**< [pair] */
    double *length;                                    /**< [entry] */
    double *evaluated_length, *trained_length, *top_k; /**< one number */
};
enum table_axis { TABLE_GROUP, TABLE_EDGE, TABLE_PAIR, TABLE_ENTRY };
/** Those of `names` ("top_k group_edge"); NULL after a failure. */
const struct table_part *dpe_input_table(struct report *report, const struct input *input,
                                         const char *names);
/** dpe_datasets_get: a result of the kind, which has at most DPE_INPUT_WORDS members. Texts are
 * cleaned for a page. NULL after a failure. */
void *dpe_input_get(struct report *report, const struct input *input,
                    const struct dpe_dataset_kind *kind, const char *folder, const char *names);
enum { DPE_INPUT_WORDS = 64 };
/** A text attribute, or NULL where it is not there. */
const char *dpe_input_words(struct report *report, const struct input *input, const char *object,
                            const char *name);
/** Whether it is there and this. */
bool dpe_input_says(const struct input *input, const char *object, const char *name,
                    const char *text);
/** A whole-number attribute, `otherwise` when it is not there. */
int64_t dpe_input_read_whole(const struct input *input, const char *object, const char *name,
                             int64_t otherwise);
/** Cleaned strings, *n of them; none where they are not there. `expected` −1: any number; another
 * is DPE_BAD_DATA. */
char **dpe_input_names(struct report *report, const struct input *input, const char *path,
                       int64_t expected, size_t *n);

/** A part of the page. */
struct section {
    /** Of the whole report; or, with `has`, of each input as the subject that has that dataset and
     * not `unless`: */
    void (*write)(struct report *report);
    const char *has, *unless;
    /** or, under a title, a result of a kind: the datasets `names` of a folder. */
    const char *title, *folder, *names;
    const struct dpe_dataset_kind *kind;
    void (*show)(struct report *report, const void *result);
};
void dpe_report_write_section(struct report *report, const struct section *section);
/** A section's title; where several inputs have the subject's dataset, followed by what this one
 * differs in ("seed 1000"), or by the file's name when nothing tells them apart. */
void dpe_report_section(struct report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** A note that the subject's run is unfinished, if it is. */
void dpe_report_unfinished(struct report *report);
/** A paragraph. */
void dpe_report_say(struct report *report, enum block_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** The lines of a text attribute of the subject, if it has one, as paragraphs of sentences: of the
 * kind, those that are indented as BLOCK_TEXT. */
void dpe_report_lines(struct report *report, enum block_kind kind, const char *object,
                      const char *name);
/** A sheet (page.h) about the subject, to be filled and then added alone or as a figure. */
struct sheet *dpe_report_sheet(const struct report *report, const char *id, const char *columns,
                               const char *title, ...) __attribute__((format(printf, 4, 5)));
void dpe_report_add(struct report *report, struct sheet *sheet);
/** A figure of a sheet's rows, with its caption. Returns what is painted, for what no plot paints
 * (NULL); NULL without memory. */
struct figure *dpe_report_figure(struct report *report, struct sheet *sheet,
                                 const struct plot *plot, const char *caption, ...)
    __attribute__((format(printf, 4, 5)));
/** value × scale with its interval. */
static inline struct sheet_cell dpe_scaled_cell(const struct dpe_interval *value, double scale)
{
    return dpe_interval_cell(scale * value->mean, scale * value->low, scale * value->high);
}

#endif
