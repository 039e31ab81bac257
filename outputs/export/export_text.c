/* Text forms of a DPE table: the YAML of the paper's code, CSV through libcsv. */
#include "outputs/export/export.h"
#include "outputs/table/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <csv.h>
#include <jansson.h>
#include <math.h>

static bool windows_divide(const struct dpe_table_values *values)
{
    for (int64_t g = 0; g < values->n_groups; g++) {
        double share = (double)values->window / values->scale_factor[g];
        if (share != floor(share)) {
            return false;
        }
    }
    return true;
}

/* A text of the user's in double quotes, escaped as in JSON, which YAML takes. */
static void put_quoted(struct dpe_text *out, const char *text)
{
    json_t *value = json_string(text);
    char *quoted = json_dumps(value, JSON_ENCODE_ANY);
    dpe_text_put(out, "%s", quoted != NULL ? quoted : "");
    out->failed = out->failed || quoted == NULL;
    free(quoted);
    json_decref(value);
}

/* A field as the paper's code calls it: a number, or a list on one line. */
static void put_field(struct dpe_text *out, const struct dpe_table_field *field,
                      const struct dpe_table_values *values)
{
    const bool list = dpe_field_rank(field) > 0;
    const void *data = dpe_field_data(field, values);
    dpe_text_put(out, "  %s: %s", field->yaml, list ? "[" : "");
    for (size_t i = 0; i < dpe_field_count(field, values); i++) {
        dpe_text_put(out, "%s%.17g", i > 0 ? ", " : "", dpe_field_get(field, data, i));
    }
    dpe_text_put(out, "%s\n", list ? "]" : "");
}

dpe_status dpe_export_yaml(const struct dpe_table_values *values, const char *model,
                           const char *selected_dim_path, struct dpe_text *out,
                           struct dpe_error *err)
{
    char evidence[DPE_TABLE_EVIDENCE];
    dpe_text_put(out,
                 "# DPE settings for the paper's released code. adapter_required: true\n"
                 "# schema_version: %.32s, model fingerprint: %.64s\n"
                 "# trained length %lld, evaluated length %lld, top-k %lld of %lld pairs\n",
                 values->schema_version, values->model_fingerprint,
                 (long long)values->trained_length, (long long)values->length,
                 (long long)values->top_k, (long long)values->n_pairs);
    if (dpe_table_evidence(values, evidence)[0] != '\0') {
        dpe_text_put(out, "# Measured with the key pairs and temperature of the table: %s\n",
                     evidence);
    }
    if (!windows_divide(values)) {
        dpe_text_put(out, "# A scale does not divide the window: that code's prefill and "
                          "decode differ by up to one position there.\n");
    }
    if (dpe_table_has_temperature(values)) {
        dpe_text_put(
            out,
            "# Left out, because that code has none: the attention temperature logit-scale "
            "%.17g, log-n %.17g,\n# power %.17g, decay %.17g%s.\n",
            values->logit_scale, values->log_n_length, values->log_n_power, values->log_n_decay,
            values->head_scale != NULL ? ", and factors of heads" : "");
    }
    const char *const texts[] = {model, selected_dim_path};
    for (int i = 0; i < 2; i++) {
        if (dpe_utf8_check(texts[i], strlen(texts[i])) != strlen(texts[i])) {
            return dpe_fail(err, DPE_USAGE, "YAML: expected names in UTF-8, found '%s'", texts[i]);
        }
    }
    /* The settings as the paper's code reads them. */
    put_quoted(out, model);
    dpe_text_put(out, ":\n");
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        if (dpe_table_fields[i].yaml != NULL) {
            put_field(out, &dpe_table_fields[i], values);
        }
    }
    dpe_text_put(out, "  selected_dim_path: ");
    put_quoted(out, selected_dim_path);
    dpe_text_put(out, "\n");
    return dpe_text_done(out, err);
}

/* None of these needs quotes inside; libcsv adds those around. */
static void put_cell(struct dpe_text *out, const char *text, bool first)
{
    char field[128];
    size_t n = csv_write(field, sizeof field, text, strlen(text));
    dpe_text_put(out, "%s", first ? "" : ",");
    dpe_text_put_bytes(out, field, n < sizeof field ? n : sizeof field);
}

/* Index of a field's element for a layer, head and pair; -1: it is one number,
 * or has another axis. */
static int64_t element_at(const struct dpe_table_field *field,
                          const struct dpe_table_values *values, const int64_t at[DPE_AXES])
{
    const int rank = dpe_field_rank(field);
    int64_t element = 0;
    for (int a = 0; a < rank && element >= 0; a++) {
        const int64_t place = at[field->axes[a]];
        element = place < 0 ? -1 : element * dpe_field_extent(field->axes[a], values) + place;
    }
    return rank > 0 ? element : -1;
}

/* A row: the place, and every field that has an element there; `names`: what they are called. */
static void put_row(struct dpe_text *out, const struct dpe_table_values *values,
                    const int64_t at[DPE_AXES], bool names)
{
    static const struct {
        enum dpe_field_axis axis;
        const char *name;
    } places[] = {{DPE_AXIS_LAYER, "layer"},
                  {DPE_AXIS_HEAD, "head"},
                  {DPE_AXIS_PAIR, "pair"},
                  {DPE_AXIS_GROUP, "group"}};
    const unsigned parts = dpe_table_parts(values, false);
    char text[32];
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(text, sizeof text, "%lld", (long long)at[places[i].axis]);
        put_cell(out, names ? places[i].name : text, i == 0);
    }
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        const int64_t element = element_at(field, values, at);
        if (element >= 0 && dpe_field_written(field, values, parts)) {
            snprintf(text, sizeof text, "%.17g",
                     dpe_field_get(field, dpe_field_data(field, values), (size_t)element));
            put_cell(out, names ? field->name : text, false);
        }
    }
    dpe_text_put(out, "\r\n");
}

dpe_status dpe_export_csv(const struct dpe_table_values *values, struct dpe_text *out,
                          struct dpe_error *err)
{
    int64_t at[DPE_AXES] = {[DPE_AXIS_EDGE] = -1, [DPE_AXIS_BAND_NUMBER] = -1};
    put_row(out, values, at, true);
    for (int64_t row = 0; row < values->n_layers * values->n_heads; row++) {
        at[DPE_AXIS_LAYER] = row / values->n_heads;
        at[DPE_AXIS_HEAD] = row % values->n_heads;
        at[DPE_AXIS_GROUP] = 0;
        for (int64_t pair = 0; pair < values->n_pairs; pair++) {
            at[DPE_AXIS_GROUP] += pair == values->group_edge[at[DPE_AXIS_GROUP] + 1];
            at[DPE_AXIS_PAIR] = pair;
            put_row(out, values, at, false);
        }
    }
    return dpe_text_done(out, err);
}
