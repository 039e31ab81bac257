/* The attention temperature of a DPE table, and the schema version that goes with one. */
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

dpe_status dpe_h5_put_temperature_in(struct dpe_h5 *table, const char *folder,
                                     const struct dpe_temperature *temperature,
                                     struct dpe_error *err)
{
    const struct table_entry entries[] = {
        {"/logit_scale", DPE_COL_F64, &temperature->logit_scale,
         "factor on all logits besides attention_scaling squared", "1", NULL},
        {"/log_n_length", DPE_COL_F64, &temperature->log_n_length,
         "N: the logits of query m carry max(1, ln(m + 1) / ln N) to log_n_power; 0 = off",
         "tokens", NULL},
        {"/log_n_power", DPE_COL_F64, &temperature->log_n_power, "exponent of the log-n factor",
         "1", NULL},
        {"/log_n_decay", DPE_COL_F64, &temperature->log_n_decay,
         "B: above 0, 1 - x^-B takes the place of ln x", "1", NULL},
    };
    return dpe_h5_table_put_all(table, folder, entries, COUNT(entries), NULL, 0, err);
}

dpe_status dpe_h5_put_temperature(struct dpe_h5 *table, const struct dpe_temperature *temperature,
                                  bool frequencies, struct dpe_error *err)
{
    if (!frequencies && dpe_temperature_is_none(temperature)) {
        return DPE_OK;
    }
    const char *version = frequencies ? DPE_SCHEMA_FREQUENCIES : DPE_SCHEMA_TEMPERATURE;
    dpe_status status = dpe_h5_put_temperature_in(table, "/table", temperature, err);
    return status == DPE_OK ? dpe_h5_set_version(table, version, err) : status;
}
