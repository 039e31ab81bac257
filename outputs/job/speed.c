/* How fast this machine runs a model: measured once, and kept for later dry runs. */
#include "engine/system/folder.h"
#include "outputs/job/price.h"

#include <jansson.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "outputs/storage/storage.h"

enum { MOST_KEPT = 64, KEY = 64, MOST_BYTES = 1 << 16 };
static const double most_seconds = 1e9; /* no measured number is larger */
static const int64_t keeps = 86400;     /* seconds */

/* ---------------------------------------------------------------------------------------- kept */

/* Those of a file, {KEY: [when, tokens, …]}; NULL where there are none. */
static json_t *read_kept(const char *path)
{
    DPE_OWNED char *text = NULL;
    size_t n = 0;
    return dpe_read_file(path, MOST_BYTES, &text, &n, NULL) == DPE_OK ? json_loadb(text, n, 0, NULL)
                                                                      : NULL;
}

static bool read_speed(json_t *entry, struct dpe_job_speed *speed)
{
    json_int_t when = 0, tokens = 0;
    *speed = (struct dpe_job_speed){0};
    bool ok = json_unpack(entry, "[IIFFFFFFF!]", &when, &tokens, &speed->per_token,
                          &speed->per_pair, &speed->per_step, &speed->per_step_token, &speed->low,
                          &speed->high, &speed->seconds) == 0;
    speed->when = when;
    speed->tokens = tokens;
    for (size_t i = 0; ok && i < json_array_size(entry); i++) {
        const double number = json_number_value(json_array_get(entry, i));
        ok = number >= (i < 2 ? 1.0 : 0.0) && (i < 2 || number <= most_seconds);
    }
    return ok;
}

bool dpe_job_speed_find(const char *path, const char *key, int64_t now, struct dpe_job_speed *speed)
{
    json_auto_t *kept = read_kept(path);
    return read_speed(json_object_get(kept, key), speed) && speed->when <= now &&
           now - speed->when < keeps;
}

void dpe_job_speed_keep(const char *path, const char *key, int64_t now,
                        const struct dpe_job_speed *speed)
{
    json_auto_t *old = read_kept(path); /* what cannot be read is replaced */
    json_auto_t *kept =
        json_pack("{s:[IIfffffff]}", key, (json_int_t)now, (json_int_t)speed->tokens,
                  speed->per_token, speed->per_pair, speed->per_step, speed->per_step_token,
                  speed->low, speed->high, speed->seconds);
    const char *other = NULL;
    json_t *entry = NULL;
    json_object_foreach(old, other, entry)
    {
        if (json_object_size(kept) < MOST_KEPT && json_object_get(kept, other) == NULL) {
            json_object_set(kept, other, entry);
        }
    }
    DPE_OWNED char *text = json_dumps(kept, JSON_COMPACT);
    if (text != NULL) {
        (void)dpe_replace_file(path, text, strlen(text), NULL); /* else it is measured again */
    }
}

/* ------------------------------------------------------------------------------------ measured */

/* Why it cannot be measured here. */
static dpe_status check(const struct dpe_job *job, const struct dpe_plan *plan,
                        const struct dpe_session_options *options, struct dpe_error *err)
{
    struct dpe_session_needs needs = {0};
    DPE_TRY(dpe_session_estimate(dpe_model_config(job->model), plan, options, &needs, err));
    /* Weights are read where that does not push everything else out. */
    if ((double)needs.weights >
        0.5 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE)) {
        return dpe_fail(err, DPE_NO_MEMORY, "the weights would fill this machine's memory");
    }
    if (job->remote != NULL) {
        return dpe_fail(err, DPE_USAGE, "how fast --engine is shows when it runs");
    }
    return job->peers.size > 1
               ? dpe_fail(err, DPE_USAGE, "one process alone cannot run a shared model")
               : DPE_OK;
}

/* What is to be measured, and where it is kept; path "": nowhere. */
struct place {
    const struct dpe_job *job;
    const struct dpe_plan *plan;
    struct dpe_session_options options;
    struct dpe_model *model;
    int64_t most, now;
    char path[4096];
};

/* Everything that decides it; false where nothing is kept. Of a plan's bands it is enough that
 * there are several; the room beside the text costs nothing. */
static bool find_key(const struct place *place, char key[KEY + 1])
{
    const struct dpe_job *job = place->job;
    const struct dpe_session_options *options = &place->options;
    char host[256] = "";
    char selection[sizeof place->plan->name] = "";
    const int64_t numbers[] = {options->n_threads > 0 ? options->n_threads : omp_get_max_threads(),
                               place->most,
                               options->branches,
                               (int64_t)options->kv_type,
                               place->plan->n_bands > 1,
                               (int64_t)options->max_memory};
    struct dpe_sha256 *hash = dpe_sha256_new();
    const char *kernels = getenv("DPE_CPU");
    (void)gethostname(host, sizeof host - 1);
    if (dpe_selects(&place->plan->selection)) {
        dpe_plan_selection_text(place->plan, selection);
    }
    const char *const texts[] = {
        dpe_version(),         host,      dpe_model_fingerprint(place->model), job->device,
        job->device_info.name, selection, kernels != NULL ? kernels : ""};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        dpe_sha256_text(hash, texts[i]);
    }
    dpe_sha256_add(hash, numbers, sizeof numbers);
    return dpe_sha256_finish(hash, key, NULL) == DPE_OK && place->path[0] != '\0';
}

static dpe_status measure_here(const struct dpe_job *job, const struct dpe_plan *plan,
                               int64_t length, struct dpe_job_speed *speed, struct dpe_error *err)
{
    enum { ROOM = 16 };
    struct place place = {.job = job,
                          .plan = plan,
                          .most = dpe_job_measured_length(length),
                          .now = (int64_t)time(NULL)};
    place.options = dpe_job_session_options(job, dpe_least(place.most + ROOM, length));
    DPE_TRY(check(job, plan, &place.options, err));
    if (!dpe_cache_path("speeds", place.path, sizeof place.path)) {
        place.path[0] = '\0';
    }
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *model = NULL;
    const struct dpe_model_options options = {.trained_length = job->options->trained_length};
    DPE_TRY(dpe_model_open(job->options->model, &options, &model, err));
    place.model = model;
    char key[KEY + 1];
    const bool keeps_it = find_key(&place, key);
    if (keeps_it && dpe_job_speed_find(place.path, key, place.now, speed)) {
        return DPE_OK;
    }
    DPE_SCOPED(dpe_session_destroy_scoped) struct dpe_session *session = NULL;
    DPE_TRY(dpe_session_create(model, plan, &place.options, &session, err));
    dpe_session_set_poll(session, dpe_signals_poll, NULL);
    DPE_TRY(dpe_job_measure(session, dpe_model_config(model), &plan->selection, place.most, speed,
                            err));
    if (keeps_it) {
        dpe_cache_make_folders(place.path);
        dpe_job_speed_keep(place.path, key, place.now, speed);
    }
    return DPE_OK;
}

void dpe_bill_measure(struct dpe_bill *bill, const struct dpe_job *job, const struct dpe_plan *plan,
                      int64_t length, struct dpe_job_speed *speed)
{
    struct dpe_error why = {0};
    fflush(stdout);
    if (measure_here(job, plan, length, speed, &why) != DPE_OK) {
        if (!bill->untimed && !job->options->silent) {
            dpe_print("time             not measured: %s\n", why.text);
        }
        *speed = (struct dpe_job_speed){0};
        bill->untimed = true;
    }
}
