/* What a session is asked for: its options with their defaults, and whether its plan can run. */
#include "engine/session/device.h"
#include "engine/session/session_internal.h"

#include <inttypes.h>
#include <string.h>

#include <omp.h>

static dpe_status meet_alone(void *user, float *x, int64_t n, dpe_status status,
                             struct dpe_error *err)
{
    (void)user, (void)x, (void)n, (void)err;
    return status;
}

static dpe_status share_alone(void *user, void *bytes, size_t n, struct dpe_error *err)
{
    (void)user, (void)bytes, (void)n, (void)err;
    return DPE_OK;
}

static const struct dpe_peers alone = {.size = 1, .meet = meet_alone, .share = share_alone};

static const struct dpe_peers *peers_of(const struct dpe_session_options *options)
{
    return options->peers == NULL ? &alone : options->peers;
}

dpe_status dpe_session_resolve(const struct dpe_session_options *options,
                               struct dpe_session_options *resolved, const struct dpe_ops **ops,
                               struct dpe_error *err)
{
    *resolved = *options;
    resolved->peers = peers_of(options);
    DPE_TRY(dpe_ops_find(options->device, ops, err));
    if (options->capacity < 1 || options->prefill_chunk < 0 || options->n_threads < 0) {
        return dpe_fail(
            err, DPE_USAGE,
            "session: expected a capacity of at least 1 token, and a chunk and a number "
            "of threads of at least 0, found %" PRId64 ", %" PRId64 ", %d",
            options->capacity, options->prefill_chunk, options->n_threads);
    }
    if (options->branches < 0 || options->branches > DPE_MAX_BRANCHES || options->positions < 0 ||
        options->positions > options->capacity) {
        return dpe_fail(err, DPE_USAGE,
                        "session: expected 0 to %d branches and 0 to %" PRId64
                        " positions (the capacity), found %" PRId64 ", %" PRId64,
                        DPE_MAX_BRANCHES, options->capacity, options->branches, options->positions);
    }
    resolved->branches = options->branches == 0 ? 1 : options->branches;
    resolved->positions = options->positions == 0 ? options->capacity : options->positions;
    if (!(*ops)->reads_kv && options->kv_type != DPE_KV_F32) {
        return dpe_fail(
            err, DPE_NO_DEVICE,
            "device %s keeps keys and values in its own type, not in %s; use --device cpu",
            (*ops)->name, dpe_kv_type_names[options->kv_type]);
    }
    int64_t chunk = options->prefill_chunk == 0 ? (*ops)->default_chunk : options->prefill_chunk;
    resolved->device = options->device == NULL ? (*ops)->name : options->device;
    resolved->prefill_chunk = chunk < resolved->positions ? chunk : resolved->positions;
    resolved->n_threads =
        options->n_threads == 0 ? dpe_limit_processors(omp_get_num_procs()) : options->n_threads;
    return DPE_OK;
}

dpe_status dpe_session_check_plan(const struct dpe_config *config, const struct dpe_plan *plan,
                                  const struct dpe_ops *ops, const struct dpe_peers *peers,
                                  struct dpe_error *err)
{
    DPE_TRY(dpe_plan_check(plan, err));
    if (plan->n_pairs * 2 != config->head_dim || plan->n_layers != config->n_layers ||
        plan->n_heads != config->n_heads) {
        return dpe_fail(err, DPE_USAGE,
                        "plan %s is for %" PRId64 " pairs, %" PRId64 " layers, %" PRId64
                        " heads; the model has %" PRId64 ", %" PRId64 ", %" PRId64,
                        plan->name, plan->n_pairs, plan->n_layers, plan->n_heads,
                        config->head_dim / 2, config->n_layers, config->n_heads);
    }
    if (dpe_selects(&config->selection) &&
        memcmp(&plan->selection, &config->selection, sizeof plan->selection) != 0) {
        return dpe_fail(
            err, DPE_USAGE,
            "plan %s: the model (model_type %s) chooses keys itself; expected a plan that "
            "was made for it, with its selection",
            plan->name, config->model_type);
    }
    if (dpe_selects(&plan->selection) && plan->selection.unit == DPE_CHOICE_LAYER &&
        peers->size > 1) {
        return dpe_fail(err, DPE_USAGE,
                        "plan %s: a layer chooses blocks by the scores of all its heads, which %d "
                        "processes share; use one process, or a method whose heads choose for "
                        "themselves",
                        plan->name, peers->size);
    }
    return ops->supports(config, plan, err);
}
