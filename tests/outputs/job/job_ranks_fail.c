/* mpirun -n N job_ranks PLACE RANK OUT.h5 MODEL T: a job of several ranks, T to a model, in which a
 * call of rank RANK fails for want of memory. Each rank writes to OUT.h5.rankR how the job ended
 * for it. Places:
 *   open K   the K-th allocation of dpe_job_open, as far as the ranks have not met
 *   texts    between dpe_job_open and what follows it: a tool's own inputs
 *   batch    the estimate in dpe_job_fit_batch
 *   start    what ranks compare in dpe_job_start
 *   rows     what ranks compare in dpe_wanted_run
 *   row      rank 0 reads a row of another rank, or another rank those of all
 *   send     the second time that the rank hands out items
 *   none     nothing */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outputs/job/job_internal.h"

static bool here; /* this is the rank that fails */
static const char *place;
static long allocation, nth;

void *__real_dpe_alloc(size_t count, size_t size);
void *__real_dpe_alloc_zero(size_t count, size_t size);
struct dpe_sha256 *__real_dpe_sha256_new(void);
dpe_status __real_dpe_identity_encode(const struct dpe_identity *identity, struct dpe_text *bytes,
                                      struct dpe_error *err);
dpe_status __real_dpe_session_estimate(const struct dpe_config *config, const struct dpe_plan *plan,
                                       const struct dpe_session_options *options,
                                       struct dpe_session_needs *needs, struct dpe_error *err);
dpe_status __real_dpe_row_decode(const unsigned char *bytes, size_t n, struct dpe_row *row,
                                 struct dpe_error *err);
dpe_status __real_dpe_ranks_send(struct dpe_ranks *ranks, int to, const struct dpe_message *message,
                                 const char *text, size_t n, struct dpe_error *err);
void *__wrap_dpe_alloc(size_t count, size_t size);
dpe_status __wrap_dpe_ranks_send(struct dpe_ranks *ranks, int to, const struct dpe_message *message,
                                 const char *text, size_t n, struct dpe_error *err);
dpe_status __wrap_dpe_row_decode(const unsigned char *bytes, size_t n, struct dpe_row *row,
                                 struct dpe_error *err);
void *__wrap_dpe_alloc_zero(size_t count, size_t size);
struct dpe_sha256 *__wrap_dpe_sha256_new(void);
dpe_status __wrap_dpe_identity_encode(const struct dpe_identity *identity, struct dpe_text *bytes,
                                      struct dpe_error *err);
dpe_status __wrap_dpe_session_estimate(const struct dpe_config *config, const struct dpe_plan *plan,
                                       const struct dpe_session_options *options,
                                       struct dpe_session_needs *needs, struct dpe_error *err);

static bool fails(const char *at)
{
    return here && strcmp(place, at) == 0;
}

static bool allocation_fails(void)
{
    return fails("open") && ++allocation == nth;
}

void *__wrap_dpe_alloc(size_t count, size_t size)
{
    return allocation_fails() ? NULL : __real_dpe_alloc(count, size);
}

void *__wrap_dpe_alloc_zero(size_t count, size_t size)
{
    return allocation_fails() ? NULL : __real_dpe_alloc_zero(count, size);
}

static bool comparing; /* the rows of ranks */

struct dpe_sha256 *__wrap_dpe_sha256_new(void)
{
    return comparing && fails("rows") ? NULL : __real_dpe_sha256_new();
}

dpe_status __wrap_dpe_identity_encode(const struct dpe_identity *identity, struct dpe_text *bytes,
                                      struct dpe_error *err)
{
    return fails("start") ? dpe_fail(err, DPE_NO_MEMORY, "out of memory")
                          : __real_dpe_identity_encode(identity, bytes, err);
}

dpe_status __wrap_dpe_session_estimate(const struct dpe_config *config, const struct dpe_plan *plan,
                                       const struct dpe_session_options *options,
                                       struct dpe_session_needs *needs, struct dpe_error *err)
{
    return fails("batch") ? dpe_fail(err, DPE_NO_MEMORY, "out of memory")
                          : __real_dpe_session_estimate(config, plan, options, needs, err);
}

dpe_status __wrap_dpe_row_decode(const unsigned char *bytes, size_t n, struct dpe_row *row,
                                 struct dpe_error *err)
{
    return fails("row") ? dpe_fail(err, DPE_NO_MEMORY, "out of memory")
                        : __real_dpe_row_decode(bytes, n, row, err);
}

dpe_status __wrap_dpe_ranks_send(struct dpe_ranks *ranks, int to, const struct dpe_message *message,
                                 const char *text, size_t n, struct dpe_error *err)
{
    static int items;
    bool second = message->kind == DPE_MESSAGE_ITEM && ++items == 2;
    return second && fails("send") ? dpe_fail(err, DPE_NO_MEMORY, "out of memory")
                                   : __real_dpe_ranks_send(ranks, to, message, text, n, err);
}

static dpe_status make_row(void *user, const struct dpe_job_rows *part, int64_t one,
                           struct dpe_error *err)
{
    const char *key = user;
    struct dpe_row *row = part->rows;
    (void)one;
    snprintf(row->task, sizeof row->task, "task");
    memcpy(row->plan, key, strlen(key) + 1);
    row->sample = part->items->sample;
    DPE_TRY(dpe_session_cut(part->session, 0, err));
    return dpe_session_feed(part->session, (const int32_t[]){1, 2, 3}, 3, NULL, err);
}

static dpe_status run(struct dpe_job *job, const struct dpe_job_options *options,
                      struct dpe_plan *plan, struct dpe_error *err)
{
    enum { LENGTH = 64, ROWS = 6 };
    static char key[33];
    const struct dpe_job_identity own = {
        .kind = "norms", .length_name = "length", .length = LENGTH};
    struct dpe_wanted wanted = {0};
    dpe_status status = dpe_job_open(job, options, false, err);
    if (status == DPE_OK && fails("texts")) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory");
    }
    if (status != DPE_OK) {
        return status;
    }
    const struct dpe_plan_context context = dpe_job_context(job, LENGTH);
    if ((status = dpe_plan_make("rope", &context, plan, err)) != DPE_OK ||
        (status = dpe_plan_key(plan, key, err)) != DPE_OK ||
        (status = dpe_job_fit_batch(job, plan, LENGTH, &(struct dpe_job_batch){1, LENGTH, false},
                                    err)) != DPE_OK ||
        (status = dpe_job_start(job, &own, plan, LENGTH, err)) != DPE_OK) {
        return status;
    }
    const struct dpe_work how = {.name = "rows", .capacity = LENGTH, .user = key, .rows = make_row};
    dpe_wanted_task(&wanted, "task", 0, 1.0);
    dpe_wanted_plan(&wanted, plan, key);
    dpe_wanted_rows(&wanted, 0, 0, 0, ROWS);
    comparing = true;
    job->group = 1;
    return dpe_wanted_run(&wanted, job, &how, err);
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        return DPE_USAGE;
    }
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    place = argv[1];
    here = rank != NULL && strcmp(rank, argv[2]) == 0;
    nth = argc > 6 ? strtol(argv[6], NULL, 10) : 0;
    const struct dpe_job_options options = {.model = argv[4],
                                            .output = argv[3],
                                            .rank_timeout = 600.0,
                                            .tensor_parallel = (int)strtol(argv[5], NULL, 10),
                                            .tool = {.threads = 1},
                                            .argc = argc,
                                            .argv = argv};
    struct dpe_error err = {0};
    struct dpe_job job = {0};
    struct dpe_plan plan = {0};
    dpe_status status = run(&job, &options, &plan, &err);
    status = dpe_job_close(&job, status, &err);
    dpe_plan_free(&plan);
    /* The standard output of ranks above 0 is closed. */
    char path[4096];
    snprintf(path, sizeof path, "%s.rank%s", argv[3], rank);
    FILE *file = fopen(path, "w");
    return file != NULL &&
                   fprintf(file, "rank %s ends with %d, %s\n", rank, (int)status, err.text) > 0 &&
                   fclose(file) == 0
               ? 0
               : DPE_IO;
}
