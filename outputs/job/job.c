/* A job's inputs: model and texts, device, processes, session. */
#include "engine/plan/methods/methods.h"
#include "engine/system/folder.h"
#include "engine/tokenizer/tokenizer.h"
#include "outputs/job/job_internal.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

dpe_status dpe_job_check_replaced(const struct dpe_job_options *options, const char *path,
                                  struct dpe_error *err)
{
    const char *inputs[2] = {options->model, options->corpus};
    DPE_TRY(dpe_tool_check_output(path, inputs, 2, err));
    DPE_TRY(dpe_tool_check_output(path, options->inputs, options->n_inputs, err));
    return dpe_tool_check_words(path, options->argc, options->argv, err);
}

/* Whether what is written may lie there. */
static dpe_status check_place(const struct dpe_job_options *options, struct dpe_error *err)
{
    DPE_TRY(options->output != NULL ? dpe_tool_check_folder(options->output, err) : DPE_OK);
    return options->output != NULL && options->tool.force
               ? dpe_job_check_replaced(options, options->output, err)
               : DPE_OK;
}

/* The session's poll; `user` is the job. */
static dpe_status poll_job(void *user, struct dpe_error *err)
{
    struct dpe_job *job = user;
    if (job->ranks->beat != NULL) {
        job->ranks->beat(job->ranks->beat_user);
    }
    if (job->inside != NULL && job->session != NULL) {
        dpe_loop_show_inside(job);
    }
    return dpe_signals_poll(NULL, err);
}

/* Another program runs the model: it must read texts as this one does. */
static dpe_status open_engine(struct dpe_job *job, struct dpe_error *err)
{
    enum { PATIENCE = 600 /* seconds */ };
    const struct dpe_job_options *options = job->options;
    const struct dpe_remote_options remote = {
        .url = options->engine,
        .key_file = options->engine_key,
        .in_flight = DPE_JOB_IN_FLIGHT,
        .patience = PATIENCE,
        .tokenizer = job->tokenizer,
        .config = dpe_model_config(job->model),
        .poll = poll_job,
        .poll_user = job,
    };
    DPE_TRY(dpe_remote_open(&remote, &job->remote, err));
    const struct dpe_remote_about *about = dpe_remote_about(job->remote);
    if (about->plans && strcmp(about->tokenizer, dpe_tokenizer_fingerprint(job->tokenizer)) != 0) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected the tokenizer of %s (%.16s), found another one (%.16s)",
                        options->engine, options->model, dpe_tokenizer_fingerprint(job->tokenizer),
                        about->tokenizer);
    }
    dpe_log_info("engine %s: %s, model %s%s", options->engine, about->engine, about->name,
                 about->plans ? "" : ", under the one plan that it has");
    return DPE_OK;
}

dpe_status dpe_job_corpus(const char *path, struct dpe_corpus **corpus, struct dpe_error *err)
{
    DPE_TRY(dpe_corpus_open(path, corpus, err));
    const size_t n = (*corpus)->n_empty;
    if (n > 0) {
        dpe_log_warning("%s: %zu text%s without a word left out: %s%s", path, n, n > 1 ? "s" : "",
                        (*corpus)->empty, n > 1 ? " and others" : "");
    }
    return DPE_OK;
}

static dpe_status open_inputs(struct dpe_job *job, bool config_only, struct dpe_error *err)
{
    const struct dpe_job_options *options = job->options;
    const struct dpe_model_options model_options = {.config_only =
                                                        config_only || options->engine != NULL,
                                                    .trained_length = options->trained_length};
    DPE_TRY(dpe_model_open(options->model, &model_options, &job->model, err));
    if (dpe_model_warning(job->model) != NULL) {
        dpe_log_warning("%s: %s", options->model, dpe_model_warning(job->model));
    }
    job->trained_length = options->trained_length > 0
                              ? options->trained_length
                              : dpe_config_trained(dpe_model_config(job->model));
    DPE_TRY(dpe_tokenizer_open(options->model, &job->tokenizer, err));
    const struct dpe_tokenizer_limits limits = {.poll = dpe_signals_poll,
                                                .max_memory = options->tool.max_memory};
    dpe_tokenizer_set_limits(job->tokenizer, &limits);
    DPE_TRY(options->engine != NULL ? open_engine(job, err) : DPE_OK);
    return options->corpus == NULL ? DPE_OK : dpe_job_corpus(options->corpus, &job->corpus, err);
}

static dpe_status use_device(struct dpe_job *job, const char *device, struct dpe_error *err)
{
    DPE_TRY(dpe_device_describe(device, &job->device_info, err));
    snprintf(job->device, sizeof job->device, "%s", device);
    return DPE_OK;
}

/* The device of this process, and its share of the device's memory. "cuda" is the one that the rank
 * on this machine counts to; ranks that use the same share its memory evenly, by what is free
 * before any of them takes some. */
static dpe_status find_device(struct dpe_job *job, struct dpe_error *err)
{
    const struct dpe_tool_options *tool = &job->options->tool;
    const char *wanted = tool->device != NULL ? tool->device : "cpu";
    char own[sizeof job->device];
    dpe_status status = use_device(job, wanted, err);
    if (status == DPE_OK && job->ranks->size > 1 && strcmp(wanted, "cuda") == 0) {
        snprintf(own, sizeof own, "cuda:%d", job->ranks->local_rank % job->device_info.count);
        status = use_device(job, own, err);
    }
    int sharing = dpe_ranks_count_same(job->ranks, status == DPE_OK ? job->device_info.id : "");
    job->memory = tool->max_memory;
    if (status == DPE_OK && job->memory == 0 && sharing > 1) {
        job->memory = dpe_device_memory(job->device) / (uint64_t)sharing;
    }
    return status;
}

dpe_status dpe_job_find_dtype(struct dpe_job *job, const char *output, dpe_status status,
                              struct dpe_error *err)
{
    const struct dpe_tool_options *tool = &job->options->tool;
    const size_t same = strlen(tool->dtype == DPE_TOOL_AUTO ? "cpu" : "cpu-bf16");
    const char *wanted = "";
    char type[sizeof job->device] = "";
    status = status == DPE_OK ? dpe_tool_find_device(tool, job->model, &wanted, err) : status;
    if (strncmp(job->device, "cpu", 3) != 0 || tool->dtype == DPE_TOOL_F32) {
        return status;
    }
    const bool alike = dpe_ranks_count_same(job->ranks, wanted) == job->ranks->size;
    if (output != NULL && !tool->force && dpe_job_leads(job)) {
        dpe_run_recorded(output, "device", type, sizeof type);
    }
    if (strncmp(type, "cpu-bf16", same) != 0) { /* else it goes on in the type that it began in */
        snprintf(type, sizeof type, "%s", alike ? wanted : "cpu");
    }
    DPE_TRY(status == DPE_OK ? dpe_job_tell(job, type, sizeof type, err)
                             : dpe_job_meet(job, status, err));
    return use_device(job, type, err);
}

static dpe_status meet_peers(void *user, float *x, int64_t n, dpe_status status,
                             struct dpe_error *err)
{
    return dpe_ranks_sum(user, x, n, status, err);
}

static dpe_status share_with_peers(void *user, void *bytes, size_t n, struct dpe_error *err)
{
    return dpe_ranks_broadcast(user, bytes, n, err);
}

/* The processes that share the model with this one. A dry run is alone and shows what each would
 * need. */
static dpe_status find_peers(struct dpe_job *job, struct dpe_error *err)
{
    const struct dpe_job_options *options = job->options;
    int size = options->tensor_parallel > 1 ? options->tensor_parallel : 1;
    job->peers = (struct dpe_peers){
        .size = size, .user = job->ranks, .meet = meet_peers, .share = share_with_peers};
    if (options->dry_run) {
        return DPE_OK;
    }
    if (size > 1 && job->ranks->size == 1) {
        return dpe_fail(
            err, DPE_USAGE,
            "--tensor-parallel %d: expected %d processes that share the model, found one; "
            "start the same command with mpirun -n %d",
            size, size, size);
    }
    const dpe_status status = dpe_ranks_group(job->ranks, size, err);
    job->peers.index = job->ranks->rank - job->ranks->leader;
    return status;
}

/* The other processes. All of them learn here whether one of them has no memory to begin: what
 * follows waits for each. */
static dpe_status join(struct dpe_job *job, struct dpe_error *err)
{
    struct dpe_ranks ranks = {.limit = job->options->rank_timeout};
    dpe_status status = dpe_ranks_start(&ranks, err);
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    if (status == DPE_OK && ranks.size == 1 && tasks != NULL && atoi(tasks) > 1) {
        dpe_log_warning("srun started %s tasks that do not know of each other through MPI: each is "
                        "a run of its own; give srun --mpi=pmix, or start with mpirun",
                        tasks);
    }
    dpe_tool_set_rank(ranks.rank);
    job->ranks = dpe_alloc(1, sizeof *job->ranks);
    job->works = dpe_alloc_zero((size_t)ranks.size, sizeof *job->works);
    if (status == DPE_OK && (job->ranks == NULL || job->works == NULL)) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for %d ranks", ranks.size);
    }
    status = dpe_ranks_barrier(&ranks, DPE_BARRIER_JOIN, status, err);
    ranks.apart = ranks.apart || status != DPE_OK;
    if (job->ranks == NULL) {
        dpe_ranks_stop(&ranks, status);
    } else {
        *job->ranks = ranks;
    }
    return status;
}

/* A part of another job: everything that is opened once is that one's. */
static dpe_status open_within(struct dpe_job *job, const struct dpe_job_options *options,
                              struct dpe_error *err)
{
    const struct dpe_job *within = options->within;
    *job = (struct dpe_job){.options = options,
                            .model = within->model,
                            .tokenizer = within->tokenizer,
                            .corpus = within->corpus,
                            .trained_length = within->trained_length,
                            .begin = dpe_clock(),
                            .deadline = within->deadline,
                            .device_info = within->device_info,
                            .memory = within->memory,
                            .remote = within->remote,
                            .ranks = within->ranks,
                            .peers = within->peers};
    memcpy(job->device, within->device, sizeof job->device);
    dpe_status status = DPE_NEW(&job->works, (size_t)job->ranks->size, err, "out of memory");
    status = status == DPE_OK ? check_place(options, err) : status;
    return dpe_ranks_barrier(job->ranks, DPE_BARRIER_OPEN, status, err);
}

static dpe_status open_all(struct dpe_job *job, bool config_only, struct dpe_error *err)
{
    DPE_TRY(check_place(job->options, err));
    DPE_TRY(find_device(job, err));
    DPE_TRY(find_peers(job, err));
    return dpe_job_find_dtype(job, job->options->output, open_inputs(job, config_only, err), err);
}

dpe_status dpe_job_open(struct dpe_job *job, const struct dpe_job_options *options,
                        bool config_only, struct dpe_error *err)
{
    dpe_progress_begin();
    if (options->within != NULL) {
        return open_within(job, options, err);
    }
    *job = (struct dpe_job){.options = options, .begin = dpe_clock()};
    job->deadline =
        options->tool.time_budget > 0.0 ? job->begin + options->tool.time_budget : (double)INFINITY;
    DPE_TRY(join(job, err));
    const dpe_status status = open_all(job, config_only, err);
    return dpe_ranks_barrier(job->ranks, DPE_BARRIER_OPEN, status, err);
}

bool dpe_job_leads(const struct dpe_job *job)
{
    return job->ranks->rank == 0;
}

dpe_status dpe_job_meet(const struct dpe_job *job, dpe_status status, struct dpe_error *err)
{
    return dpe_ranks_barrier(job->ranks, DPE_BARRIER_MEET, status, err);
}

dpe_status dpe_job_tell(const struct dpe_job *job, void *bytes, size_t n, struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    DPE_TRY(dpe_job_meet(job, dpe_text_append(&text, bytes, n, err), err));
    if (job->ranks->size > 1) {
        DPE_TRY(dpe_ranks_share(job->ranks, &text, err));
        memcpy(bytes, text.bytes, n);
    }
    return DPE_OK;
}

struct dpe_plan_context dpe_job_context(const struct dpe_job *job, int64_t length)
{
    return (struct dpe_plan_context){
        .config = dpe_model_config(job->model),
        .trained_length = job->trained_length,
        .length = length,
    };
}

/* How a session is made to need less memory: what each sequence beside the first has is halved
 * until it is too little for a question; then all begins again with keys and values of int8. */
enum { HALVINGS = 24, LEAST_OWN = 64 };
/* Rows of a step, at most; of several sessions on processors so many as are multiplied at once,
 * which have the bits of one. */
enum { MOST_ROWS = 64, FEW_ROWS = 4 };

enum dpe_kv_type dpe_job_kv_type(const struct dpe_job *job)
{
    return job->saving > HALVINGS ? DPE_KV_INT8 : job->options->tool.kv_type;
}

struct dpe_session_options dpe_job_session_options(const struct dpe_job *job, int64_t capacity)
{
    const struct dpe_tool_options *tool = &job->options->tool;
    const int halvings = job->saving % (HALVINGS + 1);
    const int64_t own = dpe_least(job->own, capacity) >> halvings;
    const bool alone = job->batch < 2 || (halvings > 0 && own < LEAST_OWN) ||
                       own > (INT64_MAX - capacity) / job->batch;
    return (struct dpe_session_options){
        .device = job->device,
        .n_threads = tool->threads > 0 ? tool->threads : job->ranks->threads,
        .capacity = capacity + (alone ? 0 : (job->batch - 1) * own),
        .positions = capacity,
        .branches = alone ? 1 : job->batch,
        .max_memory = job->memory,
        .kv_type = dpe_job_kv_type(job),
        .kv_dir = tool->max_memory != 0 ? dpe_tool_kv_dir() : NULL,
        .peers = &job->peers,
        .knobs = job->options->knobs,
    };
}

static void tell_saving(const struct dpe_job *job, int64_t capacity)
{
    const struct dpe_session_options options = dpe_job_session_options(job, capacity);
    const long long n = capacity;
    if (options.kv_type != job->options->tool.kv_type) {
        dpe_log_info("%lld tokens do not fit into memory in %s: --kv-cache-dtype int8 is taken", n,
                     dpe_kv_type_names[job->options->tool.kv_type]);
    }
    if (options.branches < job->batch) {
        dpe_log_info("memory holds one text of %lld tokens: its questions follow each other", n);
    }
}

dpe_status dpe_job_fit_batch(struct dpe_job *job, const struct dpe_plan *plan, int64_t capacity,
                             const struct dpe_job_batch *wanted, struct dpe_error *err)
{
    const struct dpe_tool_options *tool = &job->options->tool;
    const bool packs = strncmp(job->device, "cpu", 3) == 0 && !tool->kv_given;
    const bool meet = job->ranks->size > 1 && !job->options->dry_run;
    enum { NEW, WIDE, PACKED } begun = NEW;
    char type[16] = "";
    /* A run goes on with the type that it began with, whatever is free by now. */
    if (packs && !tool->force && job->options->output != NULL && job->ranks->rank == 0 &&
        dpe_run_recorded(job->options->output, "kv_cache_dtype", type, sizeof type)) {
        begun = strcmp(type, dpe_kv_type_names[DPE_KV_INT8]) == 0 ? PACKED : WIDE;
    }
    DPE_TRY(meet ? dpe_job_tell(job, &begun, sizeof begun, err) : DPE_OK);
    const int last = packs && begun != WIDE ? 2 * HALVINGS + 1 : HALVINGS;
    const int before = begun == PACKED ? (int)dpe_most(job->saving, HALVINGS + 1) : job->saving;
    const uint64_t most = job->memory != 0 ? job->memory : dpe_device_memory(job->device);
    struct dpe_session_needs needs = {.memory = UINT64_MAX};
    dpe_status status = DPE_OK;
    /* A server decides how many it runs together. */
    job->batch = job->remote != NULL ? DPE_JOB_IN_FLIGHT : dpe_least(wanted->together, MOST_ROWS);
    job->group = (job->batch + wanted->together - 1) / wanted->together * wanted->together;
    job->own = wanted->own;
    job->saving = before;
    job->sides = 1;
    for (; job->remote == NULL && status == DPE_OK; job->saving++) {
        struct dpe_session_options options = dpe_job_session_options(job, capacity);
        options.kv_dir = NULL; /* less before a file */
        status = dpe_session_estimate(dpe_model_config(job->model), plan, &options, &needs, err);
        if (needs.memory <= most || job->saving == last) {
            break;
        }
    }
    if (needs.memory > most && job->saving > HALVINGS && begun != PACKED) {
        job->saving = HALVINGS; /* int8 would not help */
    }
    job->ranks->most = job->saving; /* all have what the one with the least memory has */
    DPE_TRY(meet ? dpe_ranks_barrier(job->ranks, DPE_BARRIER_BATCH, status, err) : status);
    job->saving = job->ranks->most;
    if (job->saving > before && needs.memory <= most) {
        tell_saving(job, capacity);
    }
    if (wanted->answers && job->remote == NULL && job->saving == 0) {
        const bool card = strcmp(job->device_info.kind, "cuda") == 0;
        const int64_t sides = (card ? MOST_ROWS : FEW_ROWS) / job->batch;
        job->sides = (int)dpe_most(1, dpe_least(sides, DPE_JOB_SIDES));
    }
    return DPE_OK;
}

dpe_status dpe_job_check_plan(const struct dpe_job *job, const struct dpe_plan *plan,
                              int64_t length, struct dpe_error *err)
{
    const struct dpe_session_options options = dpe_job_session_options(job, length);
    struct dpe_session_needs needs = {0};
    if (job->remote != NULL) {
        int64_t most = dpe_remote_about(job->remote)->length;
        return most == 0 || length <= most
                   ? DPE_OK
                   : dpe_fail(err, DPE_USAGE,
                              "%s: expected texts of at most %lld tokens (--length of dpe-serve, "
                              "--max-model-len of vLLM less 1), "
                              "found %lld",
                              job->options->engine, (long long)most, (long long)length);
    }
    return dpe_session_estimate(dpe_model_config(job->model), plan, &options, &needs, err);
}

dpe_status dpe_job_needs_plans(const struct dpe_job *job, const char *so, struct dpe_error *err)
{
    return job->remote == NULL || dpe_remote_about(job->remote)->plans
               ? DPE_OK
               : dpe_fail(err, DPE_USAGE,
                          "%s takes no plans (it is neither dpe-serve nor vLLM with DPE_ENGINE=1), "
                          "so %s",
                          job->options->engine, so);
}

static struct dpe_session_needs needs_of(const struct dpe_job *job, const struct dpe_plan *plan,
                                         int64_t length)
{
    const struct dpe_session_options options = dpe_job_session_options(job, length);
    struct dpe_session_needs needs = {0};
    (void)dpe_session_estimate(dpe_model_config(job->model), plan, &options, &needs, NULL);
    return needs;
}

/* With a file, sessions that fit take all the memory that is allowed, and one that does not fit is
 * known by its memory, however small its file is. */
bool dpe_job_needs_more(const struct dpe_job *job, const struct dpe_plan *plan,
                        const struct dpe_plan *than, int64_t length)
{
    const struct dpe_session_needs of_plan = needs_of(job, plan, length);
    const struct dpe_session_needs of_other = needs_of(job, than, length);
    return of_plan.memory != of_other.memory ? of_plan.memory > of_other.memory
                                             : of_plan.file > of_other.file;
}

bool dpe_job_allows(const struct dpe_job *job, const struct dpe_plan *plan, int64_t length)
{
    const uint64_t most = job->options->tool.max_memory;
    return job->remote != NULL || most == 0 || needs_of(job, plan, length).memory <= most;
}

const char *dpe_job_memory_text(const struct dpe_job *job, const struct dpe_session_needs *needs,
                                char text[DPE_JOB_MEMORY])
{
    uint64_t bytes = needs->memory;
    char session_text[32];
    char weights_text[32];
    char free_text[32];
    uint64_t most = job->memory != 0 ? job->memory : dpe_device_memory(job->device);
    const char *kind = job->memory != 0 ? "allowed" : "free";
    dpe_format_bytes(bytes, session_text);
    dpe_format_bytes(needs->weights, weights_text);
    dpe_format_bytes(most, free_text);
    if (strcmp(job->device_info.kind, "cuda") == 0) {
        snprintf(text, DPE_JOB_MEMORY, "%s on the device, %s of them weights; %s are %s: %s",
                 session_text, weights_text, free_text, kind,
                 bytes <= most ? "fits" : "does not fit");
    } else if (bytes <= most) {
        snprintf(text, DPE_JOB_MEMORY, "%s, and %s of weights mapped from disk", session_text,
                 weights_text);
    } else {
        snprintf(text, DPE_JOB_MEMORY,
                 "%s, and %s of weights mapped from disk; %s are %s: does not fit", session_text,
                 weights_text, free_text, kind);
    }
    if (needs->file > 0 && bytes <= most) {
        char file[32];
        dpe_append(text, DPE_JOB_MEMORY,
                   "; %s of keys and values in a file in %.80s, which is slower",
                   dpe_format_bytes(needs->file, file), dpe_tool_kv_dir());
    }
    if (job->peers.size > 1) {
        dpe_append(text, DPE_JOB_MEMORY, ", in each of %d processes", job->peers.size);
    }
    return text;
}

/* "135 M", "8.0 B" */
static const char *format_count(double count, char text[32])
{
    static const char *const units[] = {"", " K", " M", " B", " T"};
    size_t unit = 0;
    while (count >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) {
        count /= 1000.0;
        unit++;
    }
    snprintf(text, 32, count < 9.95 && unit > 0 ? "%.1f%s" : "%.0f%s", count, units[unit]);
    return text;
}

const char *dpe_job_fingerprint(const struct dpe_job *job)
{
    const struct dpe_remote_about *about =
        job->remote != NULL ? dpe_remote_about(job->remote) : NULL;
    return about != NULL && about->plans ? about->model : dpe_model_fingerprint(job->model);
}

/* What was read of the texts. */
static void log_corpus(const struct dpe_job *job)
{
    const struct dpe_event event = {"corpus", (double)NAN, (double)NAN, (double)NAN, (double)NAN};
    size_t n = job->corpus->n;
    double bytes = 0.0;
    for (size_t i = 0; i < n; i++) {
        bytes += (double)job->corpus->books[i].n;
    }
    dpe_log_event(&event, "corpus %s: %zu book%s, %.3g MB of text", job->corpus->path, n,
                  n == 1 ? "" : "s", bytes * 1e-6);
}

void dpe_job_header(const struct dpe_job *job)
{
    const struct dpe_config *config = dpe_model_config(job->model);
    const struct dpe_event event = {"header", (double)NAN, (double)NAN, (double)NAN, (double)NAN};
    char count[32];
    int n = 0;
    const char *name = dpe_folder_name(dpe_model_folder(job->model), &n);
    int threads = job->options->tool.threads;
    threads = threads > 0 ? threads : job->ranks->threads;
    threads = threads > 0 ? threads : dpe_limit_processors(omp_get_num_procs());
    dpe_log_event(&event, "%.*s: %s, %s parameters; device %s, %d thread%s%s", n, name,
                  config->model_type, format_count((double)dpe_config_parameters(config), count),
                  job->device, threads, threads == 1 ? "" : "s",
                  job->ranks->size > 1 ? " in each of several processes" : "");
    if (job->corpus != NULL) {
        log_corpus(job);
    }
}

/* A session beside the first one, in at most half of the memory that is left; the pages of weights
 * that are mapped from disk count as free, and are not. */
static dpe_status make_beside(struct dpe_job *job, const struct dpe_plan *plan, int64_t capacity,
                              struct dpe_session **session, struct dpe_error *err)
{
    struct dpe_session_options options = dpe_job_session_options(job, capacity);
    struct dpe_session_needs needs = {0};
    options.beside = job->session;
    DPE_TRY(dpe_session_estimate(dpe_model_config(job->model), plan, &options, &needs, err));
    const uint64_t all = job->memory != 0 ? job->memory : dpe_device_memory(job->device);
    uint64_t used = strncmp(job->device, "cpu", 3) == 0 && job->memory == 0 ? needs.weights : 0;
    for (int i = -1; i < DPE_JOB_SIDES - 1 && job->memory != 0; i++) {
        const struct dpe_session *other = i < 0 ? job->session : job->beside[i];
        used += other != NULL ? dpe_session_memory(other).total : 0;
    }
    options.max_memory = all > used + 1 ? (all - used) / 2 : 1;
    options.kv_dir = NULL;
    DPE_TRY(dpe_session_create(job->model, plan, &options, session, err));
    dpe_session_set_poll(*session, poll_job, job);
    return DPE_OK;
}

dpe_status dpe_job_session(struct dpe_job *job, int side, const struct dpe_plan *plan,
                           int64_t capacity, struct dpe_error *err)
{
    struct dpe_session **session = side > 0 ? &job->beside[side - 1] : &job->session;
    if (*session != NULL) {
        DPE_TRY(dpe_session_set_plan(*session, plan, err));
    } else if (side > 0) {
        return make_beside(job, plan, capacity, session, err);
    } else {
        const struct dpe_session_options options = dpe_job_session_options(job, capacity);
        DPE_TRY(job->remote != NULL
                    ? dpe_session_create_remote(job->model, plan, &options,
                                                dpe_remote_session(job->remote), &job->session, err)
                    : dpe_session_create(job->model, plan, &options, &job->session, err));
        dpe_session_set_poll(job->session, poll_job, job);
        dpe_log_file(job->session);
    }
    dpe_log_chunk(job->session, &job->told_chunk);
    return DPE_OK;
}

static void add_work(struct dpe_session_work *sum, const struct dpe_session_work *work)
{
    sum->fed += work->fed;
    sum->decoded += work->decoded;
    sum->steps += work->steps;
    sum->seconds += work->seconds;
}

struct dpe_session_work dpe_job_own_work(const struct dpe_job *job)
{
    struct dpe_session_work sum = {0};
    for (int i = 0; i < DPE_JOB_SIDES; i++) {
        const struct dpe_session *session = i > 0 ? job->beside[i - 1] : job->session;
        const struct dpe_session_work work =
            session != NULL ? dpe_session_work(session) : (struct dpe_session_work){0};
        add_work(&sum, &work);
    }
    return sum;
}

struct dpe_session_work dpe_job_work(const struct dpe_job *job)
{
    struct dpe_session_work sum = dpe_job_own_work(job);
    for (int r = 0; r < job->ranks->size; r++) {
        add_work(&sum, &job->works[r]);
    }
    return sum;
}
