/* DPE tables: what makes one valid, and what a runtime needs from it. */
#include "outputs/table/dpe_table_internal.h"

#include <math.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Sizes are bounded before they are multiplied or allocated. */
static int check_shape(const struct dpe_table_values *values, char *message)
{
    const struct {
        const char *name;
        int64_t value, high;
    } sizes[] = {
        {"n_layers", values->n_layers, 1 << 16},
        {"n_heads", values->n_heads, 1 << 16},
        {"n_kv_heads", values->n_kv_heads, values->n_heads},
        {"n_pairs", values->n_pairs, 1 << 15},
        {"n_groups", values->n_groups, values->n_pairs},
        {"trained_length", values->trained_length, INT64_C(1) << 40},
        {"length", values->length, INT64_C(1) << 40},
        /* A table of frequencies has no window. */
        {"window", values->window + (values->frequencies != 0), values->length},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].high) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE, "%s is %lld, expected 1 to %lld",
                                  sizes[i].name, (long long)sizes[i].value,
                                  (long long)sizes[i].high);
        }
    }
    if (values->head_dim != 2 * values->n_pairs) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "head_dim is %lld, expected twice the %lld pairs",
                              (long long)values->head_dim, (long long)values->n_pairs);
    }
    if (values->n_heads % values->n_kv_heads != 0) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "expected a multiple of the %lld KV heads as query heads, found %lld",
                              (long long)values->n_kv_heads, (long long)values->n_heads);
    }
    if (values->top_k < 0 || values->top_k > values->n_pairs) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE, "top_k is %lld, expected 0 to %lld",
                              (long long)values->top_k, (long long)values->n_pairs);
    }
    return DPE_TABLE_OK;
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
        double scale = values->scale_factor[g];
        if (!(scale >= 1.0 && scale <= 0x1p40)) {
            return dpe_table_fail(
                message, DPE_TABLE_BAD_FILE,
                "scale_factor[%lld] is %g, expected a number of 1 or more, at most "
                "2^40",
                (long long)g, scale);
        }
        double effective = values->effective_length[g];
        if (!(effective >= 1.0 || effective == -1.0) || !isfinite(effective)) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "effective_length[%lld] is %g, expected 1 or more, or -1",
                                  (long long)g, effective);
        }
    }
    return DPE_TABLE_OK;
}

/* ------------------------------------------------------------------------ version, temperature */

bool dpe_table_knows_version(const char *version)
{
    return strncmp(version, "1.", 2) == 0 || dpe_table_version_has_temperature(version);
}

bool dpe_table_version_has_temperature(const char *version)
{
    return strncmp(version, "2.", 2) == 0 || dpe_table_version_has_entries(version) ||
           dpe_table_version_has_frequencies(version) || dpe_table_version_has_methods(version);
}

bool dpe_table_version_has_entries(const char *version)
{
    return strncmp(version, "3.", 2) == 0;
}

bool dpe_table_version_has_frequencies(const char *version)
{
    return strncmp(version, "4.", 2) == 0;
}

bool dpe_table_version_has_methods(const char *version)
{
    return strncmp(version, "5.", 2) == 0 || dpe_table_version_has_bands(version);
}

bool dpe_table_version_has_bands(const char *version)
{
    return strncmp(version, "6.", 2) == 0;
}

int dpe_table_has_method(const struct dpe_table_values *values)
{
    bool other = values->unrounded != 0 || values->n_bands > 0;
    for (int64_t j = 0; values->applied_inv_freq != NULL && j < values->n_pairs; j++) {
        other = other || values->applied_inv_freq[j] != values->inv_freq[j];
    }
    return other;
}

int dpe_table_has_temperature(const struct dpe_table_values *values)
{
    return values->logit_scale != 1.0 || values->log_n_length != 0.0;
}

int dpe_table_needs_adapter(const struct dpe_table_values *values)
{
    bool moves = values->log_n_length != 0.0 || dpe_table_has_method(values) == 0 ||
                 values->n_bands > 0;
    /* Runtimes have the factor on the pairs that rotate alone. */
    moves = moves || (values->inv_freq[values->n_pairs - 1] == 0.0 && values->logit_scale != 1.0);
    for (int64_t g = 0; g < values->n_groups; g++) {
        moves = moves || values->scale_factor[g] != 1.0;
    }
    return values->frequencies == 0 && moves;
}

const char *dpe_table_version_needed(const struct dpe_table_values *values)
{
    return values->frequencies != 0            ? "4.0.0"
           : values->n_bands > 0               ? DPE_TABLE_VERSION_OF_BANDS
           : dpe_table_has_method(values) != 0 ? DPE_TABLE_VERSION_OF_METHODS
           : dpe_table_has_temperature(values) ? "2.0.0"
                                               : "1.1.0";
}

void dpe_table_no_temperature(struct dpe_table_values *values)
{
    values->logit_scale = 1.0;
    values->log_n_length = 0.0;
    values->log_n_power = 1.0;
    values->log_n_decay = 0.0;
}

static int check_temperature(const struct dpe_table_values *values, char *message)
{
    double n = values->log_n_length;
    if (n != 0.0 && !(n > 1.0 && isfinite(n))) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "log_n_length is %g, expected 0 (off) or a number above 1", n);
    }
    const struct {
        const char *name;
        double value, high;
        bool zero;
    } numbers[] = {
        {"logit_scale", values->logit_scale, 1024.0, false},
        {"log_n_power", values->log_n_power, 64.0, false},
        {"log_n_decay", values->log_n_decay, 64.0, true},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        double value = numbers[i].value;
        bool low = numbers[i].zero ? value >= 0.0 : value > 0.0;
        if (!low || !(value <= numbers[i].high)) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "%s is %g, expected a number %s 0, at most %g", numbers[i].name,
                                  value, numbers[i].zero ? "not below" : "above", numbers[i].high);
        }
    }
    if (dpe_table_has_temperature(values) &&
        !dpe_table_version_has_temperature(values->schema_version)) {
        return dpe_table_fail(
            message, DPE_TABLE_BAD_FILE,
            "schema version %.32s has no temperature (logit_scale, log_n_length), "
            "expected 2.x: a reader of that version would leave it out",
            values->schema_version);
    }
    return DPE_TABLE_OK;
}

/* What positions have and frequencies do not. */
static int check_frequencies(const struct dpe_table_values *values, char *message)
{
    if ((values->frequencies != 0) != dpe_table_version_has_frequencies(values->schema_version)) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "schema version %.32s is %s table of frequencies",
                              values->schema_version, values->frequencies != 0 ? "no" : "that of a");
    }
    if (values->frequencies != 0 &&
        (values->window != 0 || values->top_k != values->n_pairs || values->log_n_length != 0.0)) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "a table of frequencies has no near window, key pairs or log-n; found "
                              "local_window %lld, top_k %lld, log_n_length %g",
                              (long long)values->window, (long long)values->top_k,
                              values->log_n_length);
    }
    return DPE_TABLE_OK;
}

/* Pairs that do not rotate have 0 and come after all that do. */
static int check_rotations(const struct dpe_table_values *values, char *message)
{
    for (int64_t j = 0; j < values->n_pairs; j++) {
        bool still = j > 0 && values->inv_freq[j] == 0.0;
        bool order = j == 0 || values->inv_freq[j - 1] > 0.0 || still;
        if ((!still && !(values->inv_freq[j] > 0.0)) || !order || !isfinite(values->inv_freq[j])) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "inv_freq[%lld] is %g, expected a positive number (0 only for "
                                  "the last pairs, which do not rotate)",
                                  (long long)j, values->inv_freq[j]);
        }
        double applied = values->applied_inv_freq != NULL ? values->applied_inv_freq[j]
                                                          : values->inv_freq[j];
        double factor = values->inv_freq[j] / applied;
        if (still ? applied != 0.0 : !(factor >= 1e-9 && factor <= 1e9)) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "applied_inv_freq[%lld] is %g, expected %s", (long long)j, applied,
                                  still ? "0 as in inv_freq" : "1e-9 to 1e9 times inv_freq");
        }
    }
    return DPE_TABLE_OK;
}

/* What only version 5 has. */
static int check_method(const struct dpe_table_values *values, char *message)
{
    if (values->unrounded != 0 && values->unrounded != 1) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE, "unrounded is %d, expected 0 or 1",
                              values->unrounded);
    }
    if (dpe_table_has_method(values) != 0 && !dpe_table_version_has_methods(values->schema_version)) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "schema version %.32s has no plan of another method (unrounded, "
                              "applied_inv_freq), expected 5.x: a reader of that version would apply it "
                              "as DPE",
                              values->schema_version);
    }
    return DPE_TABLE_OK;
}

static int check_mask(const struct dpe_table_values *values, char *message)
{
    for (int64_t row = 0; row < values->n_layers * values->n_heads; row++) {
        int64_t count = 0;
        for (int64_t j = 0; j < values->n_pairs; j++) {
            uint8_t bit = values->mask[row * values->n_pairs + j];
            if (bit > 1) {
                return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                      "mask of layer %lld, head %lld holds %d, expected 0 or 1",
                                      (long long)(row / values->n_heads),
                                      (long long)(row % values->n_heads), bit);
            }
            count += bit;
        }
        if (count != values->top_k) {
            return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                                  "mask of layer %lld, head %lld marks %lld pairs, top_k is %lld",
                                  (long long)(row / values->n_heads),
                                  (long long)(row % values->n_heads), (long long)count,
                                  (long long)values->top_k);
        }
    }
    return DPE_TABLE_OK;
}

int dpe_table_check(const struct dpe_table_values *values, char *message)
{
    int error = check_shape(values, message);
    if (error != DPE_TABLE_OK) {
        return error;
    }
    if (values->group_edge == NULL || values->scale_factor == NULL ||
        values->effective_length == NULL || values->inv_freq == NULL || values->mask == NULL ||
        values->schema_version == NULL || values->model_type == NULL ||
        values->model_fingerprint == NULL) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "the table is incomplete: an array is missing");
    }
    error = check_groups(values, message);
    if (error != DPE_TABLE_OK) {
        return error;
    }
    error = check_rotations(values, message);
    if (error != DPE_TABLE_OK) {
        return error;
    }
    if (!(values->attention_scaling > 0.0) || !isfinite(values->attention_scaling)) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "attention_scaling is %g, expected a positive number",
                              values->attention_scaling);
    }
    error = check_temperature(values, message);
    error = error != DPE_TABLE_OK ? error : check_frequencies(values, message);
    error = error != DPE_TABLE_OK ? error : check_method(values, message);
    error = error != DPE_TABLE_OK ? error : dpe_table_check_bands(values, message);
    return error != DPE_TABLE_OK ? error : check_mask(values, message);
}

void dpe_table_values_free(struct dpe_table_values *values)
{
    free(values->schema_version);
    free(values->model_type);
    free(values->model_fingerprint);
    free(values->group_edge);
    free(values->effective_length);
    free(values->scale_factor);
    free(values->inv_freq);
    free(values->applied_inv_freq);
    free(values->mask);
    free(values->bands);
    *values = (struct dpe_table_values){0};
}

/* Which group a pair is in, so that questions need no search. */
static int index_groups(struct dpe_table *table)
{
    const struct dpe_table_values *values = &table->values;
    table->group = malloc((size_t)values->n_pairs * sizeof *table->group);
    if (table->group == NULL) {
        return DPE_TABLE_MEMORY;
    }
    for (int64_t g = 0; g < values->n_groups; g++) {
        for (int32_t j = values->group_edge[g]; j < values->group_edge[g + 1]; j++) {
            table->group[j] = (int32_t)g;
        }
    }
    return DPE_TABLE_OK;
}

int dpe_table_adopt(struct dpe_table_values *values, struct dpe_table **table, char *message)
{
    int error = dpe_table_check(values, message);
    struct dpe_table *made = NULL;
    if (error == DPE_TABLE_OK) {
        made = calloc(1, sizeof *made);
        error = made != NULL ? DPE_TABLE_OK : DPE_TABLE_MEMORY;
    }
    if (error == DPE_TABLE_OK) {
        made->values = *values;
        error = index_groups(made);
    }
    if (error == DPE_TABLE_OK && values->applied_inv_freq != NULL &&
        memcmp(values->applied_inv_freq, values->inv_freq,
               (size_t)values->n_pairs * sizeof *values->inv_freq) == 0) {
        free(values->applied_inv_freq);
        made->values.applied_inv_freq = NULL;
    }
    if (error != DPE_TABLE_OK) {
        if (error == DPE_TABLE_MEMORY) {
            dpe_table_fail(message, DPE_TABLE_MEMORY, "out of memory");
        }
        free(made);
        dpe_table_values_free(values);
        return error;
    }
    *values = (struct dpe_table_values){0};
    *table = made;
    return DPE_TABLE_OK;
}

static void *copy_bytes(const void *from, size_t n)
{
    void *to = malloc(n > 0 ? n : 1);
    if (to != NULL) {
        memcpy(to, from, n);
    }
    return to;
}

int dpe_table_make(const struct dpe_table_values *values, struct dpe_table **table, char *message)
{
    int error = dpe_table_check(values, message);
    if (error != DPE_TABLE_OK) {
        return error;
    }
    struct dpe_table_values copy = *values;
    copy.applied_inv_freq = NULL;
    copy.bands = NULL;
    size_t groups = (size_t)values->n_groups;
    size_t pairs = (size_t)values->n_pairs;
    copy.schema_version = copy_bytes(values->schema_version, strlen(values->schema_version) + 1);
    copy.model_type = copy_bytes(values->model_type, strlen(values->model_type) + 1);
    copy.model_fingerprint =
        copy_bytes(values->model_fingerprint, strlen(values->model_fingerprint) + 1);
    copy.group_edge = copy_bytes(values->group_edge, (groups + 1) * sizeof *copy.group_edge);
    copy.effective_length =
        copy_bytes(values->effective_length, groups * sizeof *copy.effective_length);
    copy.scale_factor = copy_bytes(values->scale_factor, groups * sizeof *copy.scale_factor);
    copy.inv_freq = copy_bytes(values->inv_freq, pairs * sizeof *copy.inv_freq);
    if (values->applied_inv_freq != NULL) {
        copy.applied_inv_freq =
            copy_bytes(values->applied_inv_freq, pairs * sizeof *copy.applied_inv_freq);
    }
    copy.mask = copy_bytes(values->mask, (size_t)(values->n_layers * values->n_heads) * pairs);
    if (values->bands != NULL) {
        copy.bands =
            copy_bytes(values->bands, (size_t)dpe_table_band_count(values) * sizeof *copy.bands);
    }
    if (copy.schema_version == NULL || copy.model_type == NULL || copy.model_fingerprint == NULL ||
        copy.group_edge == NULL || copy.effective_length == NULL || copy.scale_factor == NULL ||
        copy.inv_freq == NULL || copy.mask == NULL ||
        (copy.bands == NULL) != (values->bands == NULL) ||
        (copy.applied_inv_freq == NULL) != (values->applied_inv_freq == NULL)) {
        dpe_table_values_free(&copy);
        return dpe_table_fail(message, DPE_TABLE_MEMORY, "out of memory");
    }
    return dpe_table_adopt(&copy, table, message);
}

void dpe_table_close(struct dpe_table *table)
{
    if (table == NULL) {
        return;
    }
    for (int64_t i = 0; i < table->n_entries; i++) {
        dpe_table_close(table->entries[i]);
    }
    if (table->entries == NULL) {
        dpe_table_values_free(&table->values);
        free(table->group);
    }
    free(table->entries);
    free(table);
}

const struct dpe_table_values *dpe_table_values(const struct dpe_table *table)
{
    return &table->values;
}

double dpe_table_scale(const struct dpe_table *table, int64_t layer, int64_t head, int64_t pair)
{
    const struct dpe_table_values *values = &table->values;
    int64_t row = layer * values->n_heads + head;
    bool key_pair = values->mask[row * values->n_pairs + pair] != 0;
    return key_pair ? values->scale_factor[table->group[pair]] : 1.0;
}

/* ln x, or what takes its place with a decay. */
static double grown(double decay, double x)
{
    return decay > 0.0 ? -expm1(-decay * log(x)) : log(x);
}

double dpe_table_query_scale(const struct dpe_table *table, int64_t position)
{
    const struct dpe_table_values *values = &table->values;
    double a = values->attention_scaling;
    double scale = a * a * values->logit_scale / sqrt((double)values->head_dim);
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
        return dpe_table_band_position(&table->values, (int)band, side == DPE_TABLE_KEY, pair,
                                       position);
    }
    double scale = band == DPE_TABLE_FAR || frequencies ? dpe_table_scale(table, layer, head, pair)
                                                        : 1.0;
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
                frequency /= values->scale_factor[table->group[j]];
            }
            /* The product is rounded to float32 as the checkpoint's training code rounds it. */
            float angle = (float)position * (float)frequency;
            cosines[i * values->n_pairs + j] = (float)cos((double)angle);
            sines[i * values->n_pairs + j] = (float)sin((double)angle);
        }
    }
}
