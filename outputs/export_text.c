/* Text forms of a DPE table: the YAML of the paper's code, and CSV. */
#include "export.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <csv.h>
#include <math.h>

/* printf at the end of a text; 256 bytes are enough for every call here. */
static dpe_status append(struct dpe_text *out, struct dpe_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static dpe_status append(struct dpe_text *out, struct dpe_error *err, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return dpe_text_append(out, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1, err);
}

/* A double-quoted YAML scalar: quotes, backslashes and control characters escaped. */
static dpe_status append_quoted(struct dpe_text *out, const char *text, struct dpe_error *err)
{
    dpe_status status = append(out, err, "\"");
    for (const char *c = text; *c != '\0' && status == DPE_OK; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte == '"' || byte == '\\') {
            status = append(out, err, "\\%c", byte);
        } else if (byte < 0x20 || byte == 0x7f) {
            status = append(out, err, "\\x%02X", byte);
        } else {
            status = dpe_text_append(out, c, 1, err);
        }
    }
    return status == DPE_OK ? append(out, err, "\"") : status;
}

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

dpe_status dpe_export_yaml(const struct dpe_table_values *values, const char *model,
                           const char *selected_dim_path, struct dpe_text *out,
                           struct dpe_error *err)
{
    dpe_status status =
        append(out, err,
               "# DPE settings for the paper's released code. adapter_required: true\n"
               "# schema_version: %.32s, model fingerprint: %.64s\n"
               "# trained length %lld, evaluated length %lld, top-k %lld of %lld pairs\n",
               values->schema_version, values->model_fingerprint, (long long)values->trained_length,
               (long long)values->length, (long long)values->top_k, (long long)values->n_pairs);
    if (status == DPE_OK && !windows_divide(values)) {
        status = append(out, err,
                        "# A scale does not divide the window: that code's prefill and "
                        "decode differ by up to one position there.\n");
    }
    if (status == DPE_OK && dpe_table_has_temperature(values)) {
        status = append(out, err,
                        "# Left out, that code has none: the attention temperature logit-scale "
                        "%.17g, log-n %.17g,\n# power %.17g, decay %.17g.\n",
                        values->logit_scale, values->log_n_length, values->log_n_power,
                        values->log_n_decay);
    }
    status = status == DPE_OK ? append_quoted(out, model, err) : status;
    status = status == DPE_OK ? append(out, err, ":\n  local_window_size: %lld\n  scale_factors: [",
                                       (long long)values->window)
                              : status;
    for (int64_t g = 0; g < values->n_groups && status == DPE_OK; g++) {
        status = append(out, err, "%s%.17g", g > 0 ? ", " : "", values->scale_factor[g]);
    }
    status = status == DPE_OK ? append(out, err, "]\n  dimension_groups_range: [") : status;
    for (int64_t g = 0; g <= values->n_groups && status == DPE_OK; g++) {
        status = append(out, err, "%s%d", g > 0 ? ", " : "", values->group_edge[g]);
    }
    status = status == DPE_OK ? append(out, err, "]\n  selected_dim_path: ") : status;
    status = status == DPE_OK ? append_quoted(out, selected_dim_path, err) : status;
    return status == DPE_OK ? append(out, err, "\n") : status;
}

static dpe_status append_field(struct dpe_text *out, const char *text, bool last,
                               struct dpe_error *err)
{
    char field[128];
    size_t n = csv_write(field, sizeof field, text, strlen(text));
    dpe_status status = dpe_text_append(out, field, n < sizeof field ? n : sizeof field, err);
    return status == DPE_OK ? append(out, err, "%s", last ? "\r\n" : ",") : status;
}

static dpe_status append_row(struct dpe_text *out, const struct dpe_table_values *values,
                             int64_t row, int64_t pair, int64_t group, struct dpe_error *err)
{
    bool key_pair = values->mask[row * values->n_pairs + pair] != 0;
    char fields[7][32];
    snprintf(fields[0], sizeof fields[0], "%lld", (long long)(row / values->n_heads));
    snprintf(fields[1], sizeof fields[1], "%lld", (long long)(row % values->n_heads));
    snprintf(fields[2], sizeof fields[2], "%lld", (long long)pair);
    snprintf(fields[3], sizeof fields[3], "%lld", (long long)group);
    snprintf(fields[4], sizeof fields[4], "%d", key_pair);
    snprintf(fields[5], sizeof fields[5], "%.17g", key_pair ? values->scale_factor[group] : 1.0);
    snprintf(fields[6], sizeof fields[6], "%.17g", values->inv_freq[pair]);
    dpe_status status = DPE_OK;
    for (int i = 0; i < 7 && status == DPE_OK; i++) {
        status = append_field(out, fields[i], i == 6, err);
    }
    return status;
}

dpe_status dpe_export_csv(const struct dpe_table_values *values, struct dpe_text *out,
                          struct dpe_error *err)
{
    static const char *const names[] = {"layer",    "head",  "pair",    "group",
                                        "key_pair", "scale", "inv_freq"};
    dpe_status status = DPE_OK;
    for (int i = 0; i < 7 && status == DPE_OK; i++) {
        status = append_field(out, names[i], i == 6, err);
    }
    for (int64_t row = 0; row < values->n_layers * values->n_heads; row++) {
        for (int64_t g = 0; g < values->n_groups; g++) {
            for (int64_t j = values->group_edge[g];
                 j < values->group_edge[g + 1] && status == DPE_OK; j++) {
                status = append_row(out, values, row, j, g, err);
            }
        }
    }
    return status;
}
