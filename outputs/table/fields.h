/**
 * @file fields.h
 * The fields of a DPE table's entry, each described once; not installed.
 *
 * The writers and readers of HDF5, JSON, YAML and safetensors, the checks, the tables of SCHEMA.md,
 * dpe_table.schema.json and FIELDS of the adapter (outputs/transformers/dpe_attention.py) follow
 * from this list. A new field is a member of struct dpe_table_values and an entry here; the test
 * table_fields holds the others to them and writes their lines (--write).
 */
#ifndef DPE_TABLE_FIELDS_H
#define DPE_TABLE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "outputs/table/dpe_table.h"

/** What a field is in memory, and in the forms. */
enum dpe_field_type {
    DPE_FIELD_WHOLE, /**< int64_t */
    DPE_FIELD_REAL,  /**< double */
    DPE_FIELD_EDGE,  /**< int32_t */
    DPE_FIELD_FLAG,  /**< int, 0 or 1; uint8 in HDF5, true or false in JSON */
    DPE_FIELD_MARKS, /**< uint8_t, 0 or 1; in JSON the indices along the last axis that have 1 */
    DPE_FIELD_TEXT,  /**< char *, of 1 to DPE_FIELD_MOST_TEXT printable bytes, without axes; in HDF5
                        an  attribute of the entry */
};
enum dpe_field_axis {
    DPE_AXIS_NONE,
    DPE_AXIS_GROUP,
    DPE_AXIS_EDGE,
    DPE_AXIS_PAIR,
    DPE_AXIS_LAYER,
    DPE_AXIS_HEAD,
    DPE_AXIS_BAND_NUMBER, /**< of all rows of bands; an entry may have none */
    DPE_AXES,
};
/** What a table can do without: all fields of a part are there, or none. From DPE_PART_BANDS on one
 * entry of a table may have them and another not. */
enum dpe_field_part {
    DPE_PART_CORE,        /**< in every table */
    DPE_PART_KEYS,        /**< key pairs; without, all pairs are */
    DPE_PART_TEMPERATURE, /**< without, there is none */
    DPE_PART_METHOD,      /**< the plan of another method; without, it is DPE's */
    DPE_PART_BANDS,       /**< in place of window and scales; without, these are the plan */
    DPE_PART_HEADS,       /**< a temperature by head; without, all heads have the layer's */
    DPE_PART_SELECTION,   /**< which keys a query meets; without, all */
    DPE_PART_EVIDENCE,    /**< what was measured under the entry; without, it is not known */
    DPE_PARTS,
};
enum { DPE_FIELD_RANK = 3, DPE_FIELD_MOST_TEXT = 200 };

struct dpe_table_field {
    const char *name; /**< of the dataset, the tensor, the metadata */
    const char *json; /**< in JSON; NULL: the same */
    const char *yaml; /**< in the YAML of the paper's code; NULL: not there */
    enum dpe_field_type type;
    enum dpe_field_part part;
    enum dpe_field_axis axes[DPE_FIELD_RANK]; /**< none: one number */
    size_t at;        /**< of the number, or the pointer to an array or text, in dpe_table_values */
    double low, high; /**< every element is in [low, high], */
    bool above;       /**< in (low, high], */
    double or_else;   /**< or is this; `low` where there is nothing else */
    double absent;    /**< the number where its part is not there; an array is NULL then */
    bool detail;      /**< says nothing alone: log_n_power without log_n_length */
    bool whole_in_h5; /**< doubles that are int64 in HDF5 */
    const char *long_name, *units; /**< attributes in HDF5 */
    const char *what;              /**< for the documents */
    /** A fact about how the entry was made, which no runtime needs: the words behind the number. A
     * file may be without it, and it is then `or_else`, not known. NULL: no such fact */
    const char *fact;
};
extern const struct dpe_table_field dpe_table_fields[];
extern const size_t dpe_n_table_fields;
/** The field of a name that one has. */
const struct dpe_table_field *dpe_table_field_named(const char *name);

/** What a table says of its model: attributes of /model, the object "model" in JSON. */
struct dpe_model_field {
    const char *name;      /**< in JSON */
    const char *attribute; /**< in HDF5 */
    const char *metadata;  /**< in safetensors */
    bool text;             /**< char *; else int64_t, at least 1 */
    size_t at;
    const char *what;
};
extern const struct dpe_model_field dpe_model_fields[];
extern const size_t dpe_n_model_fields;

/** What a runtime has to do as it is said here. */
struct dpe_table_convention {
    const char *name, *positions, *frequencies;
    const char *explained; /**< behind the word, in HDF5; NULL: nothing */
    bool floors;           /**< it is about rounding */
};
extern const struct dpe_table_convention dpe_table_conventions[];
extern const size_t dpe_n_table_conventions;
/** The word of a convention for a table of that kind. */
const char *dpe_table_convention(const struct dpe_table_convention *convention, bool frequencies);

/** Number of axes, elements along one, elements, bytes of one in memory. */
int dpe_field_rank(const struct dpe_table_field *field);
int64_t dpe_field_extent(enum dpe_field_axis axis, const struct dpe_table_values *values);
size_t dpe_field_count(const struct dpe_table_field *field, const struct dpe_table_values *values);
size_t dpe_field_size(const struct dpe_table_field *field);
/** Whether the member is a pointer: of arrays and texts. */
bool dpe_field_owned(const struct dpe_table_field *field);
/** Its elements or its text, borrowed; of an array that is NULL, those that it
 * stands for, or NULL. */
const void *dpe_field_data(const struct dpe_table_field *field,
                           const struct dpe_table_values *values);
/** Where the pointer to an array or text is. */
void **dpe_field_array(const struct dpe_table_field *field, struct dpe_table_values *values);
/** Element i as a double; set it. */
double dpe_field_get(const struct dpe_table_field *field, const void *data, size_t i);
void dpe_field_set(const struct dpe_table_field *field, void *data, size_t i, double value);

/** Whether some pair is no key pair of its head. */
bool dpe_table_masks(const struct dpe_table_values *values);
/** Numbers in a row of bands. */
static inline int64_t dpe_table_band_row(const struct dpe_table_values *values)
{
    return DPE_TABLE_BAND_NUMBERS + 2 * values->n_pairs;
}

/** The parts that a table is written with, as bits 1 << part. Of one entry's values; `several`: of
 * one of many. */
unsigned dpe_table_parts(const struct dpe_table_values *values, bool several);
/** Whether the field says anything of an entry: false of the bands and the
 * evidence of one without. */
bool dpe_field_applies(const struct dpe_table_field *field, const struct dpe_table_values *values);
/** Whether an entry of a table of these parts is written with the field. */
bool dpe_field_written(const struct dpe_table_field *field, const struct dpe_table_values *values,
                       unsigned parts);
/** Of all entries of a table. */
unsigned dpe_table_parts_of(const struct dpe_table *table);

struct json_t;
/** dpe_table_parse of what was parsed, which stays the caller's. */
int dpe_table_of_json(const char *name, const struct json_t *root, struct dpe_table **table,
                      char *message);
/** The key pairs as JSON has them, [layer][head] = pair indices; of the values the mask and its
 * shape are used. */
struct json_t *dpe_table_key_pairs(const struct dpe_table_values *values);
/** Deep copies of arrays and texts. False without memory: then nothing is left to free. */
bool dpe_table_values_copy(const struct dpe_table_values *from, struct dpe_table_values *copy);
/** Free every array and text and forget it. */
void dpe_table_values_free(struct dpe_table_values *values);
/** A sentence into message[DPE_TABLE_MESSAGE] (NULL allowed); returns the error. */
int dpe_table_fail(char *message, enum dpe_table_error error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** DPE_TABLE_VERSION with what to do, unless it is DPE_TABLE_SCHEMA's major version. `history`: of
 * the file, whose first line has the command that made it; NULL when it is not known. */
int dpe_table_check_version(const char *version, const char *history, char *message);

#endif
