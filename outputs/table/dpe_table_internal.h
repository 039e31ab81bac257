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
    struct dpe_table_values values; /**< owned; with entries those of the last, borrowed */
    struct dpe_table *entries;      /**< [n_entries] by length, owned; NULL: this is the only one */
    int64_t n_entries;              /**< 0 without a list */
};

/** A table of n entries that hold nothing yet: fill the values of each (dpe_table_entry_values),
 * then finish it. DPE_TABLE_BAD_FILE when n is not 1 … DPE_TABLE_ENTRIES. Close it also after a
 * failure.
 */
int dpe_table_new(int64_t n, struct dpe_table **table, char *message);
struct dpe_table_values *dpe_table_entry_values(struct dpe_table *table, int64_t i);
/** Check the entries and what they must agree on, and put them in order. */
int dpe_table_finish(struct dpe_table *table, char *message);

/** A form of a table that is being read. The first failure counts; after it nothing more is read.
 * Objects are called as in HDF5: "/", "/table", "/model", "/run"; NULL: the entry. */
struct dpe_table_form {
    int error;
    char message[DPE_TABLE_MESSAGE];
    bool attributes; /**< the fields of a model are called as in HDF5 */
    /** Fail because of a member of an object. */
    void (*refuse)(struct dpe_table_form *form, const char *object, const char *name,
                   const char *expected);
    /** Whether there is such a member, of whatever type. */
    bool (*has)(struct dpe_table_form *form, const char *object, const char *name);
    /** A text, owned, or a whole number. NULL or false: there is none, or a failure. */
    char *(*text)(struct dpe_table_form *form, const char *object, const char *name);
    bool (*whole)(struct dpe_table_form *form, const char *object, const char *name,
                  int64_t *value);
    /** How many entries there are. Make one of them, below that, the entry. */
    int64_t (*entries)(struct dpe_table_form *form);
    void (*enter)(struct dpe_table_form *form, int64_t i);
    /** Negative: the entry does not have the field. Of a list along one axis its length. */
    int64_t (*count)(struct dpe_table_form *form, const struct dpe_table_field *field);
    /** Fill data [n] from the file, whole numbers only where the field has them. Not of texts. */
    void (*read)(struct dpe_table_form *form, const struct dpe_table_field *field,
                 const struct dpe_table_values *values, void *data, size_t n);
};
/** Fail, unless there was a failure. */
void dpe_form_fail(struct dpe_table_form *form, enum dpe_table_error error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Read all of it. The table is there after DPE_TABLE_OK alone; else the form has the message. */
int dpe_table_read(struct dpe_table_form *form, struct dpe_table **table);
/** The HDF5 form, in a file that is open as `fd` as well. */
int dpe_table_read_h5(const char *path, int fd, bool unchecked, struct dpe_table **table,
                      char *message);

#endif
