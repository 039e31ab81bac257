/* A job's run: its identity, its rows on disk, its table, its end. */
#include "outputs/job/job_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data.h"
#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/session/device.h"
#include "engine/session/ladder.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tool/tool.h"
#include "outputs/h5/rows.h"
#include "outputs/run/run.h"

/* The tokens that end an answer, as they were parsed: "2,32000", or "none". */
static void end_tokens(const struct dpe_config *config, char *text, size_t size)
{
    snprintf(text, size, "%s", config->n_eos == 0 ? "none" : "");
    for (int i = 0; i < config->n_eos; i++) {
        dpe_append(text, size, "%s%lld", i == 0 ? "" : ",", (long long)config->eos_ids[i]);
    }
}

/* What is in and what is not, with the reasons: identity.c. */
static dpe_status make_identity(const struct dpe_job *job, const struct dpe_job_identity *own,
                                struct dpe_identity *identity, struct dpe_error *err)
{
    const struct dpe_job_options *options = job->options;
    const struct dpe_remote_about *about =
        job->remote != NULL ? dpe_remote_about(job->remote) : NULL;
    const struct dpe_config *config = dpe_model_config(job->model);
    char ends[16 * 21];
    end_tokens(config, ends, sizeof ends);
    const char *const first[][2] = {
        {"kind", own->kind},
        {"suite", own->suite},
        {"engine", about != NULL ? about->engine : NULL},
        {"engine_numbers", about != NULL && about->numbers[0] != '\0' ? about->numbers : NULL},
        {"model", about == NULL  ? dpe_model_fingerprint(job->model)
                  : about->plans ? about->model
                                 : about->name},
        {"tensor_types", about == NULL ? dpe_model_types(job->model) : NULL},
        {"end_tokens", ends},
        {"tokenizer", dpe_tokenizer_fingerprint(job->tokenizer)},
        {"corpus", job->corpus != NULL ? job->corpus->fingerprint : NULL},
    };
    static const char *const dtypes[] = {"f32", "f16", "bf16"}; /* as enum dpe_dtype has them */
    const char *const last[][2] = {
        /* Not which of several devices, nor its generation: they round alike to no more and no less
         * than processors of different widths do. */
        {"device", about == NULL ? job->device_info.kind : NULL},
        {"dtype", about != NULL ? NULL : dtypes[dpe_device_dtype(job->device, config)]},
        {"angle", "f32"},
        /* None for f32, so that runs of versions without the option continue. */
        {"kv_cache_dtype",
         dpe_job_kv_type(job) != DPE_KV_F32 ? dpe_kv_type_names[dpe_job_kv_type(job)] : NULL},
    };
    const struct {
        const char *const (*fields)[2];
        size_t n;
    } parts[] = {{first, sizeof first / sizeof first[0]},
                 {own->own, own->n_own},
                 {last, sizeof last / sizeof last[0]}};
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        for (size_t i = 0; i < parts[p].n; i++) {
            if (parts[p].fields[i][1] != NULL) {
                DPE_TRY(
                    dpe_identity_add(identity, parts[p].fields[i][0], parts[p].fields[i][1], err));
            }
        }
    }
    if (own->length_name != NULL) {
        DPE_TRY(dpe_identity_addf(identity, err, own->length_name, "%lld", (long long)own->length));
    }
    /* How many hold the model together rounds its sums. */
    if (job->peers.size > 1) {
        DPE_TRY(dpe_identity_addf(identity, err, "tensor_parallel", "%d", job->peers.size));
    }
    return dpe_identity_addf(identity, err, "seed", "%llu", (unsigned long long)options->seed);
}

static void notice(void *user, const char *text)
{
    (void)user;
    dpe_log_rank("%s", text);
}

/* Variables that choose among ways of computing the same; "" when none is set. */
static void environment(char *text, size_t size)
{
    static const char *const names[] = {
        "DPE_CPU",           "DPE_CUDA_ATTENTION",   "DPE_CUDA_MODULE",
        "DPE_CUDA_PEERS",    "DPE_DEVICE_SELF_TEST", "OMP_NUM_THREADS",
        "OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS"};
    text[0] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        size_t n = value != NULL ? strlen(value) : 0;
        if (n > 0) {
            dpe_append(text, size, "%s%s=%.200s", text[0] == '\0' ? "" : " ", names[i],
                       dpe_utf8_check(value, n) == n && n <= 200 ? value : "(another text)");
        }
    }
}

/* What this process is, for /run. */
static dpe_status describe(const struct dpe_job *job, struct dpe_identity *info,
                           struct dpe_error *err)
{
    const struct dpe_job_options *args = job->options;
    char variables[2048];
    char kernels[256];
    DPE_TRY(dpe_run_info(info, args->argc, args->argv, args->tool.threads, err));
    environment(variables, sizeof variables);
    dpe_device_kernels(dpe_model_config(job->model), job->device, kernels);
    const char *const texts[][2] = {
        {"model_folder", args->model},       {"corpus_path", args->corpus},
        {"environment", variables},          {"device", job->device},
        {"engine", job->options->engine},    {"gpu", job->device_info.name},
        {"driver", job->device_info.driver}, {"kernels", kernels}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i][1] != NULL && texts[i][1][0] != '\0') {
            DPE_TRY(dpe_run_info_add(info, texts[i][0], texts[i][1], err));
        }
    }
    if (job->told_chunk > 0) {
        DPE_TRY(dpe_identity_addf(info, err, "prefill_chunk", "%lld", (long long)job->told_chunk));
    }
    if (job->batch > 0) {
        DPE_TRY(dpe_identity_addf(info, err, "batch", "%lld", (long long)job->batch));
    }
    return dpe_identity_addf(info, err, "ranks", "%d", job->ranks->size);
}

static dpe_status open_run(struct dpe_job *job, const struct dpe_identity *identity,
                           struct dpe_error *err)
{
    const struct dpe_job_options *args = job->options;
    DPE_SCOPED(dpe_identity_free) struct dpe_identity info = {0};
    DPE_TRY(describe(job, &info, err));
    const struct dpe_run_options options = {
        .force = args->tool.force,
        .salvage = args->tool.force,
        .rank = job->ranks->rank,
        .info = &info,
        .notice = notice,
    };
    return dpe_run_open(args->output, identity, &options, &job->run, err);
}

/* Every rank must see the same model, texts and options. `bytes`: the identity, encoded; then rank
 * 0's. */
static dpe_status same_inputs(struct dpe_job *job, const struct dpe_identity *identity,
                              struct dpe_text *bytes, struct dpe_error *err)
{
    DPE_SCOPED(dpe_identity_free) struct dpe_identity first = {0};
    DPE_TRY(dpe_ranks_share(job->ranks, bytes, err));
    if (job->ranks->rank == 0) {
        return DPE_OK;
    }
    DPE_TRY(dpe_identity_decode((const unsigned char *)bytes->bytes, bytes->n, &first, err));
    for (size_t i = 0; i < first.n; i++) {
        const char *here = dpe_identity_get(identity, first.fields[i].name);
        if (here == NULL || strcmp(here, first.fields[i].value) != 0) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "has other inputs than rank 0: %s: expected %.200s, found %.200s",
                            first.fields[i].name, first.fields[i].value,
                            here != NULL ? here : "nothing");
        }
    }
    return DPE_OK;
}

dpe_status dpe_job_start(struct dpe_job *job, const struct dpe_job_identity *own,
                         const struct dpe_plan *plan, int64_t capacity, struct dpe_error *err)
{
    struct dpe_ranks *ranks = job->ranks;
    DPE_SCOPED(dpe_identity_free) struct dpe_identity identity = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text bytes = {0};
    dpe_status status = make_identity(job, own, &identity, err);
    if (status == DPE_OK) {
        status = dpe_identity_encode(&identity, &bytes, err);
    }
    char begun = access(job->options->output, F_OK) == 0;
    /* A rank that failed before may be at its end already: all meet before peers wait for each
     * other. */
    DPE_TRY(dpe_ranks_barrier(ranks, DPE_BARRIER_IDENTITY, status, err));
    status = dpe_ranks_broadcast(ranks, &begun, sizeof begun, err);
    if (status == DPE_OK && !begun) {
        status = dpe_job_session(job, 0, plan, capacity, err);
    }
    DPE_TRY(dpe_ranks_barrier(ranks, DPE_BARRIER_START, status, err));
    status = same_inputs(job, &identity, &bytes, err);
    if (status == DPE_OK && ranks->rank == 0) {
        status = open_run(job, &identity, err);
    }
    DPE_TRY(dpe_ranks_barrier(ranks, DPE_BARRIER_RUN, status, err));
    if (ranks->size > 1) {
        status = ranks->rank > 0 ? open_run(job, &identity, err) : DPE_OK;
        DPE_TRY(dpe_ranks_barrier(ranks, DPE_BARRIER_RUN_OTHERS, status, err));
        DPE_TRY(dpe_job_share_rows(job, err));
    }
    job->last_snapshot = dpe_clock();
    return DPE_OK;
}

dpe_status dpe_job_snapshot(struct dpe_job *job, bool complete, dpe_run_fill fill, void *user,
                            struct dpe_error *err)
{
    double begin = dpe_clock();
    dpe_run_progress(job->run, job->planned, job->missing);
    dpe_status status = dpe_run_snapshot(job->run, complete, fill, user, err);
    job->last_snapshot = dpe_clock();
    job->snapshot_cost = job->last_snapshot - begin;
    return status;
}

/* Append to the reason: what is saved, and what to do. */
static dpe_status add_saved(const struct dpe_job *job, dpe_status status, struct dpe_error *err)
{
    if (err == NULL || job->planned == 0) {
        return status;
    }
    char reason[sizeof err->text];
    snprintf(reason, sizeof reason, "%s", err->text);
    const char *first = status == DPE_IO          ? "correct that and "
                        : status == DPE_NO_MEMORY ? "free memory and "
                                                  : "";
    return dpe_fail(
        err, status, "%.800s; %lld of %lld samples are saved; %srun the same command to continue",
        reason, (long long)(job->planned - job->missing), (long long)job->planned, first);
}

/* The end of the work, `status` being how it ended (err holds why): a complete table for DPE_OK;
 * one of what there is for DPE_INCOMPLETE and DPE_NONFINITE, and the message then has the number of
 * rows that are safe. */
static dpe_status finish(struct dpe_job *job, dpe_status status, dpe_run_fill fill, void *user,
                         struct dpe_error *err)
{
    if (status == DPE_IO || status == DPE_NO_MEMORY) {
        return add_saved(job, status, err);
    }
    if (status != DPE_OK && status != DPE_INCOMPLETE && status != DPE_NONFINITE) {
        return status;
    }
    if (status == DPE_OK && job->planned > 0 && !job->told_rows) {
        dpe_log_info("complete: no sample is missing");
    }
    struct dpe_error saving = {0};
    dpe_status saved = DPE_OK;
    if (job->ranks->rank == 0) {
        saved = dpe_job_snapshot(job, status == DPE_OK, fill, user, &saving);
    }
    saved = dpe_ranks_barrier(job->ranks, DPE_BARRIER_FINISH, saved, &saving);
    if (saved != DPE_OK) {
        dpe_fail(err, saved, "%s", saving.text);
        return saved == DPE_IO || saved == DPE_NO_MEMORY ? add_saved(job, saved, err) : saved;
    }
    return status == DPE_INCOMPLETE ? add_saved(job, status, err) : status;
}

/* DPE_NONFINITE where the run has rows and none of them a number: the model does not compute. */
static dpe_status check_finite(const struct dpe_job *job, struct dpe_error *err)
{
    size_t n = 0;
    const struct dpe_row *const *rows = dpe_run_rows(job->run, &n);
    size_t nonfinite = 0;
    while (nonfinite < n && rows[nonfinite]->status == DPE_ROW_NONFINITE) {
        nonfinite++;
    }
    return n == 0 || nonfinite < n
               ? DPE_OK
               : dpe_fail(err, DPE_NONFINITE,
                          "all %zu samples had NaN or infinity in their logits; /rows of the table "
                          "holds the layer and the position",
                          n);
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
        status = dpe_ranks_barrier(job->ranks, DPE_BARRIER_CLOSE, status, err);
    }
    if (job->run != NULL) {
        closed = dpe_run_close(job->run, &closing);
    }
    if (status == DPE_OK && closed != DPE_OK) {
        status = dpe_fail(err, closed, "%s", closing.text);
    }
    for (int i = 0; i < DPE_JOB_SIDES - 1; i++) {
        dpe_session_destroy(job->beside[i]);
    }
    dpe_session_destroy(job->session);
    free(job->pace);
    free(job->works);
    if (job->options != NULL && job->options->within != NULL) {
        *job = (struct dpe_job){0}; /* the rest is that job's */
        return status;
    }
    dpe_remote_close(job->remote);
    dpe_corpus_close(job->corpus);
    dpe_tokenizer_close(job->tokenizer);
    dpe_model_close(job->model);
    if (job->ranks != NULL) {
        dpe_ranks_stop(job->ranks, status);
        free(job->ranks);
    }
    *job = (struct dpe_job){0};
    return status;
}

/* ------------------------------------------------------------------------------------- studies */

static dpe_status run_study(const struct dpe_study *study, void *state, struct dpe_error *err)
{
    struct dpe_job *job = (void *)((char *)state + study->job);
    const bool shown = !job->options->silent;
    DPE_TRY(study->start(state, err));
    const dpe_status status = study->rows(state, err);
    DPE_TRY(finish(job, status, study->fill, state, err));
    DPE_TRY(shown && dpe_job_leads(job) ? study->print(state, err) : DPE_OK);
    DPE_TRY(check_finite(job, err));
    if (shown && job->options->within == NULL && study->suggest != NULL) {
        study->suggest(state);
    }
    return DPE_OK;
}

dpe_status dpe_study_run(const struct dpe_study *study, const void *args, struct dpe_bill *bill,
                         struct dpe_error *err)
{
    DPE_OWNED unsigned char *state = NULL;
    DPE_TRY(DPE_NEW(&state, study->size, err, "out of memory"));
    const struct dpe_job *job = (void *)(state + study->job);
    dpe_status status = study->open(state, args, err);
    if (status == DPE_OK) {
        status =
            job->options->dry_run ? study->cost(state, bill, err) : run_study(study, state, err);
    }
    return study->close(state, status, err);
}

int dpe_study_main(const struct dpe_study *study, const void *args,
                   const struct dpe_job_options *options)
{
    struct dpe_error err = {0};
    dpe_tool_configure(&options->tool);
    return dpe_tool_end(dpe_study_run(study, args, NULL, &err), &err);
}
