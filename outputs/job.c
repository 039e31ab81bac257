/* A job from its inputs to its table. */
#include "job_internal.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpe_table.h"
#include "outputs_internal.h"

/* ----------------------------------------------------------------------------------------- open */

static dpe_status open_inputs(struct dpe_job *job, bool config_only, struct dpe_error *err)
{
    const struct dpe_job_options *options = job->options;
    const struct dpe_model_options model_options = {.config_only = config_only};
    const struct dpe_corpus_options corpus_options = {.split = options->split};
    dpe_status status = DPE_OK;
    if (options->output != NULL && options->tool.force) {
        const char *inputs[2] = {options->model, options->corpus};
        status = dpe_tool_check_output(options->output, inputs, 2, err);
        status = status == DPE_OK
                     ? dpe_tool_check_words(options->output, options->argc, options->argv, err)
                     : status;
    }
    if (status == DPE_OK) {
        status = dpe_model_open(options->model, &model_options, &job->model, err);
    }
    if (status == DPE_OK) {
        job->trained_length = options->trained_length > 0
                                  ? options->trained_length
                                  : dpe_model_config(job->model)->max_position;
        status = dpe_tokenizer_open(options->model, &job->tokenizer, err);
    }
    return status == DPE_OK && options->corpus != NULL
               ? dpe_corpus_open(options->corpus, &corpus_options, &job->corpus, err)
               : status;
}

/* The device of this process, and its share of the device's memory. "cuda" is the one that the rank
 * on this machine counts to; ranks that use the same share its memory evenly, by what is free
 * before any of them takes some. */
static dpe_status find_device(struct dpe_job *job, struct dpe_error *err)
{
    const char *asked = job->options->tool.device;
    struct dpe_device_info *info = &job->device_info;
    asked = asked != NULL ? asked : "cpu";
    snprintf(job->device, sizeof job->device, "%s", asked);
    dpe_status status = dpe_device_describe(job->device, info, err);
    if (status == DPE_OK && job->ranks->size > 1 && strcmp(asked, "cuda") == 0) {
        snprintf(job->device, sizeof job->device, "cuda:%d", job->ranks->local_rank % info->count);
        status = dpe_device_describe(job->device, info, err);
    }
    int sharing = dpe_ranks_alike(job->ranks, status == DPE_OK ? info->id : "");
    job->memory = job->options->tool.max_memory;
    if (status == DPE_OK && job->memory == 0 && sharing > 1) {
        job->memory = dpe_device_memory(job->device) / (uint64_t)sharing;
    }
    return status;
}

static dpe_status meet_peers(void *user, float *x, int64_t n, dpe_status status,
                             struct dpe_error *err)
{
    return dpe_ranks_sum(user, x, n, status, err);
}

static dpe_status share_with_peers(void *user, void *bytes, size_t n, struct dpe_error *err)
{
    return dpe_ranks_give(user, bytes, n, err);
}

/* Who holds the model with this process. A dry run is alone and tells what each would need. */
static dpe_status find_peers(struct dpe_job *job, struct dpe_error *err)
{
    const struct dpe_job_options *options = job->options;
    int size = options->tensor_parallel > 1 ? options->tensor_parallel : 1;
    dpe_status status = DPE_OK;
    job->peers = (struct dpe_peers){
        .size = size, .user = job->ranks, .meet = meet_peers, .share = share_with_peers};
    if (options->dry_run) {
        return DPE_OK;
    }
    if (size > 1 && job->ranks->size == 1) {
        return dpe_fail(err, DPE_USAGE,
                        "--tensor-parallel %d needs %d processes that hold the model together, "
                        "found one: start the same command behind mpirun -n %d",
                        size, size, size);
    }
    status = dpe_ranks_group(job->ranks, size, err);
    job->peers.index = job->ranks->rank - job->ranks->leader;
    return status;
}

dpe_status dpe_job_open(struct dpe_job *job, const struct dpe_job_options *options,
                        bool config_only, struct dpe_error *err)
{
    *job = (struct dpe_job){.options = options, .begin = dpe_clock()};
    job->deadline =
        options->tool.time_budget > 0.0 ? job->begin + options->tool.time_budget : (double)INFINITY;
    job->ranks = calloc(1, sizeof *job->ranks);
    if (job->ranks == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory");
    }
    job->ranks->limit = options->rank_timeout;
    dpe_status status = dpe_ranks_start(job->ranks, err);
    if (status != DPE_OK) {
        return status;
    }
    dpe_tool_set_rank(job->ranks->rank);
    job->works = dpe_alloc_zero((size_t)job->ranks->size, sizeof *job->works);
    status =
        job->works != NULL ? find_device(job, err) : dpe_fail(err, DPE_NO_MEMORY, "out of memory");
    status = status == DPE_OK ? find_peers(job, err) : status;
    status = status == DPE_OK ? open_inputs(job, config_only, err) : status;
    return dpe_ranks_meet(job->ranks, DPE_MEET_OPEN, status, err);
}

bool dpe_job_leads(const struct dpe_job *job)
{
    return job->ranks->rank == 0;
}

struct dpe_plan_context dpe_job_context(const struct dpe_job *job, int64_t length)
{
    return (struct dpe_plan_context){
        .config = dpe_model_config(job->model),
        .trained_length = job->trained_length,
        .length = length,
        .angle = DPE_ANGLE_F32,
    };
}

struct dpe_session_options dpe_job_session_options(const struct dpe_job *job, int64_t capacity)
{
    const struct dpe_tool_options *tool = &job->options->tool;
    int64_t batch = job->batch > 1 && capacity <= INT64_MAX / job->batch ? job->batch : 1;
    return (struct dpe_session_options){
        .device = job->device,
        .n_threads = tool->threads > 0 ? tool->threads : job->ranks->threads,
        .capacity = capacity * batch,
        .positions = capacity,
        .branches = batch,
        .max_memory = job->memory,
        .peers = &job->peers,
        .knobs = job->options->knobs,
    };
}

/* Peers have different memory perhaps, and need the same session. */
static dpe_status agree_batch(struct dpe_job *job, struct dpe_error *err)
{
    float batches[DPE_MOST_PEERS] = {0};
    const struct dpe_peers *peers = &job->peers;
    if (peers->size == 1 || job->options->dry_run) {
        return DPE_OK;
    }
    batches[peers->index] = (float)job->batch;
    dpe_status status = peers->meet(peers->user, batches, peers->size, DPE_OK, err);
    for (int i = 0; i < peers->size; i++) {
        job->batch = (int64_t)batches[i] < job->batch ? (int64_t)batches[i] : job->batch;
    }
    return status;
}

dpe_status dpe_job_fit_batch(struct dpe_job *job, const struct dpe_plan *plan, int64_t capacity,
                             int64_t wanted, struct dpe_error *err)
{
    uint64_t most = job->memory != 0 ? job->memory : dpe_device_memory(job->device);
    uint64_t bytes = UINT64_MAX;
    uint64_t weights = 0;
    dpe_status status = DPE_OK;
    job->batch = wanted;
    while (job->batch > 1 && bytes > most && status == DPE_OK) {
        const struct dpe_session_options options = dpe_job_session_options(job, capacity);
        status = dpe_session_estimate(dpe_model_config(job->model), plan, &options, &bytes,
                                      &weights, err);
        job->batch = bytes > most ? job->batch / 2 : job->batch;
    }
    status = status == DPE_OK ? agree_batch(job, err) : status;
    if (status == DPE_OK && job->batch < wanted) {
        dpe_log_info("memory holds %lld of %lld samples at a time", (long long)job->batch,
                     (long long)wanted);
    }
    return status;
}

const char *dpe_job_memory_text(const struct dpe_job *job, uint64_t bytes, uint64_t weights,
                                char text[200])
{
    char session_text[32];
    char weights_text[32];
    char free_text[32];
    uint64_t most = job->memory != 0 ? job->memory : dpe_device_memory(job->device);
    const char *kind = job->memory != 0 ? "allowed" : "free";
    dpe_format_bytes(bytes, session_text);
    dpe_format_bytes(weights, weights_text);
    dpe_format_bytes(most, free_text);
    if (strcmp(job->device_info.kind, "cuda") == 0) {
        snprintf(text, 200, "%s on the device, %s of them weights; %s are %s: %s", session_text,
                 weights_text, free_text, kind, bytes <= most ? "fits" : "does not fit");
    } else if (bytes <= most) {
        snprintf(text, 200, "%s, and %s of weights mapped from disk", session_text, weights_text);
    } else {
        snprintf(text, 200, "%s, and %s of weights mapped from disk; %s are %s: does not fit",
                 session_text, weights_text, free_text, kind);
    }
    size_t used = strlen(text);
    if (job->peers.size > 1) {
        snprintf(text + used, 200 - used, ", in each of %d processes", job->peers.size);
    }
    return text;
}

dpe_status dpe_job_poll(void *user, struct dpe_error *err)
{
    struct dpe_job *job = user;
    if (job->ranks->beat != NULL) {
        job->ranks->beat(job->ranks->beat_user);
    }
    return dpe_signals_poll(NULL, err);
}

dpe_status dpe_job_session(struct dpe_job *job, const struct dpe_plan *plan, int64_t capacity,
                           struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    if (job->session != NULL) {
        status = dpe_session_set_plan(job->session, plan, err);
    } else {
        const struct dpe_session_options options = dpe_job_session_options(job, capacity);
        status = dpe_session_create(job->model, plan, &options, &job->session, err);
        if (status == DPE_OK) {
            dpe_session_set_poll(job->session, dpe_job_poll, job);
        }
    }
    if (status == DPE_OK) {
        dpe_log_chunk(job->session, &job->told_chunk);
    }
    return status;
}

struct dpe_session_work dpe_job_work(const struct dpe_job *job)
{
    struct dpe_session_work sum = {0};
    if (job->session != NULL) {
        sum = dpe_session_work(job->session);
    }
    for (int r = 0; r < job->ranks->size; r++) {
        sum.fed += job->works[r].fed;
        sum.decoded += job->works[r].decoded;
        sum.steps += job->works[r].steps;
    }
    return sum;
}

/* ------------------------------------------------------------------------------------------ run */

static const char *dtype_name(enum dpe_dtype dtype)
{
    return dtype == DPE_F32 ? "f32" : dtype == DPE_F16 ? "f16" : "bf16";
}

dpe_status dpe_job_identity(const struct dpe_job *job, const struct dpe_job_identity *own,
                            struct dpe_identity *identity, struct dpe_error *err)
{
    const struct dpe_job_options *options = job->options;
    const char *const first[][2] = {
        {"kind", own->kind},
        {"suite", own->suite},
        {"model", dpe_model_fingerprint(job->model)},
        {"tokenizer", dpe_tokenizer_fingerprint(job->tokenizer)},
        {"corpus", job->corpus != NULL ? dpe_corpus_fingerprint(job->corpus) : NULL},
    };
    const char *const last[][2] = {
        /* Not which of several devices, nor its generation: they round alike to no more and no less
         * than processors of different widths do. */
        {"device", job->device_info.kind},
        {"dtype", dtype_name(dpe_device_dtype(job->device, dpe_model_config(job->model)))},
        {"angle", "f32"},
    };
    const struct {
        const char *const (*fields)[2];
        size_t n;
    } parts[] = {{first, sizeof first / sizeof first[0]},
                 {own->own, own->n_own},
                 {last, sizeof last / sizeof last[0]}};
    dpe_status status = DPE_OK;
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        for (size_t i = 0; i < parts[p].n && status == DPE_OK; i++) {
            if (parts[p].fields[i][1] != NULL) {
                status =
                    dpe_identity_add(identity, parts[p].fields[i][0], parts[p].fields[i][1], err);
            }
        }
    }
    if (status == DPE_OK && own->length_name != NULL) {
        status = dpe_identity_addf(identity, err, own->length_name, "%lld", (long long)own->length);
    }
    /* How many hold the model together rounds its sums. */
    if (status == DPE_OK && job->peers.size > 1) {
        status = dpe_identity_addf(identity, err, "tensor_parallel", "%d", job->peers.size);
    }
    return status == DPE_OK
               ? dpe_identity_addf(identity, err, "seed", "%llu", (unsigned long long)options->seed)
               : status;
}

static void notice(void *user, const char *text)
{
    (void)user;
    dpe_log_rank("%s", text);
}

/* What this process is, for /run. */
static dpe_status describe(const struct dpe_job *job, struct dpe_identity *info,
                           struct dpe_error *err)
{
    const struct dpe_job_options *args = job->options;
    dpe_status status = dpe_run_info(info, args->argc, args->argv, args->tool.threads, err);
    if (status == DPE_OK) {
        status = dpe_identity_add(info, "model_folder", args->model, err);
    }
    if (status == DPE_OK && args->corpus != NULL) {
        status = dpe_identity_add(info, "corpus_path", args->corpus, err);
    }
    if (status == DPE_OK) {
        status = dpe_identity_add(info, "device", job->device, err);
    }
    if (status == DPE_OK && job->device_info.name[0] != '\0') {
        status = dpe_identity_add(info, "gpu", job->device_info.name, err);
    }
    if (status == DPE_OK && job->device_info.driver[0] != '\0') {
        status = dpe_identity_add(info, "driver", job->device_info.driver, err);
    }
    if (status == DPE_OK && job->told_chunk > 0) {
        status = dpe_identity_addf(info, err, "prefill_chunk", "%lld", (long long)job->told_chunk);
    }
    if (status == DPE_OK && job->batch > 0) {
        status = dpe_identity_addf(info, err, "batch", "%lld", (long long)job->batch);
    }
    return status == DPE_OK ? dpe_identity_addf(info, err, "ranks", "%d", job->ranks->size)
                            : status;
}

static dpe_status open_run(struct dpe_job *job, const struct dpe_identity *identity,
                           struct dpe_error *err)
{
    const struct dpe_job_options *args = job->options;
    struct dpe_identity info = {0};
    dpe_status status = describe(job, &info, err);
    if (status == DPE_OK) {
        const struct dpe_run_options options = {
            .force = args->tool.force,
            .salvage = args->tool.salvage,
            .keep_journal = args->tool.keep_journal,
            .force_unlock = args->tool.force_unlock,
            .rank = job->ranks->rank,
            .own_only = job->ranks->rank > 0,
            .info = &info,
            .notice = notice,
        };
        status = dpe_run_open(args->output, identity, &options, &job->run, err);
    }
    dpe_identity_free(&info);
    return status;
}

/* Every rank must see the same model, texts and options. */
static dpe_status same_inputs(struct dpe_job *job, const struct dpe_identity *identity,
                              struct dpe_error *err)
{
    struct dpe_text bytes = {0};
    struct dpe_identity first = {0};
    dpe_status status = dpe_identity_encode(identity, &bytes, err);
    if (status == DPE_OK) {
        status = dpe_ranks_share(job->ranks, &bytes, err);
    }
    if (status == DPE_OK && job->ranks->rank > 0) {
        status = dpe_identity_decode((const unsigned char *)bytes.bytes, bytes.n, &first, err);
        for (size_t i = 0; i < first.n && status == DPE_OK; i++) {
            const char *here = dpe_identity_get(identity, first.fields[i].name);
            if (here == NULL || strcmp(here, first.fields[i].value) != 0) {
                status = dpe_fail(
                    err, DPE_BAD_DATA,
                    "does not see what rank 0 sees: %s: expected %.200s, found %.200s",
                    first.fields[i].name, first.fields[i].value, here != NULL ? here : "nothing");
            }
        }
    }
    dpe_text_free(&bytes);
    dpe_identity_free(&first);
    return status;
}

dpe_status dpe_job_start(struct dpe_job *job, const struct dpe_job_identity *own,
                         const struct dpe_plan *plan, int64_t capacity, struct dpe_error *err)
{
    struct dpe_ranks *ranks = job->ranks;
    struct dpe_identity identity = {0};
    dpe_status status = dpe_job_identity(job, own, &identity, err);
    char begun = access(job->options->output, F_OK) == 0;
    status = dpe_ranks_settle(ranks, status, err);
    status = status == DPE_OK ? dpe_ranks_give(ranks, &begun, sizeof begun, err) : status;
    if (status == DPE_OK && !begun) {
        status = dpe_job_session(job, plan, capacity, err);
    }
    status = dpe_ranks_meet(ranks, DPE_MEET_START, status, err);
    if (status == DPE_OK) {
        status = same_inputs(job, &identity, err);
        if (status == DPE_OK && ranks->rank == 0) {
            status = open_run(job, &identity, err);
        }
        status = dpe_ranks_meet(ranks, DPE_MEET_RUN, status, err);
    }
    if (status == DPE_OK && ranks->size > 1) {
        status = ranks->rank > 0 ? open_run(job, &identity, err) : DPE_OK;
        status = dpe_ranks_meet(ranks, DPE_MEET_RUN_OTHERS, status, err);
        status = status == DPE_OK ? dpe_job_share_rows(job, err) : status;
    }
    job->last_snapshot = dpe_clock();
    dpe_identity_free(&identity);
    return status;
}

dpe_status dpe_job_snapshot(struct dpe_job *job, bool complete, dpe_run_fill fill, void *user,
                            struct dpe_error *err)
{
    double begin = dpe_clock();
    dpe_status status = dpe_run_snapshot(job->run, complete, fill, user, err);
    job->last_snapshot = dpe_clock();
    job->snapshot_cost = job->last_snapshot - begin;
    return status;
}

/* Behind the reason: what is not lost, and what to do. */
static dpe_status say_safe(const struct dpe_job *job, dpe_status status, struct dpe_error *err)
{
    if (err == NULL || job->planned == 0) {
        return status;
    }
    char reason[sizeof err->text];
    snprintf(reason, sizeof reason, "%s", err->text);
    const char *when = status == DPE_IO          ? " once that is mended"
                       : status == DPE_NO_MEMORY ? " with more memory"
                                                 : "";
    return dpe_fail(err, status,
                    "%.800s; %lld of %lld samples are safe, the same command continues%s", reason,
                    (long long)(job->planned - job->missing), (long long)job->planned, when);
}

dpe_status dpe_job_finish(struct dpe_job *job, dpe_status status, dpe_run_fill fill, void *user,
                          struct dpe_error *err)
{
    if (status == DPE_IO || status == DPE_NO_MEMORY) {
        return say_safe(job, status, err);
    }
    if (status != DPE_OK && status != DPE_INCOMPLETE && status != DPE_NONFINITE) {
        return status;
    }
    struct dpe_error saving = {0};
    dpe_status saved = DPE_OK;
    if (job->ranks->rank == 0) {
        saved = dpe_job_snapshot(job, status == DPE_OK, fill, user, &saving);
    }
    saved = dpe_ranks_meet(job->ranks, DPE_MEET_FINISH, saved, &saving);
    if (saved != DPE_OK) {
        dpe_fail(err, saved, "%s", saving.text);
        return saved == DPE_IO || saved == DPE_NO_MEMORY ? say_safe(job, saved, err) : saved;
    }
    return status == DPE_INCOMPLETE ? say_safe(job, status, err) : status;
}

dpe_status dpe_job_close(struct dpe_job *job, dpe_status status, struct dpe_error *err)
{
    struct dpe_error closing = {0};
    dpe_status closed = DPE_OK;
    if (job->ranks != NULL) {
        /* The journals of the others are closed before rank 0 removes them. */
        if (job->ranks->rank > 0) {
            closed = dpe_run_close(job->run, &closing);
            job->run = NULL;
        }
        status = dpe_ranks_meet(job->ranks, DPE_MEET_CLOSE, status, err);
    }
    if (job->run != NULL) {
        closed = dpe_run_close(job->run, &closing);
    }
    if (status == DPE_OK && closed != DPE_OK) {
        status = dpe_fail(err, closed, "%s", closing.text);
    }
    dpe_session_destroy(job->session);
    dpe_corpus_close(job->corpus);
    dpe_tokenizer_close(job->tokenizer);
    dpe_model_close(job->model);
    free(job->pace);
    free(job->works);
    if (job->ranks != NULL) {
        dpe_ranks_stop(job->ranks, status);
        free(job->ranks);
    }
    *job = (struct dpe_job){0};
    return status;
}

/* --------------------------------------------------------------------------------------- tables */

static dpe_status check_fingerprint(const struct dpe_table_values *values, const char *fingerprint,
                                    struct dpe_error *err)
{
    if (fingerprint == NULL || strcmp(values->model_fingerprint, fingerprint) == 0) {
        return DPE_OK;
    }
    return dpe_fail(
        err, DPE_BAD_DATA,
        "measured on the model %.16s…, this one is %.16s…: same shape, other weights or "
        "configuration; --other-model applies it all the same",
        values->model_fingerprint, fingerprint);
}

dpe_status dpe_job_plan_of_table(const char *path, const struct dpe_plan_context *context,
                                 const char *fingerprint, struct dpe_plan *plan,
                                 struct dpe_error *err)
{
    struct dpe_table *table = NULL;
    char why[DPE_TABLE_MESSAGE];
    int error = dpe_table_open(path, &table, why);
    if (error != DPE_TABLE_OK) {
        return dpe_fail(err, error == DPE_TABLE_NO_FILE ? DPE_NO_INPUT : DPE_BAD_DATA, "%s", why);
    }
    const int64_t made_for = dpe_table_values(table)->length;
    if (context->length > made_for) {
        dpe_log_warning(
            "%s was made for %lld tokens, this may reach %lld: what is farther apart was "
            "not measured",
            path, (long long)made_for, (long long)context->length);
    }
    dpe_status status = dpe_plan_of_table(dpe_table_values(table), context, plan, err);
    if (status == DPE_OK) {
        status = check_fingerprint(dpe_table_values(table), fingerprint, err);
        if (status != DPE_OK) {
            dpe_plan_free(plan);
        }
    }
    dpe_table_close(table);
    return status == DPE_OK ? status : dpe_fail_prefix(err, "%s", path);
}
