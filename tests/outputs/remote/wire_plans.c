/* wire_plans MODEL TRAINED LENGTH SPEC…: a line of JSON for each method: its digest and its plan as
 * engines are given it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan/methods/methods.h"
#include "outputs/remote/remote.h"

static dpe_status print_plan(const struct dpe_plan_context *context, const char *spec,
                             struct dpe_error *err)
{
    struct dpe_plan plan = {0};
    char digest[65] = "";
    dpe_status status = dpe_plan_make(spec, context, &plan, err);
    size_t n = (size_t)(plan.n_layers * plan.n_heads * plan.n_pairs);
    uint8_t *mask = status == DPE_OK ? calloc(n, 1) : NULL;
    for (size_t i = 0; mask != NULL && i < n; i++) {
        mask[i] = i % 3 != 1; /* decides something where a band is by head */
    }
    if (mask != NULL) {
        status = dpe_plan_set_mask(&plan, mask, err);
    }
    if (status == DPE_OK) {
        status = dpe_plan_digest(&plan, digest, err);
    }
    if (status == DPE_OK) {
        json_t *value = dpe_plan_to_json(&plan);
        char *text = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
        printf("{\"digest\":\"%s\",\"plan\":%s}\n", digest, text);
        free(text);
        json_decref(value);
    }
    free(mask);
    dpe_plan_free(&plan);
    return status;
}

int main(int argc, char **argv)
{
    struct dpe_error err = {0};
    struct dpe_model *model = NULL;
    const struct dpe_model_options options = {.config_only = true};
    dpe_status status = argc > 3 ? dpe_model_open(argv[1], &options, &model, &err) : DPE_USAGE;
    for (int i = 4; i < argc && status == DPE_OK; i++) {
        const struct dpe_plan_context context = {.config = dpe_model_config(model),
                                                 .trained_length = strtol(argv[2], NULL, 10),
                                                 .length = strtol(argv[3], NULL, 10),
                                                 .official = true};
        status = print_plan(&context, argv[i], &err);
    }
    if (status != DPE_OK) {
        fprintf(stderr, "wire_plans: %s\n", err.text);
    }
    dpe_model_close(model);
    return status == DPE_OK ? 0 : 1;
}
