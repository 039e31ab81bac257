/**
 * @file runtime_read.h
 * One runtime's reading of one configuration.
 */
#ifndef DPE_RUNTIME_READ_H
#define DPE_RUNTIME_READ_H

#include <jansson.h>
#include <math.h>

#include "engine/model/config/config.h"
#include "outputs/export/runtimes.h"

/** What all runtimes read from. */
struct dpe_runtime_source {
    const json_t *config; /**< the language model's part of a config.json */
    const char *model_type;
    int64_t head_dim; /**< components of a head that may rotate, even */
    double max_position;
    int64_t length;                /**< tokens of the text */
    const struct dpe_config *gguf; /**< of a GGUF file what the engine reads, else NULL */
};

/** What the functions of this room work on. */
struct dpe_runtime_reader {
    const struct dpe_runtime_source *from;
    const struct dpe_runtime *rules;
    struct dpe_reading *out;
    json_t *made;        /* a block of the class, to release */
    const json_t *block; /* NULL: none */
    struct dpe_rope_config rope;
    int64_t dim; /* components that rotate */
    bool phi3, each;
    double coefficient;        /* of ln(factor) in yarn's logit factor */
    double mscale, mscale_all; /* of yarn, NaN: not there */
};

/** A number of a block, NaN where it is not there or null. */
static inline double dpe_runtime_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}
/** Whether a block has a member that is not null. */
static inline bool dpe_runtime_has(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value != NULL && !json_is_null(value);
}
static inline double dpe_runtime_otherwise(double value, double fallback)
{
    return isnan(value) ? fallback : value;
}
/** A number of tokens of a file, which may be any number. */
static inline int64_t dpe_runtime_whole(double tokens)
{
    return (int64_t)fmin(fmax(tokens, 0.0), 0x1p50);
}
/** Say where the runtime departs, and why; a text too long is cut off. */
__attribute__((format(printf, 2, 3))) void dpe_runtime_note(struct dpe_runtime_reader *r,
                                                            const char *format, ...);
/** The runtime runs no such model; the first reason stays. */
__attribute__((format(printf, 2, 3))) void dpe_runtime_refuse(struct dpe_runtime_reader *r,
                                                              const char *format, ...);
/** Take the numbers of r->rope.type from the block. */
void dpe_runtime_formula(struct dpe_runtime_reader *r);

/** Fill the reading of its runtime. A reading is refused where the runtime would be, and where the
 *  numbers make no sense to dpe, which says so. */
void dpe_runtime_read(const struct dpe_runtime_source *source, struct dpe_reading *reading);

#endif
