/**
 * @file gguf.h
 * Reading the header of a GGUF file of strangers: metadata by key, tensors by name.
 *
 * A file is: "GGUF", a version, two counts, the metadata (key, type, value), the tensors (name,
 * dimensions, type, offset), then the data at the next multiple of general.alignment, to which the
 * offsets are relative. All numbers are little endian. Versions 2 and 3 are read. The header is
 * read by pread, so that a short file is an error and never a SIGBUS. What would need more memory
 * than the file's own size is refused, as are arrays of arrays and types that blocks.h does not
 * have.
 */
#ifndef DPE_GGUF_H
#define DPE_GGUF_H

#include <math.h>

#include "engine/base/base.h"
#include "engine/gguf/blocks.h"
#include "engine/text/json.h"

enum { DPE_GGUF_RANK = 4 };

/** Types of values, with the format's numbers. */
enum dpe_gguf_type {
    DPE_GGUF_U8,
    DPE_GGUF_I8,
    DPE_GGUF_U16,
    DPE_GGUF_I16,
    DPE_GGUF_U32,
    DPE_GGUF_I32,
    DPE_GGUF_F32,
    DPE_GGUF_BOOL,
    DPE_GGUF_STRING,
    DPE_GGUF_ARRAY,
    DPE_GGUF_U64,
    DPE_GGUF_I64,
    DPE_GGUF_F64,
    DPE_GGUF_TYPES
};

/** Bytes of a number of a type; 0 for strings and arrays. */
size_t dpe_gguf_width(enum dpe_gguf_type type);

/** A line of the metadata. */
struct dpe_gguf_value {
    char *key;               /**< without NUL inside */
    enum dpe_gguf_type type; /**< of the value, or of an array's elements */
    bool array;
    uint64_t n;                 /**< elements of an array, else 1 */
    const unsigned char *bytes; /**< as in the file, in dpe_gguf.header, from `at` on */
    size_t at;
    size_t n_bytes;
};

struct dpe_gguf_tensor {
    char *name;           /**< without NUL inside */
    uint32_t type;        /**< the format's number */
    enum dpe_dtype dtype; /**< DPE_DTYPES: a type that blocks.h does not have */
    int rank;
    int64_t shape[DPE_GGUF_RANK]; /**< rows first: the reverse of the file's order; each ≥ 1 */
    uint64_t begin, end; /**< bytes of the file; no two tensors overlap. The end of one of a foreign
                            type is not known: it is its begin */
};

struct dpe_gguf {
    char *path;
    int fd;              /**< open for reading; −1: the caller took it */
    uint64_t size, data; /**< of the file; where the data begins */
    unsigned char *header;
    size_t n_header;               /**< bytes up to the end of the list of tensors */
    size_t tensors_at;             /**< where in the header that list begins */
    struct dpe_gguf_value *values; /**< [n_values], sorted by key */
    size_t n_values;
    json_t *metadata;                /**< the same by key, for typed reads */
    struct dpe_gguf_tensor *tensors; /**< [n_tensors], in the file's order */
    size_t n_tensors;
};

/** Open and check. The caller closes with dpe_gguf_close. Errors: DPE_NO_INPUT, DPE_PERMISSION,
 *  DPE_BAD_DATA (file, key or tensor, expected, found), DPE_NO_MEMORY, DPE_IO. */
dpe_status dpe_gguf_open(const char *path, struct dpe_gguf **gguf, struct dpe_error *err);
/** DPE_BAD_DATA when a tensor is of a type that blocks.h does not have: which, and which there are.
 */
dpe_status dpe_gguf_check_types(const struct dpe_gguf *gguf, struct dpe_error *err);
/** NULL is allowed. */
void dpe_gguf_close(struct dpe_gguf *gguf);
DPE_SCOPED_HANDLE(struct dpe_gguf *, dpe_gguf_close)
/** How the names of the files of a model end that is split: number, from 1 on, of how many. */
#define DPE_GGUF_PART "-%05d-of-%05d.gguf"
/** How many files a model has of which this is the first; 1 where split.count is absent.
 *  DPE_BAD_DATA when the name does not say the numbers of the metadata, or the given one is not the
 *  first. */
dpe_status dpe_gguf_count(const struct dpe_gguf *gguf, int *n, struct dpe_error *err);

/* ------------------------------------------------------------------------------------ metadata */

/** A reader of single values (dpe_gguf.metadata), as of the members of a config.json. */
static inline struct dpe_json_reader dpe_gguf_reader(const struct dpe_gguf *gguf,
                                                     struct dpe_error *err)
{
    return (struct dpe_json_reader){
        .file = gguf->path, .object = "", .from = gguf->metadata, .err = err};
}
/** Any finite number. */
static const struct dpe_json_bound dpe_gguf_any = {.min = -(double)INFINITY};

/** NULL when the file does not have it. */
const struct dpe_gguf_value *dpe_gguf_find(const struct dpe_gguf *gguf, const char *key);
/** Makes dpe_gguf.metadata of the values. DPE_NO_MEMORY. */
dpe_status dpe_gguf_fill(struct dpe_gguf *gguf, struct dpe_error *err);
/** A whole number of any width, 0 … 2^53. */
int64_t dpe_gguf_whole(struct dpe_json_reader *reader, const char *key, int64_t fallback);
/** The id of a special token, of which `key` ends in _token_id: that of the metadata, else the one
 * that llama.cpp takes for the kind of tokenizer ("llama": BOS 1, EOS 2, unknown 0); −1: none. */
int64_t dpe_gguf_token_id(const struct dpe_gguf *gguf, struct dpe_json_reader *reader,
                          const char *key);
/** Whether a string is there and equals `text`. */
bool dpe_gguf_text_is(struct dpe_json_reader *reader, const char *key, const char *text);
/** An array of that type; NULL when absent. An array of another type is a failure, but for
 * DPE_GGUF_I32 any whole type will do, and for DPE_GGUF_F32 any type of numbers: dpe_gguf_number_at
 * reads them. */
const struct dpe_gguf_value *dpe_gguf_array(const struct dpe_gguf *gguf,
                                            struct dpe_json_reader *reader, const char *key,
                                            enum dpe_gguf_type type);

/** An array of strings, of which more than `most` are a failure: a new reference, after a failure
 * too; NULL when absent. What is not UTF-8 stands in a list of its own, as it is: [bytes]. */
json_t *dpe_gguf_strings(const struct dpe_gguf *gguf, struct dpe_json_reader *reader,
                         const char *key, uint64_t most);
/** Number i of a value, of whatever type; NAN for strings. */
double dpe_gguf_number_at(const struct dpe_gguf_value *value, uint64_t i);

#endif
