/**
 * @file dpe_table_internal.h
 * What the readers of the consumer library share; not installed.
 */
#ifndef DPE_TABLE_INTERNAL_H
#define DPE_TABLE_INTERNAL_H

#include <stdbool.h>

#include "outputs/table/dpe_table.h"
#include "outputs/table/fields.h"

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

/** Check and take over the arrays of `values` (freed on failure, emptied on success). */
int dpe_table_adopt(struct dpe_table_values *values, struct dpe_table **table, char *message);
/** The same for a list, which becomes one table; the list is emptied in any case. */
int dpe_table_adopt_list(struct dpe_table_list *list, struct dpe_table **table, char *message);

/** Make room for n entries that hold nothing. DPE_TABLE_BAD_FILE when n is not 1 …
 *  DPE_TABLE_ENTRIES; `path` is for the message. */
int dpe_table_list_make(struct dpe_table_list *list, int64_t n, const char *path, char *message);
void dpe_table_list_free(struct dpe_table_list *list);

/** Fill a list (free it with dpe_table_list_free also on failure). */
int dpe_table_read_h5(const char *path, bool unchecked, struct dpe_table_list *list, char *message);

#endif
