/* Plans that clients gave while the server runs. They stay until it ends: sequences and caches name
 * them by index. */
#include <stdlib.h>
#include <string.h>

#include "eval/serve/engine/serve_engine_internal.h"

const struct dpe_serve_plan *dpe_serve_world_plan(const struct dpe_serve_world *world,
                                                  int64_t index)
{
    return index < world->n_plans ? &world->plans[index]
                                  : world->taken->plans[index - world->n_plans];
}

dpe_status dpe_serve_plan_digest(const struct dpe_plan *plan, char digest[65],
                                 struct dpe_error *err)
{
    uint8_t bytes[32] = {0};
    dpe_status status = dpe_plan_digest(plan, bytes, err);
    for (int i = 0; i < 32; i++) {
        snprintf(digest + 2 * i, 3, "%02x", bytes[i]);
    }
    return status;
}

int64_t dpe_serve_world_find(const struct dpe_serve_world *world, const char *digest)
{
    struct dpe_serve_taken *taken = world->taken;
    int64_t found = -1;
    for (int64_t i = 0; i < world->n_plans; i++) {
        found = strcmp(world->plans[i].digest, digest) == 0 ? i : found;
    }
    pthread_mutex_lock(&taken->lock);
    for (int64_t i = 0; i < taken->n && found < 0; i++) {
        found = strcmp(taken->plans[i]->digest, digest) == 0 ? world->n_plans + i : found;
    }
    pthread_mutex_unlock(&taken->lock);
    return found;
}

/* Whether the plan is one of this model. */
static dpe_status check(const struct dpe_serve_world *world, const struct dpe_plan *plan,
                        struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(world->model);
    struct dpe_plan own = {0};
    dpe_status status = dpe_plan_init_for(&own, config, err);
    bool same = status == DPE_OK && own.n_pairs == plan->n_pairs &&
                own.n_layers == plan->n_layers && own.n_heads == plan->n_heads;
    if (status == DPE_OK && !same) {
        status =
            dpe_fail(err, DPE_BAD_DATA,
                     "expected a plan of %lld pairs, %lld layers and %lld heads, found one of "
                     "%lld, %lld and %lld",
                     (long long)own.n_pairs, (long long)own.n_layers, (long long)own.n_heads,
                     (long long)plan->n_pairs, (long long)plan->n_layers, (long long)plan->n_heads);
    }
    dpe_plan_free(&own);
    return status;
}

static dpe_status add(const struct dpe_serve_world *world, const struct dpe_plan *plan,
                      const char *digest, struct dpe_error *err)
{
    struct dpe_serve_taken *taken = world->taken;
    struct dpe_serve_plan *made = dpe_alloc_zero(1, sizeof *made);
    dpe_status status = made != NULL ? dpe_plan_copy(&made->plan, plan, err)
                                     : dpe_fail(err, DPE_NO_MEMORY, "out of memory for a plan");
    if (status == DPE_OK && taken->n == SERVE_MOST_TAKEN) {
        dpe_plan_free(&made->plan);
        status = dpe_fail(err, DPE_NO_MEMORY,
                          "this server has taken %d plans, the most it keeps; start it again",
                          SERVE_MOST_TAKEN);
    }
    if (status != DPE_OK) {
        free(made);
        return status;
    }
    made->length = world->length;
    memcpy(made->digest, digest, sizeof made->digest);
    taken->plans[taken->n++] = made;
    return DPE_OK;
}

dpe_status dpe_serve_taken_add(const struct dpe_serve_world *world, const struct dpe_plan *plan,
                               char digest[65], struct dpe_error *err)
{
    dpe_status status = check(world, plan, err);
    if (status == DPE_OK) {
        status = dpe_serve_plan_digest(plan, digest, err);
    }
    if (status != DPE_OK || dpe_serve_world_find(world, digest) >= 0) {
        return status;
    }
    pthread_mutex_lock(&world->taken->lock);
    status = add(world, plan, digest, err);
    pthread_mutex_unlock(&world->taken->lock);
    return status;
}

void dpe_serve_taken_free(struct dpe_serve_taken *taken)
{
    for (int64_t i = 0; taken != NULL && i < taken->n; i++) {
        dpe_plan_free(&taken->plans[i]->plan);
        free(taken->plans[i]);
    }
    if (taken != NULL) {
        pthread_mutex_destroy(&taken->lock);
    }
    free(taken);
}
