/* What other runtimes apply of a table. */
#include "outputs/export/applied.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/model/model.h"

/* Whether a reading is the table. */
static bool is_table(const struct dpe_applied *applied, const struct dpe_reading *reading)
{
    const struct dpe_rope_factors *factors = &applied->factors;
    double n = (double)factors->n;
    bool equal = fabs(reading->factor / factors->attention_factor - 1.0) < 2e-6;
    for (int64_t j = 0; j < factors->n && equal; j++) {
        double want = pow(applied->base, -(double)j / n) / factors->long_factor[j];
        equal = fabs(reading->inv_freq[j] / want - 1.0) < 2e-6;
    }
    return equal && (double)applied->readings.length <= reading->longest;
}

const char *dpe_applied_text(const struct dpe_applied *applied, int i, char text[DPE_APPLIED_TEXT])
{
    const struct dpe_reading *reading = &applied->readings.of[i];
    const char *adapter = reading->runtime->adapter;
    char notes[DPE_READING_ALL_NOTES];
    if (applied->adapter) {
        snprintf(text, DPE_APPLIED_TEXT,
                 adapter != NULL ? "all of it, through %s; without it nothing, as above"
                                 : "nothing: it runs the model as above",
                 adapter);
    } else if (reading->refused[0] != '\0') {
        snprintf(text, DPE_APPLIED_TEXT, "refuses its config.json: %s", reading->refused);
    } else if (is_table(applied, reading)) {
        snprintf(text, DPE_APPLIED_TEXT, "all of it, from its config.json");
    } else {
        snprintf(text, DPE_APPLIED_TEXT, "other numbers: %s%s", dpe_reading_notes(reading, notes),
                 reading->runtime->reads_gguf ? "; a copy of dpe-export --gguf holds the table"
                                              : "");
    }
    return text;
}

bool dpe_applied_agree(const struct dpe_applied *applied)
{
    return applied->values == NULL || (!applied->adapter && applied->readings.agree);
}

/* The readings of the config.json that a table of frequencies is exported as. */
static dpe_status read_exported(const char *folder, const char *path, const char *which,
                                int64_t length, struct dpe_applied *applied, struct dpe_error *err)
{
    const struct dpe_model_options options = {.config_only = true};
    const struct dpe_short_text none = {0};
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *model = NULL;
    DPE_SCOPED(dpe_text_free) struct dpe_text config = {0};
    DPE_TRY(dpe_model_open(folder, &options, &model, err));
    applied->base = dpe_model_config(model)->rope.theta;
    DPE_TRY(dpe_export_longrope(applied->values, folder, model, &none, &config, err));
    DPE_TRY(dpe_rope_factors_make(applied->values, applied->base, &applied->factors, err));
    return dpe_readings_make(path, config.bytes, config.n, which, length, &applied->readings, err);
}

dpe_status dpe_applied_make(const char *model, const char *path, const struct dpe_table *table,
                            const char *which, int64_t length, struct dpe_applied *applied,
                            struct dpe_error *err)
{
    *applied = (struct dpe_applied){0};
    int64_t tokens = length > 0 ? length : dpe_table_values(table)->length;
    const struct dpe_table *entry = dpe_table_choose(table, tokens);
    if (entry == NULL) {
        return DPE_OK;
    }
    applied->values = dpe_table_values(entry);
    applied->adapter = dpe_table_needs_adapter(applied->values) != 0;
    return applied->adapter ? dpe_readings_open(model, which, tokens, &applied->readings, err)
                            : read_exported(model, path, which, tokens, applied, err);
}

void dpe_applied_free(struct dpe_applied *applied)
{
    dpe_rope_factors_free(&applied->factors);
    dpe_readings_free(&applied->readings);
    *applied = (struct dpe_applied){0};
}
