/**
 * @file rows.h
 * A row, sets of rows, and the identity of the run that they belong to.
 */
#ifndef DPE_ROWS_H
#define DPE_ROWS_H

#include "engine/base/base.h"

enum dpe_row_status {
    DPE_ROW_OK = 0,
    DPE_ROW_NONFINITE = 1, /**< NaN or infinity twice; layer and position are the first */
    DPE_ROW_FAILED = 2,    /**< could not be run; not scored */
};

/** One sample under one plan. Fields that a task does not produce hold NaN, −1 or NULL. */
struct dpe_row {
    char plan[33];        /**< dpe_plan_key: half of the row's key */
    char task[32];        /**< "niah", "ppl", "validate-niah", …: names the sample stream */
    int64_t sample;       /**< index in that stream, ≥ 0 */
    int32_t status;       /**< enum dpe_row_status */
    double score;         /**< NIAH: recall, 0 … 1 */
    double at_least_half; /**< NIAH: 1 when at least half of the values were found, else 0 */
    double nll_sum;       /**< nats */
    int64_t n_tokens;     /**< scored tokens */
    int64_t n_words;      /**< words of the scored text */
    int64_t prompt_tokens;
    int64_t new_tokens; /**< generated */
    uint64_t seed;      /**< of the sample */
    int32_t layer;      /**< DPE_ROW_NONFINITE: where */
    int64_t position;
    double margin;   /**< of a score by steps: how clearly, 0 … 1 (eval/task/task.h) */
    double seconds;  /**< differs between equal runs: goes to /run */
    char *text;      /**< the prediction, UTF-8, owned by the row; NULL when none */
    double *buckets; /**< NLL sums by position bucket (powers of two), owned; NULL when none */
    int32_t n_buckets;
};
/** All fields empty. */
void dpe_row_init(struct dpe_row *row);
void dpe_row_free(struct dpe_row *row);
/** n of them, and the array. */
void dpe_rows_free(struct dpe_row *rows, size_t n);

/** Texts by position: bucket b has their tokens 2^b to 2^(b+1) − 1, of which the first is 1.
 * Zero-initialise. */
enum { DPE_POSITIONS = 40 };
struct dpe_positions {
    double nll[DPE_POSITIONS], tokens[DPE_POSITIONS]; /**< sums */
    int n;                                            /**< buckets of the row that has most */
};
/** Add a row's buckets; NULL, and a row that is not valid, have none. */
void dpe_positions_add(struct dpe_positions *positions, const struct dpe_row *row);
/** Perplexity of a bucket; NaN: it has no tokens. */
double dpe_positions_at(const struct dpe_positions *positions, int bucket);

/** One row to make: indices into a job's lists of tasks and plans (outputs/job, struct dpe_wanted),
 * and the sample's index. */
struct dpe_item {
    int task, plan;
    int64_t sample;
};

/** Named strings in a fixed order: what decides a result (an identity), or what a process is
 *  (/run). Names are unique and, like values, valid UTF-8. Zero-initialise. */
struct dpe_identity {
    size_t n;
    struct dpe_identity_field {
        char *name, *value;
    } * fields;
};
/** Append a copy. DPE_INTERNAL when the name is there already or is empty, DPE_BAD_DATA when name
 *  or value is not UTF-8. */
dpe_status dpe_identity_add(struct dpe_identity *identity, const char *name, const char *value,
                            struct dpe_error *err);
/** printf-like value; write doubles as %.17g. */
dpe_status dpe_identity_addf(struct dpe_identity *identity, struct dpe_error *err, const char *name,
                             const char *format, ...) __attribute__((format(printf, 4, 5)));
/** The value of a name, borrowed, or NULL. */
const char *dpe_identity_get(const struct dpe_identity *identity, const char *name);
/** The field "niah" in words, for results: "one key of 4 values", "4 keys of 4 values, 2 asked for
 * at once". Returns the buffer; "" when the text is not such a field, or NULL. */
enum { DPE_TASK_WORDS = 96 };
const char *dpe_identity_task_words(const char *niah, char text[DPE_TASK_WORDS]);
/** What its score is: "recall", or "step score" of a score by steps. */
const char *dpe_identity_measure(const char *niah);
/** SHA-256 of all names and values in their order; 64 hex digits and a NUL. DPE_NO_MEMORY. */
dpe_status dpe_identity_hash(const struct dpe_identity *identity, char hex[65],
                             struct dpe_error *err);
void dpe_identity_free(struct dpe_identity *identity);

enum dpe_column_type {
    DPE_COL_F64,
    DPE_COL_F32,
    DPE_COL_I64,
    DPE_COL_I32,
    DPE_COL_U64,
    DPE_COL_U16,
    DPE_COL_U8,
    DPE_COL_STRING, /**< UTF-8, variable length */
};
/** Bytes of an element in memory; of a string those of its pointer. */
size_t dpe_hdf5_size(enum dpe_column_type type);

/** A number of struct dpe_row: its tag in the journal and its dataset in a table. */
struct dpe_row_field {
    uint16_t tag;
    enum dpe_column_type type;
    size_t offset;
    const char *path, *long_name, *units, *flag_meanings;
    bool optional; /**< NaN is left out, so is the dataset when no row has it */
};
/** Whether this row has the field; only optional ones can be absent. */
bool dpe_row_has(const struct dpe_row *row, const struct dpe_row_field *field);
extern const struct dpe_row_field dpe_row_fields[];
extern const size_t dpe_n_row_fields;

/** DPE_INTERNAL when a row breaks the rules of struct dpe_row. */
dpe_status dpe_row_check(const struct dpe_row *row, struct dpe_error *err);
/** `to` is initialised by this call. */
dpe_status dpe_row_copy(struct dpe_row *to, const struct dpe_row *from, struct dpe_error *err);
/** Name of the first field that differs (NaN equals NaN, seconds are not looked at), or NULL. */
const char *dpe_row_difference(const struct dpe_row *a, const struct dpe_row *b);
/** −1, 0, 1 by (task, plan, sample). */
int dpe_row_compare(const struct dpe_row *a, const struct dpe_row *b);
/** Append the portable bytes of a row: fields of tag u16, length u32, value; numbers as 8 bytes,
 *  little-endian, doubles by their bits. Without `seconds` that field is left out. */
dpe_status dpe_row_encode(const struct dpe_row *row, bool seconds, struct dpe_text *out,
                          struct dpe_error *err);
/** The reverse; `row` is initialised by this call. Unknown tags are skipped. DPE_BAD_DATA. */
dpe_status dpe_row_decode(const unsigned char *bytes, size_t n, struct dpe_row *row,
                          struct dpe_error *err);
/** SHA-256 of the rows in the order given, without seconds. */
dpe_status dpe_rows_hash(const struct dpe_row *const *rows, size_t n, char hex[65],
                         struct dpe_error *err);

/** Rows by key. */
struct dpe_rowset {
    struct dpe_row **rows; /**< [n], owned */
    size_t n;
    void *tree; /**< of them (tsearch) */
};
/** Move a row with a new key into the set; after a failure it is where it was. */
dpe_status dpe_rowset_put(struct dpe_rowset *set, struct dpe_row *row, struct dpe_error *err);
/** Free the row that was put last. */
void dpe_rowset_drop(struct dpe_rowset *set);
const struct dpe_row *dpe_rowset_find(const struct dpe_rowset *set, const char *task,
                                      const char *plan, int64_t sample);
void dpe_rowset_free(struct dpe_rowset *set);

dpe_status dpe_identity_copy(struct dpe_identity *to, const struct dpe_identity *from,
                             struct dpe_error *err);
/** DPE_MISMATCH listing every field in which `found` (of the file `path`) differs. */
dpe_status dpe_identity_mismatch(const struct dpe_identity *expected,
                                 const struct dpe_identity *found, const char *path,
                                 struct dpe_error *err);
/** Portable bytes of named strings, and back (`list` is initialised). */
dpe_status dpe_identity_encode(const struct dpe_identity *list, struct dpe_text *out,
                               struct dpe_error *err);
dpe_status dpe_identity_decode(const unsigned char *bytes, size_t n, struct dpe_identity *list,
                               struct dpe_error *err);

/** Whether a name can be a dataset in /run/sessions: [a-z0-9_]+. */
bool dpe_session_name_ok(const char *name);

#endif
