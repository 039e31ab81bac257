/**
 * @file short_text.h
 * What a form that cannot switch loses on a text that the model was trained for.
 *
 * A table and a method leave texts of at most the trained length as they are. A factor for each
 * pair in a file applies to every text where the runtime has no rule of its own, so the exporter
 * measures what that costs, where it finds the model's weights, and writes it into the file.
 */
#ifndef DPE_SHORT_TEXT_H
#define DPE_SHORT_TEXT_H

#include "engine/base/base.h"
#include "outputs/table/dpe_table.h"

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

#endif
