/**
 * @file report_parts.h
 * A report: its input tables, opened and read, and what is written of them.
 */
#ifndef DPE_REPORT_PARTS_H
#define DPE_REPORT_PARTS_H

#include "engine/base/base.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"
#include "outputs/page/page.h"
#include "outputs/read/read.h"
#include "outputs/words/words.h"

/** One input table; what it owns is the report's. */
struct dpe_report_input {
    const char *path;
    const char *name; /**< last part of the path, cleaned */
    struct dpe_h5 *table;
    struct dpe_table *dpe; /**< what runtimes load of it: of an export, or a finished detection; or
                              NULL */
    const char *kind;      /**< /identity: detect, norms, eval, table */
    const char *fingerprint; /**< of the model, NULL = unknown */
    struct dpe_identity identity;
    struct dpe_report_detection *detection; /**< of a detection, once it is read */
    struct dpe_report_suite *suites;        /**< of a comparison, once they are read */
    size_t n_suites;
    bool has_suites;
};

/** The inputs and the page being written. The first failure is kept: what reads gives NULL from
 * then on, and the page is not written. */
struct dpe_report {
    struct dpe_report_input *inputs;
    size_t n;
    double top_k;         /**< count, minus a share, 0 = by the tables */
    const char *runtimes; /**< a folder, config.json or GGUF file that runtimes read, or NULL */
    int64_t length;       /**< of the text that they read, 0 = the model's longest */
    struct dpe_page page;
    dpe_status status;     /**< of the first failure */
    struct dpe_error *err; /**< its message */
    /** What is being written about; `has`: the dataset that makes an input one of its kind. */
    struct dpe_report_subject {
        const struct dpe_report_input *input;
        const char *has;
    } about;
    struct dpe_report_read {
        const struct dpe_report_read *before;
        const struct dpe_dataset_kind *kind;
        void *result;
    } * read; /**< results, the last one first; freed with the report */
};
/** Close the inputs and free all that the report has. */
void dpe_report_free(struct dpe_report *report);
/** Keep a failure, unless there is one. Whether there is none. */
bool dpe_report_ok(struct dpe_report *report, dpe_status status);
/** From now on the page is about this input (NULL: about all). */
void dpe_report_about(struct dpe_report *report, const struct dpe_report_input *input,
                      const char *has);

/** Open report->inputs[report->n] and count it. */
void dpe_input_open(struct dpe_report *report, const char *path);
/** The folder of the model, as the first table that knows it was made with. */
const char *dpe_report_model(struct dpe_report *report, const char *otherwise);
/** Whether it is an exported table; a detection of key pairs has a mask as well. */
bool dpe_input_has_table(const struct dpe_report_input *input);
/** dpe_datasets_get: a result of the kind, which has at most DPE_INPUT_WORDS members. Texts are
 * cleaned for a page. NULL after a failure. */
void *dpe_input_get(struct dpe_report *report, const struct dpe_report_input *input,
                    const struct dpe_dataset_kind *kind, const char *folder, const char *names);
enum { DPE_INPUT_WORDS = 64 };
/** A text attribute, or NULL where it is not there. */
const char *dpe_input_words(struct dpe_report *report, const struct dpe_report_input *input,
                            const char *object, const char *name);
/** Whether it is there and this. */
bool dpe_input_says(const struct dpe_report_input *input, const char *object, const char *name,
                    const char *text);
/** A whole-number attribute, `otherwise` when it is not there. */
int64_t dpe_input_read_whole(const struct dpe_report_input *input, const char *object,
                             const char *name, int64_t otherwise);
/** Cleaned strings, *n of them; none where they are not there. */
char **dpe_input_names(struct dpe_report *report, const struct dpe_report_input *input,
                       const char *path, size_t *n);

typedef void dpe_report_part(struct dpe_report *report);
/** A part of the page. */
struct dpe_section {
    /** Of the whole report; or, with `has`, of each input as the subject that has that dataset and
     * not `unless`: */
    dpe_report_part *write;
    const char *has, *unless;
};
void dpe_report_write_section(struct dpe_report *report, const struct dpe_section *section);

/* ------------------------------------------------------------------------------------- sections */

/** What a table is worth in a few sentences, how it is used, and a figure; nothing when no input
 * compares a table. */
dpe_report_part dpe_comparison_headline;
/** Of the subject, a comparison: all suites in one table, and suite by suite. */
dpe_report_part dpe_comparison_glance, dpe_comparison_section, dpe_comparison_ablations;
/** Of the subject, results of one kind each. */
dpe_report_part dpe_sections_tune, dpe_sections_grid, dpe_sections_kld;
/** Of the subject, a detection: how the chosen lengths score, and which they are; and the maps. */
dpe_report_part dpe_detection_result, dpe_detection_section;
/** Of the subject, a profile. */
dpe_report_part dpe_sections_norms;
/** Of all inputs. What other runtimes compute is from report->runtimes. */
dpe_report_part dpe_sections_tables, dpe_sections_runtimes, dpe_sections_time,
    dpe_sections_provenance;

/** The dataset that makes an input a detection. */
#define DETECTION "/detect/plan"

/* ---------------------------------------------------------------------------------- comparisons */

struct dpe_report_suite {
    const struct dpe_report_input *input;
    const char *has; /**< the dataset that makes it one, "/eval/niah/mean" */
    struct dpe_suite_words of;
};
/** The suites of an input, *n of them, read once. */
const struct dpe_report_suite *
dpe_comparison_suites(struct dpe_report *report, const struct dpe_report_input *input, size_t *n);

#endif
