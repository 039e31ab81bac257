/* Entries of DPE tables as HDF5: the fields of outputs/table/fields.h. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/plan/plan.h"
#include "outputs/h5/h5.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"
#include "outputs/table/fields.h"

struct dpe_temperature dpe_table_temperature(const struct dpe_table_values *values)
{
    struct dpe_temperature temperature = {
        .log_n_length = values->log_n_length,
        .log_n_power = values->log_n_power,
        .log_n_decay = values->log_n_decay,
        .logit_scale = values->logit_scale,
        .depth = {values->logit_scale_first, values->logit_scale_middle, values->logit_scale_last}};
    for (int64_t i = 0; values->head_scale != NULL && i < values->n_layers * values->n_heads; i++) {
        dpe_temperature_set_head(&temperature, i / values->n_heads, i % values->n_heads,
                                 values->head_scale[i]);
    }
    return temperature;
}

void dpe_table_put_heads(const struct dpe_temperature *temperature, double *room,
                         struct dpe_table_values *values)
{
    values->head_scale = temperature->n_heads > 0 ? room : NULL;
    for (int64_t i = 0; values->head_scale != NULL && i < values->n_layers * values->n_heads; i++) {
        room[i] = dpe_temperature_head(temperature, i / values->n_heads, i % values->n_heads);
    }
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
static void *convert(const struct dpe_table_field *field, const void *data, size_t n)
{
    int64_t *whole = dpe_alloc(n, sizeof *whole);
    uint8_t *flags = (uint8_t *)whole;
    for (size_t i = 0; i < n && whole != NULL; i++) {
        double value = dpe_field_get(field, data, i);
        if (field->whole_in_h5) {
            whole[i] = (int64_t)value;
        } else {
            flags[i] = value != 0.0;
        }
    }
    return whole;
}

static void put_field(struct dpe_h5 *file, const char *folder, const struct dpe_table_field *field,
                      const struct dpe_table_values *values)
{
    static const char *const scales[DPE_AXES] = {
        [DPE_AXIS_GROUP] = "/group", [DPE_AXIS_EDGE] = "/edge", [DPE_AXIS_PAIR] = "/pair",
        [DPE_AXIS_LAYER] = "/layer", [DPE_AXIS_HEAD] = "/head",
    };
    const void *data = dpe_field_data(field, values);
    const bool flags = field->type == DPE_FIELD_FLAG || field->type == DPE_FIELD_MARKS;
    const bool converts = field->whole_in_h5 || field->type == DPE_FIELD_FLAG;
    DPE_OWNED void *converted =
        converts ? convert(field, data, dpe_field_count(field, values)) : NULL;
    char path[128], numbers[128];
    snprintf(path, sizeof path, "%s/%s", folder, field->name);
    struct dpe_column column = {.path = path,
                                .type = column_of(field),
                                .rank = dpe_field_rank(field),
                                .data = converts ? converted : data,
                                .long_name = field->long_name,
                                .units = field->units,
                                .flag_meanings = flags ? "no yes" : NULL};
    if (converts && converted == NULL) {
        dpe_h5_stop(file, DPE_NO_MEMORY, "out of memory for %s", field->name);
    }
    for (int i = 0; i < column.rank; i++) {
        column.dims[i] = dpe_field_extent(field->axes[i], values);
        column.scales[i] = scales[field->axes[i]];
    }
    /* Entries differ in their number of bands, so each has an axis of its own. */
    if (field->axes[0] == DPE_AXIS_BAND_NUMBER) {
        snprintf(numbers, sizeof numbers, "%s/band_number", folder);
        dpe_h5_put_count(file, numbers, column.dims[0], "number in the rows of bands", NULL);
        column.scales[0] = numbers;
    }
    dpe_h5_put(file, &column, NULL);
}

dpe_status dpe_h5_put_entry(struct dpe_h5 *file, const char *folder,
                            const struct dpe_table_values *values, unsigned parts,
                            struct dpe_error *err)
{
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        if (dpe_field_written(field, values, parts) && field->type == DPE_FIELD_TEXT) {
            dpe_h5_attr_text(file, folder, field->name, dpe_field_data(field, values), NULL);
        } else if (dpe_field_written(field, values, parts)) {
            put_field(file, folder, field, values);
        }
    }
    return dpe_h5_failed(file, err);
}

dpe_status dpe_h5_put_conventions(struct dpe_h5 *file, const struct dpe_table_values *values,
                                  unsigned parts, struct dpe_error *err)
{
    const bool frequencies = values->frequencies != 0;
    if (frequencies) {
        dpe_h5_attr_text(file, "/table", "moves", "frequencies", NULL);
    }
    for (size_t i = 0; i < dpe_n_table_conventions; i++) {
        const struct dpe_table_convention *convention = &dpe_table_conventions[i];
        const char *word = dpe_table_convention(convention, frequencies);
        const bool explained =
            convention->explained != NULL && !(convention->floors && frequencies);
        const bool floors = convention->floors && (parts >> DPE_PART_METHOD & 1) != 0;
        char text[DPE_TEMPERATURE_TEXT];
        snprintf(text, sizeof text, "%s%s%s", word, explained ? convention->explained : "",
                 floors ? ", without floor where unrounded is 1" : "");
        dpe_h5_attr_text(file, "/table", convention->name, text, NULL);
    }
    return dpe_h5_failed(file, err);
}
