/* dpe-bench --signature: one number over what a change that is to change nothing leaves as it is.
 */
#include "engine/bench/signature.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "engine/session/session.h"

enum { TRAINED = 64, LENGTH = 192, PROMPT = 160, NEW = 8, VOCAB = 512 };

/* The logits of a prompt's last token, and the likeliest tokens that follow. */
static dpe_status add_answer(const struct dpe_model *model, const struct dpe_plan *plan,
                             const char *device, struct dpe_sha256 *hash, struct dpe_error *err)
{
    DPE_SCOPED(dpe_session_destroy_scoped) struct dpe_session *session = NULL;
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens out = {0};
    const struct dpe_session_options options = {.device = device, .capacity = LENGTH};
    const struct dpe_generate_options answer = {.max_new = NEW};
    int32_t prompt[PROMPT];
    float logits[VOCAB];
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 1, 2);
    for (int i = 0; i < PROMPT; i++) {
        prompt[i] = (int32_t)dpe_rng_below(&rng, VOCAB);
    }
    DPE_TRY(dpe_session_create(model, plan, &options, &session, err));
    DPE_TRY(dpe_session_feed(session, prompt, PROMPT - 1, logits, err));
    DPE_TRY(dpe_session_generate(session, prompt + PROMPT - 1, 1, &answer, &out, err));
    dpe_sha256_add(hash, logits, sizeof logits);
    dpe_sha256_add(hash, out.ids, out.n * sizeof *out.ids);
    return DPE_OK;
}

/* Each method with its defaults; of one that needs more than a length, that it is refused. */
static dpe_status add_plan(const struct dpe_model *model, const char *line, struct dpe_sha256 *hash,
                           struct dpe_error *err)
{
    static const char *const devices[] = {"reference", "cpu"};
    DPE_SCOPED(dpe_plan_free) struct dpe_plan plan = {0};
    const struct dpe_plan_context context = {
        .config = dpe_model_config(model), .trained_length = TRAINED, .length = LENGTH};
    char name[64];
    char digest[65] = "";
    snprintf(name, sizeof name, "%.*s", (int)strcspn(line, "\t"), line);
    dpe_sha256_text(hash, name);
    if (dpe_plan_make(name, &context, &plan, NULL) != DPE_OK) {
        return DPE_OK;
    }
    DPE_TRY(dpe_plan_digest(&plan, digest, err));
    dpe_sha256_text(hash, digest);
    for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++) {
        DPE_TRY(add_answer(model, &plan, devices[d], hash, err));
    }
    return DPE_OK;
}

dpe_status dpe_bench_signature(char hex[65], struct dpe_error *err)
{
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *model = NULL;
    struct dpe_config config;
    dpe_status status = DPE_OK;
    dpe_known_shape("mistral-7b", &config);
    config.n_layers = 2;
    config.hidden = 64;
    config.intermediate = 96;
    config.n_heads = 4;
    config.n_kv_heads = 2;
    config.head_dim = 32;
    config.vocab = VOCAB;
    config.max_position = TRAINED;
    config.dtype = DPE_F32;
    setenv("DPE_CPU", "portable", 1); /* the same on every processor */
    DPE_TRY(dpe_random_model(&config, true, 1, &model, err));
    struct dpe_sha256 *hash = dpe_sha256_new();
    for (size_t i = 0; status == DPE_OK && dpe_plan_method(i) != NULL; i++) {
        status = add_plan(model, dpe_plan_method(i), hash, err);
    }
    const dpe_status finished = dpe_sha256_finish(hash, hex, status == DPE_OK ? err : NULL);
    return status != DPE_OK ? status : finished;
}
