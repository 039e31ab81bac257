/* The attention temperature of a DPE table, and the schema version that goes with one. */
#include "engine/plan/plan.h"
#include "outputs/h5/h5_file.h"
#include "outputs/read/read.h"

dpe_status dpe_h5_put_temperature(struct dpe_h5 *table, const struct dpe_temperature *temperature,
                                  struct dpe_error *err)
{
    if (dpe_temperature_is_none(temperature)) {
        return DPE_OK;
    }
    const struct {
        const char *path, *long_name, *units;
        const double *value;
    } numbers[] = {
        {"/table/logit_scale", "factor on all logits besides attention_scaling squared", "1",
         &temperature->logit_scale},
        {"/table/log_n_length",
         "N: the logits of query m carry max(1, ln(m + 1) / ln N) to log_n_power; 0 = off",
         "tokens", &temperature->log_n_length},
        {"/table/log_n_power", "exponent of the log-n factor", "1", &temperature->log_n_power},
        {"/table/log_n_decay", "B: above 0, 1 - x^-B takes the place of ln x", "1",
         &temperature->log_n_decay},
    };
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == DPE_OK; i++) {
        const struct dpe_column column = {.path = numbers[i].path,
                                          .type = DPE_COL_F64,
                                          .data = numbers[i].value,
                                          .long_name = numbers[i].long_name,
                                          .units = numbers[i].units};
        status = dpe_h5_put(table, &column, err);
    }
    return status == DPE_OK ? dpe_h5_set_version(table, DPE_SCHEMA_TEMPERATURE, err) : status;
}
