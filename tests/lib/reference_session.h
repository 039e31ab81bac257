/**
 * @file reference_session.h
 * The reference model under a plan of plain RoPE, beside the inputs of sample_inputs.h, opened once
 * for a group of tests. Include after cmocka.h.
 */
#ifndef DPE_REFERENCE_SESSION_H
#define DPE_REFERENCE_SESSION_H

#include "engine/plan/methods/methods.h"
#include "tests/lib/sample_inputs.h"

static struct dpe_model *model;
static struct dpe_session *session;

/** Open the inputs and a session with room for `length` tokens; for a group's setup. */
static inline int open_reference(void **state, int64_t length)
{
    struct dpe_error err = {0};
    struct dpe_plan plan = {0};
    const struct dpe_session_options options = {.capacity = length};
    if (open_inputs(state) != 0) {
        return -1;
    }
    dpe_status status = dpe_model_open(DPE_SOURCE_DIR "/data/reference", NULL, &model, &err);
    if (status == DPE_OK) {
        const struct dpe_plan_context context = {
            .config = dpe_model_config(model), .trained_length = 256, .length = length};
        status = dpe_plan_make("rope", &context, &plan, &err);
    }
    if (status == DPE_OK) {
        status = dpe_session_create(model, &plan, &options, &session, &err);
    }
    dpe_plan_free(&plan);
    if (status != DPE_OK) {
        print_error("%s\n", err.text);
    }
    return status == DPE_OK ? 0 : -1;
}

static inline int close_reference(void **state)
{
    dpe_session_destroy(session);
    dpe_model_close(model);
    return close_inputs(state);
}

#endif
