/* Entries of DPE tables as HDF5: the fields of outputs/table/fields.h. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/plan/plan.h"
#include "outputs/h5/h5_put.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"
#include "outputs/table/fields.h"

struct dpe_temperature dpe_table_temperature(const struct dpe_table_values *values)
{
    return (struct dpe_temperature){values->log_n_length, values->log_n_power, values->log_n_decay,
                                    values->logit_scale};
}

static enum dpe_column_type column_of(const struct dpe_table_field *field)
{
    static const enum dpe_column_type types[] = {
        [DPE_FIELD_WHOLE] = DPE_COL_I64, [DPE_FIELD_REAL] = DPE_COL_F64,
        [DPE_FIELD_EDGE] = DPE_COL_I32,  [DPE_FIELD_FLAG] = DPE_COL_U8,
        [DPE_FIELD_MARKS] = DPE_COL_U8,  [DPE_FIELD_TEXT] = DPE_COL_STRING,
    };
    return field->whole_in_h5 ? DPE_COL_I64 : types[field->type];
}

/* The elements in the type of the column, where that is another than in memory; owned. */
static dpe_status convert(const struct dpe_table_field *field, const void *data, size_t n,
                          void **converted, struct dpe_error *err)
{
    if (!field->whole_in_h5 && field->type != DPE_FIELD_FLAG) {
        *converted = NULL;
        return DPE_OK;
    }
    int64_t *whole = dpe_alloc(n, sizeof *whole);
    uint8_t *flags = (uint8_t *)whole;
    if (whole == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %s", field->name);
    }
    for (size_t i = 0; i < n; i++) {
        double value = dpe_field_get(field, data, i);
        if (field->whole_in_h5) {
            whole[i] = (int64_t)value;
        } else {
            flags[i] = value != 0.0;
        }
    }
    *converted = whole;
    return DPE_OK;
}

/* Entries differ in their number of bands, so each has an axis of its own, at *path. */
static dpe_status put_band_numbers(struct dpe_h5 *file, const char *folder, int64_t n,
                                   char path[128], struct dpe_error *err)
{
    snprintf(path, 128, "%s/band_number", folder);
    return dpe_h5_put_count(file, path, n, "number in the rows of bands", err);
}

static dpe_status put_field(struct dpe_h5 *file, const char *folder,
                            const struct dpe_table_field *field,
                            const struct dpe_table_values *values, struct dpe_error *err)
{
    static const char *const scales[DPE_AXES] = {
        [DPE_AXIS_GROUP] = "/group", [DPE_AXIS_EDGE] = "/edge", [DPE_AXIS_PAIR] = "/pair",
        [DPE_AXIS_LAYER] = "/layer", [DPE_AXIS_HEAD] = "/head",
    };
    const void *data = dpe_field_data(field, values);
    const bool flags = field->type == DPE_FIELD_FLAG || field->type == DPE_FIELD_MARKS;
    struct table_axis axes[DPE_FIELD_RANK] = {{0}};
    char name[64];
    char own[128];
    void *converted = NULL;
    dpe_status status = convert(field, data, dpe_field_count(field, values), &converted, err);
    if (status == DPE_OK && field->axes[0] == DPE_AXIS_BAND_NUMBER) {
        status = put_band_numbers(file, folder, dpe_field_extent(field->axes[0], values), own, err);
    }
    if (status != DPE_OK) {
        free(converted);
        return status;
    }
    for (int i = 0; i < DPE_FIELD_RANK; i++) {
        axes[i] =
            (struct table_axis){field->axes[i] == DPE_AXIS_BAND_NUMBER ? own : scales[field->axes[i]], dpe_field_extent(field->axes[i], values)};
    }
    snprintf(name, sizeof name, "/%s", field->name);
    const struct table_entry entry = {name,
                                      column_of(field),
                                      converted != NULL ? converted : data,
                                      field->long_name,
                                      field->units,
                                      flags ? "no yes" : NULL};
    status = dpe_h5_table_put(file, folder, &entry, axes, dpe_field_rank(field), err);
    free(converted);
    return status;
}

dpe_status dpe_h5_put_entry(struct dpe_h5 *file, const char *folder,
                            const struct dpe_table_values *values, unsigned parts,
                            struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < dpe_n_table_fields && status == DPE_OK; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        if (!dpe_field_written(field, values, parts)) {
            continue;
        }
        if (field->type == DPE_FIELD_TEXT) {
            status = dpe_h5_attr_text(file, folder, field->name, dpe_field_data(field, values), err);
        } else {
            status = put_field(file, folder, &dpe_table_fields[i], values, err);
        }
    }
    return status;
}

dpe_status dpe_h5_put_conventions(struct dpe_h5 *file, const struct dpe_table_values *values,
                                  unsigned parts, struct dpe_error *err)
{
    const bool frequencies = values->frequencies != 0;
    dpe_status status =
        frequencies ? dpe_h5_attr_text(file, "/table", "moves", "frequencies", err) : DPE_OK;
    for (size_t i = 0; i < dpe_n_table_conventions && status == DPE_OK; i++) {
        const struct dpe_table_convention *convention = &dpe_table_conventions[i];
        const char *word = dpe_table_convention(convention, frequencies);
        const bool explained =
            convention->explained != NULL && !(convention->floors && frequencies);
        const bool floors = convention->floors && (parts >> DPE_PART_METHOD & 1) != 0;
        char text[160];
        snprintf(text, sizeof text, "%s%s%s", word, explained ? convention->explained : "",
                 floors ? ", without floor where unrounded is 1" : "");
        status = dpe_h5_attr_text(file, "/table", convention->name, text, err);
    }
    return status;
}
