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
/** Those of `names` ("top_k group_edge"); free with dpe_input_table_free after failures too. */
dpe_status dpe_input_table(const struct input *input, const char *names, struct table_part *part,
                           struct dpe_error *err);
void dpe_input_table_free(struct table_part *part);
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
    struct input *inputs;
    size_t n;
    double top_k; /**< count, minus a share, 0 = by the tables */
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
};

/** A part of the page. */
struct section {
    /** Of all inputs, or … */
    dpe_status (*whole)(struct report *report, struct dpe_error *err);
    /** … of each input that has a dataset and not `unless` (NULL: whatever it has), as the subject:
     */
    const char *has, *unless;
    dpe_status (*write)(struct report *report, const struct input *input, struct dpe_error *err);
    /** or, under a title, a result of a kind: the datasets `names` of a folder. */
    const char *title, *folder, *names;
    const struct dpe_dataset_kind *kind;
    void (*show)(struct report *report, const void *result);
};
dpe_status dpe_report_write_section(struct report *report, const struct section *section,
                                    struct dpe_error *err);
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
/** "44 % (30 to 59 %)" of a share, "2.31 (2.12 to 2.50)" of a perplexity; a single context has no
 * interval. */
void dpe_report_value(const struct dpe_interval *value, bool share, char text[96]);
/** value × scale with its interval. */
static inline struct sheet_cell dpe_scaled_cell(const struct dpe_interval *value, double scale)
{
    return dpe_interval_cell(scale * value->mean, scale * value->low, scale * value->high);
}

#endif
