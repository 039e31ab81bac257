/* wire_plans MODEL TRAINED LENGTH SPEC…: for each method its plan as engines are given it, a table
 * of one entry, with what makes it a line: {"digest": of its bytes, "plan": its bytes}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "engine/model/model.h"
#include "outputs/read/read.h"

static dpe_status print_plan(const struct dpe_model *model, const struct dpe_plan_context *context,
                             const char *spec, struct dpe_error *err)
{
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    char digest[65] = "";
    DPE_TRY(dpe_plan_make(spec, context, &plan, err));
    size_t n = (size_t)(plan.n_layers * plan.n_heads * plan.n_pairs);
    DPE_OWNED uint8_t *mask = calloc(n, 1);
    DPE_TRY(DPE_MADE(mask, err, "out of memory"));
    for (size_t i = 0; i < n; i++) { /* as many in every head */
        mask[i] = (i + i / (size_t)plan.n_pairs) % (size_t)plan.n_pairs % 3 != 1;
    }
    DPE_TRY(dpe_plan_set_mask(&plan, mask, err));
    plan.bands[plan.n_bands - 1].per_head = plan.n_bands > 1;
    DPE_TRY(dpe_table_for_plan(&plan, context, dpe_model_fingerprint(model), 0, &table, err));
    DPE_OWNED char *text = dpe_table_json(table);
    DPE_TRY(DPE_MADE(text, err, "out of memory"));
    DPE_TRY(dpe_sha256_bytes(text, strlen(text), digest, err));
    json_t *line = json_pack("{s:s,s:s}", "digest", digest, "plan", text);
    json_dumpf(line, stdout, JSON_COMPACT);
    json_decref(line);
    putchar('\n');
    return DPE_OK;
}

int main(int argc, char **argv)
{
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    dpe_status status = argc > 3 ? dpe_model_open(argv[1], NULL, &model, &err) : DPE_USAGE;
    for (int i = 4; i < argc && status == DPE_OK; i++) {
        const struct dpe_plan_context context = {.config = dpe_model_config(model),
                                                 .trained_length = strtol(argv[2], NULL, 10),
                                                 .length = strtol(argv[3], NULL, 10),
                                                 .official = true};
        status = print_plan(model, &context, argv[i], &err);
    }
    if (status != DPE_OK) {
        fprintf(stderr, "wire_plans: %s\n", err.text);
    }
    dpe_model_close(model);
    return status == DPE_OK ? 0 : 1;
}
