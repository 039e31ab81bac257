/* What schema versions after 1 add to a DPE table: the attention temperature, and the plan of another
 * method. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan/plan.h"
#include "outputs/h5/h5_file.h"
#include "outputs/h5/h5_put.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"

struct dpe_temperature dpe_table_temperature(const struct dpe_table_values *values)
{
    return (struct dpe_temperature){values->log_n_length, values->log_n_power, values->log_n_decay,
                                    values->logit_scale};
}

const char *dpe_table_near_text(const struct dpe_table_values *values)
{
    return values->frequencies != 0 ? "none" : "distance < local_window";
}

const char *dpe_table_rounding_text(const struct dpe_table_values *values, bool methods)
{
    return values->frequencies != 0 ? "none"
           : methods ? "separable: floor(m/s) - floor(n/s) + w - floor(w/s), without floor where "
                       "unrounded is 1"
                     : "separable: floor(m/s) - floor(n/s) + w - floor(w/s)";
}

static dpe_status put_temperature(struct dpe_h5 *table, const char *folder,
                                  const struct dpe_table_values *values, struct dpe_error *err)
{
    const struct table_entry entries[] = {
        {"/logit_scale", DPE_COL_F64, &values->logit_scale,
         "factor on all logits besides attention_scaling squared", "1", NULL},
        {"/log_n_length", DPE_COL_F64, &values->log_n_length,
         "N: the logits of query m carry max(1, ln(m + 1) / ln N) to log_n_power; 0 = off",
         "tokens", NULL},
        {"/log_n_power", DPE_COL_F64, &values->log_n_power, "exponent of the log-n factor", "1",
         NULL},
        {"/log_n_decay", DPE_COL_F64, &values->log_n_decay,
         "B: above 0, 1 - x^-B takes the place of ln x", "1", NULL},
    };
    return dpe_h5_table_put_all(table, folder, entries, COUNT(entries), NULL, 0, err);
}

static dpe_status put_method(struct dpe_h5 *table, const char *folder,
                             const struct dpe_table_values *values, struct dpe_error *err)
{
    const uint8_t unrounded = values->unrounded != 0;
    const struct table_entry rounding = {
        "/unrounded", DPE_COL_U8, &unrounded, "whether far positions are real numbers, without floor",
        "1",          "no yes"};
    const struct table_entry rotations = {
        "/applied_inv_freq",
        DPE_COL_F64,
        values->applied_inv_freq != NULL ? values->applied_inv_freq : values->inv_freq,
        "rotation frequency that is applied in place of the model's own",
        "radians/token",
        NULL};
    const struct table_axis pairs = {"/pair", values->n_pairs};
    dpe_status status = dpe_h5_table_put(table, folder, &rounding, NULL, 0, err);
    return status == DPE_OK ? dpe_h5_table_put(table, folder, &rotations, &pairs, 1, err) : status;
}

/* With an axis of its own: entries differ in their number of bands. */
static dpe_status put_bands(struct dpe_h5 *table, const char *folder,
                            const struct dpe_table_values *values, struct dpe_error *err)
{
    char path[128];
    const int64_t n = 2 * values->n_bands * (DPE_TABLE_BAND_NUMBERS + 2 * values->n_pairs);
    if (n == 0) {
        return DPE_OK;
    }
    int64_t *numbers = dpe_alloc((size_t)n, sizeof *numbers);
    if (numbers == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for an axis");
    }
    for (int64_t i = 0; i < n; i++) {
        numbers[i] = i;
    }
    snprintf(path, sizeof path, "%s/band_number", folder);
    const struct dpe_column scale = {.path = path,
                                     .type = DPE_COL_I64,
                                     .rank = 1,
                                     .dims = {n},
                                     .data = numbers,
                                     .long_name = "number in the rows of bands",
                                     .units = "1",
                                     .is_scale = true};
    const struct table_entry bands = {
        "/bands", DPE_COL_F64, values->bands,
        "for each band a row for queries and one for keys: 10 numbers, a scale and an offset of each pair", "1",
        NULL};
    const struct table_axis axis = {path, n};
    dpe_status status = dpe_h5_put(table, &scale, err);
    free(numbers);
    return status == DPE_OK ? dpe_h5_table_put(table, folder, &bands, &axis, 1, err) : status;
}

dpe_status dpe_h5_put_later_in(struct dpe_h5 *table, const char *folder,
                               const struct dpe_table_values *values, bool methods,
                               struct dpe_error *err)
{
    dpe_status status = put_temperature(table, folder, values, err);
    if (status == DPE_OK && methods) {
        status = put_method(table, folder, values, err);
    }
    return status == DPE_OK && methods ? put_bands(table, folder, values, err) : status;
}

dpe_status dpe_h5_put_later(struct dpe_h5 *table, const struct dpe_table_values *values,
                            struct dpe_error *err)
{
    const char *version = dpe_table_version_needed(values);
    if (strncmp(version, "1.", 2) == 0) {
        return DPE_OK;
    }
    dpe_status status =
        dpe_h5_put_later_in(table, "/table", values, dpe_table_has_method(values) != 0, err);
    return status == DPE_OK ? dpe_h5_set_version(table, version, err) : status;
}
