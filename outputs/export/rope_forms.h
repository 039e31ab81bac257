/**
 * @file rope_forms.h
 * Forms that need no adapter: a table of frequencies is a factor for each pair and one for the
 * logits, which runtimes read as longrope.
 */
#ifndef DPE_ROPE_FORMS_H
#define DPE_ROPE_FORMS_H

#include <stdbool.h>

#include "engine/base/base.h"
#include "outputs/export/runtimes.h"
#include "outputs/table/dpe_table.h"

/* What a form that cannot switch loses on a text that the model was trained for. A table and a
 * method leave texts of at most the trained length as they are. A factor for each pair in a file
 * applies to every text where the runtime has no rule of its own, so the exporter measures what
 * that costs, where it finds the model's weights, and writes it into the file. */

/** Means over the tokens of one text of −ln p, in nats, rounded to 1e-3. */
struct dpe_short_text {
    int64_t tokens; /**< that were scored; 0: not measured */
    double own;     /**< the model as it is */
    double applied; /**< under the table, as runtimes apply it that know one set of factors */
    double factor;  /**< the model's own frequencies with the table's factor on the logits, as
                         transformers rotates texts of at most the trained length */
    char why[256];  /**< the reason why it was not measured; else "" */
};

/** Measure with the model (a folder, or a GGUF file) that the form is for, on the CPU with so many
 * threads (0: all that the process may use). A model without weights, without a tokenizer, or that
 * the table does not fit, is no failure: `why` says it. DPE_INCOMPLETE after a signal,
 * DPE_NO_MEMORY. */
dpe_status dpe_short_text_measure(const struct dpe_table_values *values, const char *model,
                                  int threads, struct dpe_short_text *text, struct dpe_error *err);
/** Tell the user what short texts lose with `what`: a path, "these options". */
void dpe_short_text_log(const struct dpe_table_values *values, const struct dpe_short_text *text,
                        const char *what);

/* The forms. */

/** What a runtime needs: pair j rotates by b^(−2j/d) / factor_j a token, b the base of the rotation
 *  and d the components that rotate; cosines and sines are multiplied by attention_factor. */
struct dpe_rope_factors {
    int64_t n;               /**< pairs that rotate */
    double *long_factor;     /**< [n] of the table, with what the model has of its own */
    double *short_factor;    /**< [n] of the model as it is: 1 where it has no scaling */
    double attention_factor; /**< of the table, a · sqrt(A) */
    double own_factor;       /**< of the model as it is */
};
/** Of a table of frequencies, for a rotation of base `base`. Free with dpe_rope_factors_free, also
 *  after a failure. DPE_BAD_DATA where the model rotates a part of each head and the table has a
 *  temperature, which runtimes then apply to that part alone; DPE_NO_MEMORY. */
dpe_status dpe_rope_factors_make(const struct dpe_table_values *values, double base,
                                 struct dpe_rope_factors *factors, struct dpe_error *err);
void dpe_rope_factors_free(struct dpe_rope_factors *factors);

/** DPE_USAGE when a form of these (`factors`), or another one, cannot hold the table: says what
 * would be lost, and which switch makes a table that it can hold. */
dpe_status dpe_rope_check_form(const struct dpe_table_values *values, const char *form,
                               bool factors, struct dpe_error *err);

struct dpe_model;

/** The runtimes whose command lines can say frequencies. */
enum dpe_flags_of { DPE_FLAGS_VLLM, DPE_FLAGS_SGLANG, DPE_FLAGS_LLAMA_CPP };
/** The options, as one line, that make a runtime apply the table to the model (a folder or GGUF
 * file). DPE_USAGE where its options cannot say it, with the form that can; DPE_BAD_DATA
 * where the model is another than the table's, or has layers that the table leaves as they are,
 * which one list of factors would change. */
dpe_status dpe_export_flags(const struct dpe_table_values *values, const char *model,
                            enum dpe_flags_of runtime, struct dpe_text *out, struct dpe_error *err);

/** config.json with its rope block replaced by longrope, under the names of transformers 4
 *  (rope_scaling) and 5 (rope_parameters), and with dpe_short_text where that was measured. `model`
 * is the folder, and opened; DPE_BAD_DATA where its layers rotate in several ways, which one list
 * of factors cannot hold. */
dpe_status dpe_export_longrope(const struct dpe_table_values *values, const char *model,
                               const struct dpe_model *opened,
                               const struct dpe_short_text *short_text, struct dpe_text *out,
                               struct dpe_error *err);

/** A copy of the GGUF file `from` at `path`, atomically: with the tensor rope_freqs.weight and the
 *  keys of the table, and those of dpe.short_text where that was measured. DPE_BAD_DATA where
 * `from` is no GGUF file of version 2 or 3, is cut off, is a part of several, holds a model of
 * another shape or base, or one whose rotation llama.cpp reads no factors for. */
dpe_status dpe_export_gguf(const struct dpe_table_values *values, const char *from,
                           const char *path, const struct dpe_short_text *short_text,
                           struct dpe_error *err);

/* --------------------------------------------------------------- what runtimes apply of a table */

/** An entry of a table beside a configuration. Zero-initialise: no table. */
struct dpe_applied {
    const struct dpe_table_values *values; /**< of the caller; NULL: the text is run unchanged */
    bool adapter;                          /**< it needs one */
    struct dpe_readings readings; /**< of the configuration, or without an adapter of the export */
    struct dpe_rope_factors factors; /**< what all of it is, where it needs none */
    double base;
};

/** Of the entry of a table (from the file `path`) for a text of `length` tokens (0: its own
 *  length), beside `model`, a folder, config.json or GGUF file; `which` as dpe_readings_open has
 *  it. The table must outlive it. Free with dpe_applied_free, also after a failure. Errors as
 *  dpe_readings_open, and those of dpe_export_longrope: another model than the table's. */
dpe_status dpe_applied_make(const char *model, const char *path, const struct dpe_table *table,
                            const char *which, int64_t length, struct dpe_applied *applied,
                            struct dpe_error *err);
void dpe_applied_free(struct dpe_applied *applied);

enum { DPE_APPLIED_TEXT = DPE_READING_ALL_NOTES + 80 };
/** What runtime i of the readings does with the table, in words. Returns the buffer. */
const char *dpe_applied_text(const struct dpe_applied *applied, int i, char text[DPE_APPLIED_TEXT]);
/** Whether all do the same with the table: its form without an adapter reaches them all. */
bool dpe_applied_agree(const struct dpe_applied *applied);

#endif
