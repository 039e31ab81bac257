/**
 * @file applied.h
 * What other runtimes apply of a table: all of it through an adapter, or what they read from the
 * config.json that it is exported as.
 */
#ifndef DPE_APPLIED_H
#define DPE_APPLIED_H

#include "outputs/export/rope_forms.h"
#include "outputs/runtimes/runtimes.h"
#include "outputs/table/dpe_table.h"

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
