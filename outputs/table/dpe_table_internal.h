/**
 * @file dpe_table_internal.h
 * What the readers of the consumer library share; not installed.
 */
#ifndef DPE_TABLE_INTERNAL_H
#define DPE_TABLE_INTERNAL_H

#include <stdbool.h>

#include "outputs/table/dpe_table.h"

struct dpe_table {
    struct dpe_table_values values;
    int32_t *group; /**< [n_pairs] → group */
};

/** Write a sentence into message[DPE_TABLE_MESSAGE] (NULL allowed) and return the error. */
int dpe_table_fail(char *message, enum dpe_table_error error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Whether this library reads tables of that schema version. */
bool dpe_table_knows_version(const char *version);
/** Whether tables of that version hold a temperature; earlier ones have none. */
bool dpe_table_version_has_temperature(const char *version);
/** logit_scale 1, no log-n. */
void dpe_table_no_temperature(struct dpe_table_values *values);
/** Free every array and forget it. */
void dpe_table_values_free(struct dpe_table_values *values);
/** Check and take over the arrays of `values` (freed on failure, emptied on success). */
int dpe_table_adopt(struct dpe_table_values *values, struct dpe_table **table, char *message);

/** Readers: fill values (free them with dpe_table_values_free also on failure). */
int dpe_table_read_h5(const char *path, bool unchecked, struct dpe_table_values *values,
                      char *message);
int dpe_table_read_json(const char *path, struct dpe_table_values *values, char *message);

#endif
