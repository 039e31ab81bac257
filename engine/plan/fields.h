/**
 * @file fields.h
 * The numbers of a plan, each described once. Digest, check, the text of a temperature, its keys in
 * a method's spec and what a table holds of it (outputs/read) are walks over these lists. A new
 * number is a member of its struct, a line in fields.c, and what it computes; one that a table
 * holds also has a field of the same name in outputs/table/fields.c.
 */
#ifndef DPE_PLAN_FIELDS_H
#define DPE_PLAN_FIELDS_H

#include "engine/plan/plan.h"

/** What a number is in memory: double, int64_t, an int or enum, bool. */
enum dpe_number_type { DPE_NUMBER_REAL, DPE_NUMBER_WHOLE, DPE_NUMBER_WORD, DPE_NUMBER_FLAG };
enum dpe_number_kind {
    DPE_NUMBER_ABOVE = 1,  /**< it is above the lowest of its range */
    DPE_NUMBER_COUNTS = 2, /**< a double without a fraction */
    DPE_NUMBER_TIMES = 4,  /**< set over a plan that has one, it is their product */
    DPE_NUMBER_PART = 8,   /**< of the number before it: nothing where that is the usual one */
};

struct dpe_number {
    const char *name; /**< in digests, messages and tables */
    const char *key;  /**< in a method's spec; NULL: none */
    enum dpe_number_type type;
    unsigned is;      /**< of enum dpe_number_kind */
    size_t at;        /**< in its struct */
    double usual;     /**< changes nothing */
    double low, high; /**< it is in [low, high], */
    double or_else;   /**< or is this; `low` where there is nothing else */
};

/** Those of a struct. */
struct dpe_numbers {
    const struct dpe_number *of;
    size_t n;
};
/** Of struct dpe_temperature (all double), dpe_plan (its own), dpe_band and dpe_position_map. */
extern const struct dpe_numbers dpe_temperature_numbers, dpe_plan_numbers, dpe_band_numbers,
    dpe_map_numbers;

double dpe_number_get(const struct dpe_number *number, const void *of);
/** Of a temperature. */
static inline double *dpe_number_real(const struct dpe_number *number, struct dpe_temperature *of)
{
    return (double *)(void *)((char *)of + number->at);
}
/** The number that it is a part of; itself: of none. */
const struct dpe_number *dpe_number_whole(const struct dpe_number *number);
/** Whether the number decides anything in its struct. */
bool dpe_number_says(const struct dpe_number *number, const void *of);
bool dpe_number_fits(const struct dpe_number *number, double value);
enum { DPE_NUMBER_TEXT = 128 };
/** What it may be, in words. Returns the buffer. */
const char *dpe_number_range(const struct dpe_number *number, char text[DPE_NUMBER_TEXT]);
/** A text that is read back to the same bits. Returns the buffer. */
const char *dpe_number_exact(double value, char text[32]);
/** DPE_USAGE names the first number that is out of its range. */
dpe_status dpe_numbers_check(const struct dpe_numbers *numbers, const void *of,
                             struct dpe_error *err);

#endif
