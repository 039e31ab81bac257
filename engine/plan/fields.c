/* The numbers of a plan, and what follows from their descriptions alone. */
#include "engine/plan/fields.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LONGEST 0x1p40 /* tokens */
#define SIDE    0x1p20 /* pairs, layers, heads */
#define ABOVE   DPE_NUMBER_ABOVE
#define COUNTS  DPE_NUMBER_COUNTS
#define TIMES   DPE_NUMBER_TIMES
#define PART    DPE_NUMBER_PART
/* What changes nothing, the range, what else it may be, and kinds. */
#define NUMBER(in, called, spec, member, of_type, nothing, lowest, highest, besides, kinds)        \
    {                                                                                              \
        .name = called, .key = spec, .type = DPE_NUMBER_##of_type,                                 \
        .at = offsetof(struct in, member), .usual = nothing, .low = lowest, .high = highest,       \
        .or_else = besides, .is = kinds                                                            \
    }
#define FACTOR(called, spec, member, ...)                                                          \
    NUMBER(dpe_temperature, called, spec, member, REAL, __VA_ARGS__)
#define PLAN(member, ...) NUMBER(dpe_plan, #member, NULL, member, __VA_ARGS__)
#define BAND(member, ...) NUMBER(dpe_band, #member, NULL, member, __VA_ARGS__)
#define MAP(member, ...)  NUMBER(dpe_position_map, #member, NULL, member, __VA_ARGS__)

static const struct dpe_number of_temperature[] = {
    FACTOR("log_n_length", "log-n", log_n_length, 0, 1, 0x1p31, 0, ABOVE),
    FACTOR("log_n_power", "log-n-power", log_n_power, 1, 0, 64, 1, ABOVE | PART),
    FACTOR("log_n_decay", "log-n-decay", log_n_decay, 0, 0, 64, 0, PART),
    FACTOR("logit_scale", "logit-scale", logit_scale, 1, 0, 1024, 1, ABOVE | TIMES),
    FACTOR("logit_scale_first", "logit-scale-first", depth[0], 1, 0, 1024, 1, ABOVE | TIMES),
    FACTOR("logit_scale_middle", "logit-scale-middle", depth[1], 1, 0, 1024, 1, ABOVE | TIMES),
    FACTOR("logit_scale_last", "logit-scale-last", depth[2], 1, 0, 1024, 1, ABOVE | TIMES),
    FACTOR("far_scale", "far-scale", far_scale, 1, 0, 1024, 1, ABOVE | TIMES),
};
const struct dpe_temperature dpe_temperature_none = {
    .log_n_power = 1.0, .logit_scale = 1.0, .depth = {1.0, 1.0, 1.0}, .far_scale = 1.0};

static const struct dpe_number of_plan[] = {
    PLAN(n_pairs, WHOLE, 0, 1, SIDE, 1, 0),
    PLAN(n_layers, WHOLE, 0, 1, SIDE, 1, 0),
    PLAN(n_heads, WHOLE, 0, 1, SIDE, 1, 0),
    PLAN(n_bands, WORD, 0, 1, DPE_MAX_BANDS, 1, 0),
    PLAN(n_still, WHOLE, 0, 0, SIDE, 0, 0),
    PLAN(still_factor, REAL, 0, 0, LONGEST, 0, 0),
    PLAN(attention_multiplier, REAL, 0, 0, LONGEST, 0, 0),
    PLAN(attention_cap, REAL, 0, 0, LONGEST, 0, 0),
    PLAN(query_growth, REAL, 0, 0, LONGEST, 0, 0),
    PLAN(query_length, REAL, 0, 0, LONGEST, 0, 0),
    PLAN(query_from, WHOLE, 0, 0, 1, 0, 0),
};
static const struct dpe_number of_band[] = {
    BAND(kind, WORD, DPE_BAND_DISTANCE, 0, DPE_BAND_KEY, 0, 0),
    BAND(lo, WHOLE, 0, 0, 0x1p62, 0, 0),
    BAND(hi, WHOLE, 0, 1, 0x1p63, 1, 0),
    BAND(per_head, FLAG, 0, 0, 1, 0, 0),
};
static const struct dpe_number of_map[] = {
    MAP(floored, FLAG, 0, 0, 1, 0, 0),
    MAP(period, REAL, INFINITY, 1, LONGEST, INFINITY, COUNTS),
    MAP(cap, REAL, INFINITY, -LONGEST, LONGEST, INFINITY, 0),
    MAP(group_most, REAL, 0, 2, SIDE, 0, COUNTS),
    MAP(group_rate, REAL, 0, 0, 1e6, 1, ABOVE | PART),
    MAP(group_from, REAL, 0, 0, LONGEST, 0, COUNTS | PART),
};

#define COUNT(of) (sizeof(of) / sizeof(of)[0])
const struct dpe_numbers dpe_temperature_numbers = {of_temperature, COUNT(of_temperature)};
const struct dpe_numbers dpe_plan_numbers = {of_plan, COUNT(of_plan)};
const struct dpe_numbers dpe_band_numbers = {of_band, COUNT(of_band)};
const struct dpe_numbers dpe_map_numbers = {of_map, COUNT(of_map)};

double dpe_number_get(const struct dpe_number *number, const void *of)
{
    const void *at = (const char *)of + number->at;
    return number->type == DPE_NUMBER_REAL    ? *(const double *)at
           : number->type == DPE_NUMBER_WHOLE ? (double)*(const int64_t *)at
           : number->type == DPE_NUMBER_WORD  ? (double)*(const int *)at
                                              : (double)*(const bool *)at;
}

const struct dpe_number *dpe_number_whole(const struct dpe_number *number)
{
    for (; (number->is & PART) != 0; number--) {
    }
    return number;
}

/* Whether what the number is a part of is there. */
static bool matters(const struct dpe_number *number, const void *of)
{
    const struct dpe_number *whole = dpe_number_whole(number);
    return whole == number || dpe_number_get(whole, of) != whole->usual;
}

bool dpe_number_says(const struct dpe_number *number, const void *of)
{
    return dpe_number_get(number, of) != number->usual && matters(number, of);
}

bool dpe_number_fits(const struct dpe_number *number, double value)
{
    const bool low = (number->is & ABOVE) != 0 ? value > number->low : value >= number->low;
    const bool whole = (number->is & COUNTS) == 0 || value == floor(value);
    return (low && value <= number->high && whole) || value == number->or_else;
}

const char *dpe_number_range(const struct dpe_number *number, char text[DPE_NUMBER_TEXT])
{
    struct dpe_number alone = *number;
    const bool real = number->type == DPE_NUMBER_REAL && (number->is & COUNTS) == 0;
    text[0] = '\0';
    alone.or_else = NAN;
    if (!dpe_number_fits(&alone, number->or_else)) {
        dpe_append(text, DPE_NUMBER_TEXT, "%g or ", number->or_else);
    }
    dpe_append(text, DPE_NUMBER_TEXT,
               (number->is & ABOVE) != 0 ? "a %snumber above %.15g, at most %.15g"
                                         : "a %snumber from %.15g to %.15g",
               real ? "" : "whole ", number->low, number->high);
    return text;
}

const char *dpe_number_exact(double value, char text[32])
{
    snprintf(text, 32, "%.15g", value);
    if (strtod(text, NULL) != value) {
        snprintf(text, 32, "%.17g", value);
    }
    return text;
}

dpe_status dpe_numbers_check(const struct dpe_numbers *numbers, const void *of,
                             struct dpe_error *err)
{
    for (const struct dpe_number *at = numbers->of; at < numbers->of + numbers->n; at++) {
        const double value = dpe_number_get(at, of);
        char expected[DPE_NUMBER_TEXT];
        if ((matters(at, of) || value != at->usual) && !dpe_number_fits(at, value)) {
            return dpe_fail(err, DPE_USAGE, "%s: expected %s, found %.15g",
                            at->key != NULL ? at->key : at->name, dpe_number_range(at, expected),
                            value);
        }
    }
    return DPE_OK;
}
