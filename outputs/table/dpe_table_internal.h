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
    int32_t *group;             /**< [n_pairs] → group */
    struct dpe_table **entries; /**< [n_entries] by length, owned; NULL: this is the only one. Then
                                     values and group are borrowed from the last. */
    int64_t n_entries;          /**< 0 without a list */
};

/** What a reader has read: n entries in the order of the file. */
struct dpe_table_list {
    int64_t n;
    struct dpe_table_values *values; /**< [n], owned */
};

/** Write a sentence into message[DPE_TABLE_MESSAGE] (NULL allowed) and return the error. */
int dpe_table_fail(char *message, enum dpe_table_error error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Whether this library reads tables of that schema version. */
bool dpe_table_knows_version(const char *version);
/** What a message says this library reads. */
#define DPE_TABLE_VERSIONS "1.x, 2.x, 3.x, 4.x, 5.x or 6.x"
/** Whether tables of that version hold a temperature; earlier ones have none. */
bool dpe_table_version_has_temperature(const char *version);
/** Whether tables of that version are lists of entries; those of version 5 may be. */
bool dpe_table_version_has_entries(const char *version);
/** Whether tables of that version can hold the plan of another method than DPE. */
bool dpe_table_version_has_methods(const char *version);
/** Whether tables of that version have bands; these are of version 5 too in what they can hold. */
bool dpe_table_version_has_bands(const char *version);
/** Check n_bands and bands; the numbers that they need are checked before. bands.c */
int dpe_table_check_bands(const struct dpe_table_values *values, char *message);
/** Numbers in a row of bands, and in all of them. */
static inline int64_t dpe_table_band_row(const struct dpe_table_values *values)
{
    return DPE_TABLE_BAND_NUMBERS + 2 * values->n_pairs;
}
static inline int64_t dpe_table_band_count(const struct dpe_table_values *values)
{
    return 2 * values->n_bands * dpe_table_band_row(values);
}
/** The position that a band's map gives a token for one pair. */
double dpe_table_band_position(const struct dpe_table_values *values, int band, int side, int64_t pair,
                               int64_t position);
/** Whether the scales of tables of that version divide frequencies. */
bool dpe_table_version_has_frequencies(const char *version);
/** What /table says in such a table of its near rule and rounding. */
#define DPE_TABLE_NO_RULE "none"
/** The version of a table of several entries, without plans of other methods and with them. */
#define DPE_TABLE_VERSION_OF_ENTRIES "3.0.0"
#define DPE_TABLE_VERSION_OF_METHODS "5.0.0"
#define DPE_TABLE_VERSION_OF_BANDS "6.0.0"
/** logit_scale 1, no log-n. */
void dpe_table_no_temperature(struct dpe_table_values *values);
/** Free every array and forget it. */
void dpe_table_values_free(struct dpe_table_values *values);
/** Check and take over the arrays of `values` (freed on failure, emptied on success). */
int dpe_table_adopt(struct dpe_table_values *values, struct dpe_table **table, char *message);
/** The same for a list, which becomes one table; the list is emptied in any case. */
int dpe_table_adopt_list(struct dpe_table_list *list, struct dpe_table **table, char *message);

/** Make room for n entries that hold nothing. DPE_TABLE_BAD_FILE when n is not 1 …
 *  DPE_TABLE_ENTRIES; `path` is for the message. */
int dpe_table_list_make(struct dpe_table_list *list, int64_t n, const char *path, char *message);
void dpe_table_list_free(struct dpe_table_list *list);

/** Readers: fill a list (free it with dpe_table_list_free also on failure). */
int dpe_table_read_h5(const char *path, bool unchecked, struct dpe_table_list *list, char *message);
int dpe_table_read_json(const char *path, struct dpe_table_list *list, char *message);

#endif
