/* What tools of this project ask of an engine: who it is, and to take a plan
 * (outputs/remote/remote.h). */
#include <stdio.h>
#include <string.h>

#include "eval/serve/serve_tool.h"
#include "outputs/remote/remote.h"

json_t *dpe_serve_about(const struct dpe_serve_world *world)
{
    char numbers[160];
    const char *types = dpe_model_types(world->model);
    const struct dpe_tool_options *tool = &world->args->tool;
    snprintf(numbers, sizeof numbers, "%s weights, %s cache, %s",
             types != NULL ? types : "the folder's", dpe_kv_type_names[tool->kv_type],
             tool->device != NULL ? tool->device : "cpu");
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:I}", "engine", "dpe-serve", "version",
                     dpe_version(), "name", world->name, "model",
                     dpe_model_fingerprint(world->model), "tokenizer",
                     dpe_tokenizer_fingerprint(world->tokenizer), "numbers", numbers, "length",
                     (json_int_t)world->length);
}

bool dpe_serve_take_plan(const struct dpe_serve_world *world, const json_t *body,
                         struct dpe_text *answer, struct dpe_serve_refusal *refusal)
{
    struct dpe_plan plan = {0};
    struct dpe_error err = {0};
    char digest[65];
    if (dpe_plan_from_json(body, &plan, &err) != DPE_OK) {
        return dpe_serve_refuse_error(refusal, "plan", &err);
    }
    dpe_status status = dpe_serve_taken_add(world, &plan, digest, &err);
    dpe_plan_free(&plan);
    if (status != DPE_OK) {
        return dpe_serve_refuse_error(refusal, "plan", &err);
    }
    char text[256];
    int n = snprintf(text, sizeof text, "{\"plan\":\"%s\",\"model\":\"%s\"}", digest,
                     dpe_model_fingerprint(world->model));
    return dpe_text_append(answer, text, (size_t)n, NULL) == DPE_OK ||
           dpe_serve_refuse(refusal, 503, "", "out of memory for this request");
}
