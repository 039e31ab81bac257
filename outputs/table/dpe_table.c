/* DPE tables: what makes one valid, and what a runtime needs from it. */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "engine/base/groups.h"
#include "outputs/table/dpe_table_internal.h"

int dpe_table_fail(char *message, enum dpe_table_error error, const char *format, ...)
{
    if (message != NULL) {
        va_list args;
        va_start(args, format);
        vsnprintf(message, DPE_TABLE_MESSAGE, format, args);
        va_end(args);
    }
    return (int)error;
}

/* ------------------------------------------------------------------------------ tables of bands */

/* Positions beyond this are none. */
static const double most = 0x1p40;

static const double *row_of(const struct dpe_table_values *values, int64_t band, int64_t side)
{
    return values->bands + (2 * band + side) * dpe_table_band_row(values);
}

static bool whole(double x, double low, double high)
{
    return x >= low && x <= high && x == floor(x);
}

/* What is wrong with a row; NULL: nothing. */
static const char *check_numbers(const double *row)
{
    double high = row[DPE_TABLE_BAND_HIGH];
    bool chunks = row[DPE_TABLE_BAND_BY] == 1.0;
    if (!whole(row[DPE_TABLE_BAND_BY], 0.0, 2.0)) {
        return "what it goes by, 0, 1 or 2";
    }
    if (!whole(row[DPE_TABLE_BAND_LOW], 0.0, most) || !whole(high, 0.0, most) ||
        (high != 0.0 && high <= row[DPE_TABLE_BAND_LOW])) {
        return "a range of whole numbers, from 0 on";
    }
    if (!whole(row[DPE_TABLE_BAND_CHUNK], chunks ? 1.0 : 0.0, chunks ? most : 0.0)) {
        return "a chunk of whole tokens where it goes by chunks, else 0";
    }
    if (!whole(row[DPE_TABLE_BAND_HEADS], 0.0, 1.0) || !whole(row[DPE_TABLE_MAP_FLOOR], 0.0, 1.0) ||
        !whole(row[DPE_TABLE_MAP_PERIOD], 0.0, most) ||
        !(row[DPE_TABLE_MAP_CAP] >= 0.0 && row[DPE_TABLE_MAP_CAP] <= most)) {
        return "flags of heads and of rounding, a period and a cap";
    }
    double groups = row[DPE_TABLE_MAP_GROUP_MOST];
    double rate = row[DPE_TABLE_MAP_GROUP_RATE];
    bool curve = whole(groups, 2.0, 0x1p20) && rate > 0.0 && rate <= 1e6 &&
                 whole(row[DPE_TABLE_MAP_GROUP_FROM], 0.0, most);
    bool none = groups == 0.0 && rate == 0.0 && row[DPE_TABLE_MAP_GROUP_FROM] == 0.0;
    return curve || none ? NULL : "groups that grow at a rate, or three zeros";
}

static int check_row(const struct dpe_table_values *values, int64_t band, int64_t side,
                     char *message)
{
    const double *row = row_of(values, band, side);
    const double *scale = row + DPE_TABLE_BAND_NUMBERS;
    const char *wrong = check_numbers(row);
    for (int number = 0; number <= DPE_TABLE_BAND_HEADS && wrong == NULL; number++) {
        wrong = row[number] == row_of(values, band, 0)[number] ? NULL : "one range for both sides";
    }
    for (int64_t j = 0; j < values->n_pairs && wrong == NULL; j++) {
        double offset = scale[values->n_pairs + j];
        bool good = scale[j] == 0.0 || (scale[j] >= 1.0 && scale[j] <= most);
        wrong = !good                     ? "scales from 1 on, or 0 for a constant"
                : !(fabs(offset) <= most) ? "finite offsets"
                                          : NULL;
    }
    return wrong == NULL
               ? DPE_TABLE_OK
               : dpe_table_fail(message, DPE_TABLE_BAD_FILE, "bands: band %lld, %s: expected %s",
                                (long long)band, side == 0 ? "queries" : "keys", wrong);
}

/* Check n_bands and bands; the numbers that they need are checked before. */
static int check_bands(const struct dpe_table_values *values, char *message)
{
    if (values->n_bands == 0) {
        return DPE_TABLE_OK;
    }
    bool alone = values->frequencies == 0 && values->unrounded == 0 &&
                 values->bands[DPE_TABLE_BAND_HEADS] == 0.0;
    for (int64_t g = 0; g < values->n_groups; g++) {
        alone = alone && values->scale_factor[g] == 1.0;
    }
    if (!alone) {
        return dpe_table_fail(
            message, DPE_TABLE_BAD_FILE,
            "a table of bands moves pairs by them alone: expected scales of 1, unrounded 0 and a "
            "first band that is not by head");
    }
    int error = DPE_TABLE_OK;
    for (int64_t i = 0; i < 2 * values->n_bands && error == DPE_TABLE_OK; i++) {
        error = check_row(values, i / 2, i % 2, message);
    }
    return error;
}

int dpe_table_band_of(const struct dpe_table *table, int64_t m, int64_t n)
{
    const struct dpe_table_values *values = &table->values;
    if (values->n_bands == 0) {
        return values->frequencies == 0 && m - n >= values->window ? DPE_TABLE_FAR : DPE_TABLE_NEAR;
    }
    for (int64_t b = 0; b < values->n_bands; b++) {
        const double *row = row_of(values, b, 0);
        int64_t chunk = (int64_t)row[DPE_TABLE_BAND_CHUNK];
        int64_t x = chunk > 0 ? m / chunk - n / chunk : row[DPE_TABLE_BAND_BY] == 2.0 ? n : m - n;
        double high = row[DPE_TABLE_BAND_HIGH];
        if ((double)x >= row[DPE_TABLE_BAND_LOW] && (high == 0.0 || (double)x < high)) {
            return (int)b;
        }
    }
    return -1;
}

/* The position that a band's map gives a token for one pair. */
static double band_position(const struct dpe_table_values *values, int band, int side, int64_t pair,
                            int64_t position)
{
    const double *row = row_of(values, band, side);
    double scale = row[DPE_TABLE_BAND_NUMBERS + pair];
    double offset = row[DPE_TABLE_BAND_NUMBERS + values->n_pairs + pair];
    double period = row[DPE_TABLE_MAP_PERIOD];
    double cap = row[DPE_TABLE_MAP_CAP];
    struct dpe_groups at = {0};
    double x = row[DPE_TABLE_MAP_GROUP_MOST] > 0.0
                   ? dpe_group_of(row[DPE_TABLE_MAP_GROUP_MOST], row[DPE_TABLE_MAP_GROUP_RATE],
                                  (double)position - row[DPE_TABLE_MAP_GROUP_FROM], &at)
                   : (double)position;
    x = period > 0.0 ? fmod(x, period) : x;
    x = scale == 0.0 ? 0.0 : x / scale;
    x = (row[DPE_TABLE_MAP_FLOOR] != 0.0 ? floor(x) : x) + offset;
    return cap > 0.0 ? fmin(x, cap) : x;
}

/* --------------------------------------------------------------------------------------- checks */

/* What an element of a field may be, in words. */
static void describe_range(const struct dpe_table_field *field, char text[96])
{
    int n = field->or_else < field->low || (field->above && field->or_else == field->low)
                ? snprintf(text, 96, "%g or ", field->or_else)
                : 0;
    const char *kind = field->type == DPE_FIELD_REAL ? "a number" : "a whole number";
    snprintf(text + n, 96 - (size_t)n,
             field->above ? "%s above %.15g, at most %.15g" : "%s from %.15g to %.15g", kind,
             field->low, field->high);
}

/* Of a text that is there: it is printed by those that read the table. */
static int check_text(const struct dpe_table_field *field, const char *text, char *message)
{
    size_t n = text != NULL ? strlen(text) : 1;
    bool good = n >= 1 && n <= DPE_FIELD_MOST_TEXT;
    for (size_t i = 0; text != NULL && i < n; i++) {
        good = good && text[i] >= ' ' && text[i] <= '~';
    }
    return good ? DPE_TABLE_OK
                : dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                 "%s: expected 1 to %d printable ASCII characters", field->name,
                                 DPE_FIELD_MOST_TEXT);
}

/* Every element within the field's range; NaN is within none. */
static int check_range(const struct dpe_table_field *field, const struct dpe_table_values *values,
                       char *message)
{
    const void *data = dpe_field_data(field, values);
    if (field->type == DPE_FIELD_TEXT) {
        return check_text(field, data, message);
    }
    size_t n = dpe_field_count(field, values);
    for (size_t i = 0; i < n; i++) {
        double value = dpe_field_get(field, data, i);
        bool low = field->above ? value > field->low : value >= field->low;
        if ((!low || !(value <= field->high)) && value != field->or_else) {
            char expected[96];
            char index[32] = "";
            describe_range(field, expected);
            if (dpe_field_rank(field) > 0) {
                snprintf(index, sizeof index, "[%zu]", i);
            }
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE, "%s%s is %.15g, expected %s",
                                  field->name, index, value, expected);
        }
    }
    return DPE_TABLE_OK;
}

static int check_ranges(const struct dpe_table_values *values, char *message)
{
    int error = DPE_TABLE_OK;
    for (size_t i = 0; i < dpe_n_table_fields && error == DPE_TABLE_OK; i++) {
        error = dpe_field_applies(&dpe_table_fields[i], values)
                    ? check_range(&dpe_table_fields[i], values, message)
                    : DPE_TABLE_OK;
    }
    return error;
}

static int check_shape(const struct dpe_table_values *values, char *message)
{
    const struct {
        const char *name;
        int64_t value, low, high;
    } sizes[] = {
        {"n_layers", values->n_layers, 1, 1 << 16},
        {"n_heads", values->n_heads, 1, 1 << 16},
        {"n_kv_heads", values->n_kv_heads, 1, values->n_heads},
        {"n_pairs", values->n_pairs, 1, 1 << 15},
        {"n_groups", values->n_groups, 1, values->n_pairs},
        {"local_window", values->window, values->frequencies == 0, values->length},
        {"top_k", values->top_k, 0, values->n_pairs},
        {"n_bands", values->n_bands, 0, DPE_TABLE_MOST_BANDS},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].value < sizes[i].low || sizes[i].value > sizes[i].high) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE, "%s is %lld, expected %lld to %lld",
                                  sizes[i].name, (long long)sizes[i].value, (long long)sizes[i].low,
                                  (long long)sizes[i].high);
        }
    }
    if (values->head_dim != 2 * values->n_pairs) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "head_dim is %lld, expected twice the %lld pairs",
                              (long long)values->head_dim, (long long)values->n_pairs);
    }
    return values->n_heads % values->n_kv_heads != 0
               ? dpe_table_fail(
                     message, DPE_TABLE_BAD_FILE,
                     "expected a multiple of the %lld KV heads as query heads, found %lld",
                     (long long)values->n_kv_heads, (long long)values->n_heads)
               : DPE_TABLE_OK;
}

static int check_groups(const struct dpe_table_values *values, char *message)
{
    const int32_t *edge = values->group_edge;
    if (edge[0] != 0 || edge[values->n_groups] != values->n_pairs) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "group_edge runs from %d to %d, expected 0 to %lld", edge[0],
                              edge[values->n_groups], (long long)values->n_pairs);
    }
    for (int64_t g = 0; g < values->n_groups; g++) {
        if (edge[g + 1] <= edge[g]) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "group_edge[%lld] = %d does not increase", (long long)g + 1,
                                  edge[g + 1]);
        }
    }
    return DPE_TABLE_OK;
}

int dpe_table_has_method(const struct dpe_table_values *values)
{
    bool other = values->unrounded != 0 || values->n_bands > 0;
    for (int64_t j = 0; values->applied_inv_freq != NULL && j < values->n_pairs; j++) {
        other = other || values->applied_inv_freq[j] != values->inv_freq[j];
    }
    return other;
}

/* Whether all layers have the same factor. */
static bool is_level(const struct dpe_table_values *values)
{
    return values->logit_scale_first == 1.0 && values->logit_scale_middle == 1.0 &&
           values->logit_scale_last == 1.0;
}

/* Whether the temperature is more than a constant on all logits. */
static bool is_warmer(const struct dpe_table_values *values)
{
    bool more = values->head_scale != NULL;
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        const bool alone = field->part == DPE_PART_TEMPERATURE && !field->detail &&
                           field->at != offsetof(struct dpe_table_values, logit_scale);
        more = more ||
               (alone && dpe_field_get(field, dpe_field_data(field, values), 0) != field->absent);
    }
    return more;
}

int dpe_table_has_temperature(const struct dpe_table_values *values)
{
    return values->logit_scale != 1.0 || is_warmer(values);
}

int dpe_table_needs_adapter(const struct dpe_table_values *values)
{
    bool moves = is_warmer(values) || dpe_table_has_method(values) == 0 || values->n_bands > 0 ||
                 values->selection != NULL;
    /* Runtimes have the factor on the pairs that rotate alone. */
    moves = moves || (values->inv_freq[values->n_pairs - 1] == 0.0 && values->logit_scale != 1.0);
    for (int64_t j = 0; values->applied_inv_freq != NULL && j < values->n_pairs; j++) {
        moves = moves || (values->applied_inv_freq[j] == 0.0 && values->inv_freq[j] > 0.0);
    }
    for (int64_t g = 0; g < values->n_groups; g++) {
        moves = moves || values->scale_factor[g] != 1.0;
    }
    return values->frequencies == 0 && moves;
}

/* What positions have and frequencies do not. */
static int check_frequencies(const struct dpe_table_values *values, char *message)
{
    if (values->frequencies != 0 && (values->window != 0 || values->top_k != values->n_pairs ||
                                     is_warmer(values) || dpe_table_has_method(values) != 0)) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "a table of frequencies has no near window, key pairs, log-n, "
                              "factors by layer, head or "
                              "distance or plan of another method; found local_window %lld, top_k "
                              "%lld, log_n_length %g",
                              (long long)values->window, (long long)values->top_k,
                              values->log_n_length);
    }
    return DPE_TABLE_OK;
}

/* Pairs that do not rotate have 0 and come after all that do. */
static int check_rotations(const struct dpe_table_values *values, char *message)
{
    for (int64_t j = 0; j < values->n_pairs; j++) {
        bool still = values->inv_freq[j] == 0.0;
        if (still ? j == 0 : j > 0 && values->inv_freq[j - 1] == 0.0) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "inv_freq[%lld] is %g, expected a positive number (0 only for "
                                  "the last pairs, which do not rotate)",
                                  (long long)j, values->inv_freq[j]);
        }
        double applied =
            values->applied_inv_freq != NULL ? values->applied_inv_freq[j] : values->inv_freq[j];
        double factor = values->inv_freq[j] / applied;
        if (applied != 0.0 && (still || !(factor >= 1e-9 && factor <= 1e9))) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "applied_inv_freq[%lld] is %g, expected %s", (long long)j,
                                  applied,
                                  still ? "0 as in inv_freq" : "1e-9 to 1e9 times inv_freq, or 0");
        }
    }
    return DPE_TABLE_OK;
}

/* As many key pairs in every head as top_k says; with bands at most. */
static int check_mask(const struct dpe_table_values *values, char *message)
{
    for (int64_t row = 0; row < values->n_layers * values->n_heads; row++) {
        int64_t count = 0;
        for (int64_t j = 0; j < values->n_pairs; j++) {
            count += values->mask[row * values->n_pairs + j];
        }
        if (count != values->top_k && (values->n_bands == 0 || count > values->top_k)) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "mask of layer %lld, head %lld marks %lld pairs, top_k is %lld",
                                  (long long)(row / values->n_heads),
                                  (long long)(row % values->n_heads), (long long)count,
                                  (long long)values->top_k);
        }
    }
    return DPE_TABLE_OK;
}

static int check_presence(const struct dpe_table_values *values, char *message)
{
    bool there = values->schema_version != NULL && values->model_type != NULL &&
                 values->model_fingerprint != NULL;
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        there =
            there && (dpe_field_data(field, values) != NULL || !dpe_field_applies(field, values));
    }
    return there ? dpe_table_check_version(values->schema_version, NULL, message)
                 : dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "the table is incomplete: an array is missing");
}

/* HDF5 holds any bytes; JSON, which most forms of a table have inside, holds UTF-8. */
static int check_names(const struct dpe_table_values *values, char *message)
{
    const char *const names[][2] = {{"model_type", values->model_type},
                                    {"model_fingerprint", values->model_fingerprint}};
    int error = DPE_TABLE_OK;
    for (size_t i = 0; i < 2 && error == DPE_TABLE_OK; i++) {
        json_t *held = json_string(names[i][1]);
        error = held != NULL ? DPE_TABLE_OK
                             : dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                              "%s: expected UTF-8, found other bytes", names[i][0]);
        json_decref(held);
    }
    return error;
}

int dpe_table_check(const struct dpe_table_values *values, char *message)
{
    static int (*const checks[])(const struct dpe_table_values *, char *) = {
        check_shape,     check_presence,    check_names, check_ranges, check_groups,
        check_rotations, check_frequencies, check_bands, check_mask,
    };
    int error = DPE_TABLE_OK;
    for (size_t i = 0; i < sizeof checks / sizeof checks[0] && error == DPE_TABLE_OK; i++) {
        error = checks[i](values, message);
    }
    return error;
}

const struct dpe_table_values *dpe_table_values(const struct dpe_table *table)
{
    return &table->values;
}

static bool is_key_pair(const struct dpe_table_values *values, int64_t layer, int64_t head,
                        int64_t pair)
{
    return values->mask[(layer * values->n_heads + head) * values->n_pairs + pair] != 0;
}

/* Whether the pair of a query head has the maps of the band, and not the first one's. */
static bool has_maps(const struct dpe_table_values *values, int64_t layer, int64_t head,
                     int64_t pair, enum dpe_table_band band)
{
    const bool all =
        values->n_bands > 0 && row_of(values, (int)band, 0)[DPE_TABLE_BAND_HEADS] == 0.0;
    return all || is_key_pair(values, layer, head, pair);
}

/* Of the group that the pair is in. */
static double group_scale(const struct dpe_table_values *values, int64_t pair)
{
    int64_t g = 0;
    while (values->group_edge[g + 1] <= pair) {
        g++;
    }
    return values->scale_factor[g];
}

double dpe_table_scale(const struct dpe_table *table, int64_t layer, int64_t head, int64_t pair)
{
    const struct dpe_table_values *values = &table->values;
    return is_key_pair(values, layer, head, pair) ? group_scale(values, pair) : 1.0;
}

/* ln x, or what takes its place with a decay. */
static double grown(double decay, double x)
{
    return decay > 0.0 ? -expm1(-decay * log(x)) : log(x);
}

double dpe_table_query_scale(const struct dpe_table *table, int64_t layer, int64_t position)
{
    const struct dpe_table_values *values = &table->values;
    double a = values->attention_scaling;
    double scale = a * a * values->logit_scale / sqrt((double)values->head_dim);
    double t = values->n_layers > 1 ? (double)layer / (double)(values->n_layers - 1) : 0.0;
    if (!is_level(values)) {
        scale *= (1.0 - t) * (1.0 - t) * values->logit_scale_first +
                 2.0 * t * (1.0 - t) * values->logit_scale_middle +
                 t * t * values->logit_scale_last;
    }
    if (!(values->log_n_length > 0.0)) {
        return scale;
    }
    double ratio = grown(values->log_n_decay, (double)position + 1.0) /
                   grown(values->log_n_decay, values->log_n_length);
    return scale * pow(fmax(1.0, ratio), values->log_n_power);
}

double dpe_table_position(const struct dpe_table *table, int64_t layer, int64_t head, int64_t pair,
                          enum dpe_table_band band, enum dpe_table_side side, int64_t position)
{
    bool frequencies = table->values.frequencies != 0;
    if (table->values.n_bands > 0) {
        const bool own = has_maps(&table->values, layer, head, pair, band);
        return band_position(&table->values, own ? (int)band : 0, side == DPE_TABLE_KEY, pair,
                             position);
    }
    double scale =
        band == DPE_TABLE_FAR || frequencies ? dpe_table_scale(table, layer, head, pair) : 1.0;
    if (scale == 1.0 || frequencies) {
        return (double)position / scale;
    }
    double window = (double)table->values.window;
    double far = (double)position / scale;
    double kept = window / scale;
    if (table->values.unrounded == 0) {
        far = floor(far);
        kept = floor(kept);
    }
    return far + (side == DPE_TABLE_QUERY ? window - kept : 0.0);
}

void dpe_table_cos_sin(const struct dpe_table *table, int64_t layer, int64_t head,
                       enum dpe_table_band band, enum dpe_table_side side, int64_t first,
                       int64_t count, float *cosines, float *sines)
{
    const struct dpe_table_values *values = &table->values;
    const double *inv_freq =
        values->applied_inv_freq != NULL ? values->applied_inv_freq : values->inv_freq;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < values->n_pairs; j++) {
            double position = dpe_table_position(table, layer, head, j, band, side, first + i);
            double frequency = inv_freq[j];
            if (values->frequencies != 0) {
                /* As a runtime with a factor for each pair has it: the frequency is divided. */
                position = (double)(first + i);
                frequency /= group_scale(values, j);
            }
            /* The product is rounded to float32 as the checkpoint's training code rounds it. */
            float angle = (float)position * (float)frequency;
            const bool moved = band > DPE_TABLE_NEAR && side == DPE_TABLE_QUERY &&
                               has_maps(values, layer, head, j, band);
            const double scale = moved ? values->far_scale : 1.0;
            cosines[i * values->n_pairs + j] = (float)(scale * cos((double)angle));
            sines[i * values->n_pairs + j] = (float)(scale * sin((double)angle));
        }
    }
}
