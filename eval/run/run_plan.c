/* For programs elsewhere: a plan as a table; what other runtimes compute from a configuration, and
 * what they apply of a table. */
#include <math.h>

#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/tool/result.h"
#include "eval/run/run_tool.h"
#include "outputs/export/rope_forms.h"
#include "outputs/words/words.h"

dpe_status dpe_run_tool_plan_json(const struct dpe_runner *run, const struct dpe_plan *plan,
                                  int64_t length, struct dpe_error *err)
{
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    const struct dpe_plan_context context = {.config = dpe_model_config(run->model),
                                             .trained_length = run->trained_length,
                                             .length = length,
                                             .official = true};
    DPE_TRY(dpe_table_for_plan(plan, &context, dpe_model_fingerprint(run->model), 0, &table, err));
    DPE_OWNED char *text = dpe_table_json(table);
    DPE_TRY(DPE_MADE(text, err, "out of memory for a plan"));
    dpe_print("%s", text);
    return DPE_OK;
}

static dpe_status print_json(const struct dpe_run_args *args, const struct dpe_readings *readings,
                             const struct dpe_applied *applied, bool agree, struct dpe_error *err)
{
    char text[DPE_APPLIED_TEXT];
    struct dpe_result *result = dpe_result_begin("dpe-run");
    dpe_result_text(result, "model", args->model);
    dpe_result_whole(result, "length", readings->length);
    dpe_result_flag(result, "agree", agree);
    dpe_result_text(result, "unknown", readings->unknown);
    dpe_result_whole(result, "readings", readings->n_kinds);
    for (int i = 0; i < readings->n; i++) {
        const struct dpe_reading *reading = &readings->of[i];
        char notes[DPE_READING_ALL_NOTES];
        bool refused = reading->refused[0] != '\0';
        dpe_result_row(result, "runtimes");
        dpe_result_text(result, "name", reading->runtime->name);
        dpe_result_text(result, "versions", reading->runtime->versions);
        dpe_result_text(result, "known_by", reading->runtime->known_by);
        dpe_result_whole(result, "reading", reading->kind);
        dpe_result_text(result, "refused", refused ? reading->refused : NULL);
        dpe_result_text(result, "notes", dpe_reading_notes(reading, notes));
        dpe_result_text(result, "rotation", reading->type);
        dpe_result_number(result, "base", reading->base);
        dpe_result_number(result, "attention_factor", refused ? (double)NAN : reading->factor);
        dpe_result_whole(result, "switch_length", reading->switch_length);
        dpe_result_flag(result, "switch_at_start", reading->at_start);
        dpe_result_number(result, "longest", reading->longest);
        dpe_result_number(result, "query_growth", reading->growth);
        dpe_result_number(result, "query_growth_length", reading->growth_length);
        dpe_result_numbers(result, "inv_freq", reading->inv_freq,
                           refused ? 0 : (size_t)readings->n_pairs);
        if (applied->values != NULL) {
            dpe_result_text(result, "table", dpe_applied_text(applied, i, text));
        }
    }
    return dpe_result_print(result, err);
}

dpe_status dpe_run_tool_runtimes(const struct dpe_run_args *args, bool *agree,
                                 struct dpe_error *err)
{
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    DPE_SCOPED(dpe_readings_free) struct dpe_readings readings = {0};
    DPE_SCOPED(dpe_applied_free) struct dpe_applied applied = {0};
    *agree = false;
    const int64_t trained = dpe_table_trained(args->table, args->trained_length);
    DPE_TRY(args->table != NULL ? dpe_table_load(args->table, &table, err) : DPE_OK);
    const int64_t made_for = table != NULL ? dpe_table_values(table)->length : 0;
    const int64_t length = args->length > 0 ? args->length : made_for;
    DPE_TRY(dpe_readings_open(args->model, args->runtimes, trained, length, &readings, err));
    if (table != NULL) {
        DPE_TRY(dpe_applied_make(args->model, args->table, table, args->runtimes, length, &applied,
                                 err));
        if (applied.values == NULL) {
            dpe_log_info("%s: %lld tokens run unchanged", args->table, (long long)length);
        }
    }
    *agree = readings.agree && dpe_applied_agree(&applied);
    if (args->json) {
        return print_json(args, &readings, &applied, *agree, err);
    }
    struct dpe_page page = {.printed = true};
    dpe_words_runtimes(&page, args->model, &readings);
    if (applied.values != NULL) {
        dpe_words_applied(&page, args->table, &applied);
    }
    dpe_page_print(&page, false);
    return DPE_OK;
}
