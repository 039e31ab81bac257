/* Several processes through MPI. */
#include "outputs/job/ranks_mpi.h"
#include "engine/tool/tool.h"

#include <math.h>
#include <omp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum tag { TAG_MEET = 1, TAG_MET, TAG_WORK };
enum { HOST_SIZE = 64, SAME_SIZE = 1024 };

/* MPI is there once in a process. */
static MPI_Comm job_comm = MPI_COMM_NULL;
static char (*hosts)[HOST_SIZE]; /* [size] on rank 0, NULL: nobody has come yet */

/* What a rank sends to a barrier, and what it gets back. */
struct word {
    int place, status, layer, apart, most;
    int64_t position;
    char host[HOST_SIZE];
    char text[1024];
};

/* Whether a launcher (mpirun, srun) started this process as one of several. */
static bool launched(void)
{
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    return size != NULL ? atoi(size) > 1
                        : getenv("PMIX_RANK") != NULL || getenv("PMI_RANK") != NULL;
}

/* MPI waits for ever where another rank is dead or stopped, at its start, at an abort and at its
 * end. */
static volatile sig_atomic_t alarm_code;
static const char *volatile alarm_reason;

static void on_alarm(int number)
{
    (void)number;
    const char *reason = alarm_reason;
    if (reason != NULL && write(STDERR_FILENO, reason, strlen(reason)) < 0) {
        _exit(DPE_IO);
    }
    _exit(alarm_code);
}

/* End with this code after so many seconds; 0 seconds: not any more. `reason` NULL: silently. */
static void leave_by_alarm(int code, double seconds, const char *reason)
{
    struct sigaction action = {.sa_handler = on_alarm};
    sigemptyset(&action.sa_mask);
    alarm_code = code;
    alarm_reason = reason;
    sigaction(SIGALRM, &action, NULL);
    alarm(seconds > 1e6 ? 1000000U : (unsigned)ceil(seconds));
}

/* Ranks on this machine, and how many of them have the same bytes. */
static int compare(int rank, const char own[SAME_SIZE], int *local_rank, int *local_size)
{
    MPI_Comm local;
    MPI_Comm_split_type(job_comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local);
    MPI_Comm_rank(local, local_rank);
    MPI_Comm_size(local, local_size);
    int alike = 1;
    for (int r = 0; r < *local_size; r++) {
        char other[SAME_SIZE];
        memcpy(other, own, sizeof other);
        MPI_Bcast(other, (int)sizeof other, MPI_BYTE, r, local);
        alike += r != *local_rank && memcmp(own, other, sizeof other) == 0;
    }
    MPI_Comm_free(&local);
    return alike;
}

/* Ranks that use the same cores as this one share them. */
static void look_around(struct dpe_ranks *ranks)
{
    char own[SAME_SIZE] = {0};
    (void)syscall(SYS_sched_getaffinity, 0, sizeof own, own); /* cores, a bit each */
    int sharing = compare(ranks->rank, own, &ranks->local_rank, &ranks->local_size);
    int cores = dpe_limit_processors(omp_get_num_procs());
    ranks->threads = sharing == 1 ? 0 : cores > sharing ? cores / sharing : 1;
}

int dpe_ranks_count_same(const struct dpe_ranks *ranks, const char *text)
{
    char own[SAME_SIZE] = {0};
    int local_rank = 0;
    int local_size = 0;
    if (ranks->size == 1) {
        return 1;
    }
    snprintf(own, 64, "%s", text);
    leave_by_alarm(DPE_INCOMPLETE, ranks->limit,
                   "a rank is missing (--rank-timeout); run the same command to continue\n");
    int alike = compare(ranks->rank, own, &local_rank, &local_size);
    leave_by_alarm(0, 0.0, NULL);
    return alike;
}

/* A rank that ends where it stands, as a page does without memory, leaves the others waiting. */
static void end_all(int code, void *nothing)
{
    (void)nothing;
    if (job_comm != MPI_COMM_NULL) {
        dpe_ranks_abort(NULL, code);
    }
}

dpe_status dpe_ranks_start(struct dpe_ranks *ranks, struct dpe_error *err)
{
    *ranks = (struct dpe_ranks){.size = 1, .local_size = 1, .peers = 1, .limit = ranks->limit};
    if (!launched()) {
        return DPE_OK;
    }
    int provided = 0;
    /* mpirun may die, or give up on a job, and leave its ranks running: rows are saved, locks end
     * with the process. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    leave_by_alarm(DPE_INCOMPLETE, ranks->limit,
                   "MPI does not start: a rank is missing (--rank-timeout); the same command "
                   "continues\n");
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS ||
        MPI_Comm_dup(MPI_COMM_WORLD, &job_comm) != MPI_SUCCESS) {
        return dpe_fail(err, DPE_INTERNAL, "MPI cannot be started");
    }
    (void)on_exit(end_all, NULL);
    MPI_Comm_rank(job_comm, &ranks->rank);
    MPI_Comm_size(job_comm, &ranks->size);
    look_around(ranks);
    leave_by_alarm(0, 0.0, NULL);
    if (ranks->rank == 0) {
        DPE_TRY(
            DPE_NEW(&hosts, (size_t)ranks->size, err, "out of memory for %d ranks", ranks->size));
    }
    return DPE_OK;
}

void dpe_ranks_stop(struct dpe_ranks *ranks, dpe_status status)
{
    if (job_comm != MPI_COMM_NULL) {
        /* The others come here as well, when what they still do is done; after a failure some may
         * be gone. */
        double wait = status == DPE_OK ? ranks->limit : fmin(20.0, ranks->limit);
        leave_by_alarm(dpe_exit_code(status), wait, NULL);
        MPI_Comm_free(&job_comm);
        MPI_Finalize();
        leave_by_alarm(0, 0.0, NULL);
    }
    free(hosts);
    hosts = NULL;
    *ranks = (struct dpe_ranks){.size = 1, .local_size = 1, .peers = 1};
}

MPI_Comm dpe_ranks_comm(void)
{
    return job_comm;
}

const char *dpe_ranks_host(const struct dpe_ranks *ranks, int rank)
{
    (void)ranks;
    return hosts != NULL ? hosts[rank] : "";
}

_Noreturn void dpe_ranks_abort(struct dpe_ranks *ranks, int code)
{
    (void)ranks;
    fflush(NULL);
    if (job_comm != MPI_COMM_NULL) {
        leave_by_alarm(code, 2.0, NULL);
        MPI_Abort(job_comm, code);
    }
    _Exit(code);
}

/* ------------------------------------------------------------------------------------- waiting */

/* A receive of MPI's own would spin. Short waits are common: looks are eager at first, and then far
 * between. */
struct patience {
    double deadline;
    int looks;
};

static struct patience begin_wait(const struct dpe_ranks *ranks)
{
    return (struct patience){.deadline = dpe_clock() + ranks->limit};
}

static _Noreturn void give_up(struct dpe_ranks *ranks, int rank)
{
    const char *host = rank > 0 ? dpe_ranks_host(ranks, rank) : "";
    char name[32] = "a rank";
    if (rank >= 0) {
        snprintf(name, sizeof name, "rank %d", rank);
    }
    dpe_log_error(
        "%s%s%s did not reach the barrier where the other ranks wait within %.0f s "
        "(--rank-timeout); the job ends. Finished samples are saved: run the same command "
        "to continue",
        name, host[0] != '\0' ? " on " : "", host, ranks->limit);
    dpe_ranks_abort(ranks, DPE_INCOMPLETE);
}

static void wait_a_little(struct dpe_ranks *ranks, struct patience *patience, int late, bool beats)
{
    enum { EAGER = 2000 };
    if (patience->looks++ < EAGER) {
        sched_yield();
        return;
    }
    const struct timespec time = {0, patience->looks < 2 * EAGER ? 50000 : 1000000};
    nanosleep(&time, NULL);
    const double begin = dpe_clock();
    if (begin > patience->deadline) {
        give_up(ranks, late);
    }
    if (beats && ranks->beat != NULL) {
        ranks->beat(ranks->beat_user); /* may write a table: nobody is late for that */
        patience->deadline += dpe_clock() - begin;
    }
}

void dpe_ranks_finish(struct dpe_ranks *ranks, MPI_Request *request, int late, bool beats)
{
    struct patience patience = begin_wait(ranks);
    int done = 0;
    for (MPI_Test(request, &done, MPI_STATUS_IGNORE); !done;
         MPI_Test(request, &done, MPI_STATUS_IGNORE)) {
        wait_a_little(ranks, &patience, late, beats);
    }
}

MPI_Status dpe_ranks_await(struct dpe_ranks *ranks, int source, int tag, int late, bool beats)
{
    struct patience patience = begin_wait(ranks);
    MPI_Status status;
    int there = 0;
    for (MPI_Iprobe(source, tag, job_comm, &there, &status); !there;
         MPI_Iprobe(source, tag, job_comm, &there, &status)) {
        wait_a_little(ranks, &patience, late, beats);
    }
    return status;
}

/* A large message waits until the other side takes it. */
static void send(struct dpe_ranks *ranks, int to, int tag, const void *bytes, int size)
{
    MPI_Request request;
    MPI_Isend(bytes, size, MPI_BYTE, to, tag, job_comm, &request);
    dpe_ranks_finish(ranks, &request, to, false);
}

/* ------------------------------------------------------------------------------------ meetings */

static void fill_word(struct word *word, enum dpe_barrier place, dpe_status status,
                      const struct dpe_error *err)
{
    *word = (struct word){.place = (int)place, .status = (int)status};
    gethostname(word->host, sizeof word->host - 1);
    if (status != DPE_OK && err != NULL) {
        memcpy(word->text, err->text, sizeof word->text);
        word->layer = err->layer;
        word->position = err->position;
    }
}

/* Rank 0: collect the status of every rank, and send one to all. */
static void judge(struct dpe_ranks *ranks, struct word *verdict)
{
    DPE_OWNED struct word *words = dpe_alloc_zero((size_t)ranks->size, sizeof *words);
    if (words == NULL) {
        dpe_ranks_no_memory(ranks);
    }
    words[0] = *verdict;
    for (int n = 1; n < ranks->size; n++) {
        int missing = 1;
        while (words[missing].host[0] != '\0') {
            missing++;
        }
        const MPI_Status status = dpe_ranks_await(ranks, MPI_ANY_SOURCE, TAG_MEET, missing, false);
        MPI_Recv(&words[status.MPI_SOURCE], (int)sizeof *words, MPI_BYTE, status.MPI_SOURCE,
                 TAG_MEET, job_comm, MPI_STATUS_IGNORE);
    }
    int failed = -1;
    bool apart = false;
    for (int r = 0; r < ranks->size; r++) {
        if (hosts != NULL) {
            memcpy(hosts[r], words[r].host, sizeof hosts[r]);
        }
        verdict->most = (int)dpe_most(verdict->most, words[r].most);
        apart = apart || words[r].place != words[0].place;
        failed = failed < 0 && words[r].status != DPE_OK ? r : failed;
    }
    if (failed > 0) {
        *verdict = words[failed];
        snprintf(verdict->text, sizeof verdict->text, "rank %d on %s: %.900s", failed,
                 words[failed].host, words[failed].text);
    } else if (failed < 0 && apart) {
        verdict->status = DPE_INTERNAL;
        snprintf(verdict->text, sizeof verdict->text, "the ranks lost each other");
    }
    verdict->apart = apart;
}

dpe_status dpe_ranks_barrier(struct dpe_ranks *ranks, enum dpe_barrier place, dpe_status status,
                             struct dpe_error *err)
{
    if (ranks->size <= 1 || ranks->apart) {
        return status;
    }
    struct word word;
    fill_word(&word, place, status, err);
    word.most = ranks->most;
    if (ranks->rank == 0) {
        judge(ranks, &word);
        for (int r = 1; r < ranks->size; r++) {
            send(ranks, r, TAG_MET, &word, (int)sizeof word);
        }
    } else {
        send(ranks, 0, TAG_MEET, &word, (int)sizeof word);
        /* Rank 0 is the one that waits for the late. */
        struct dpe_ranks patient = *ranks;
        patient.limit = 2.0 * ranks->limit + 5.0;
        dpe_ranks_await(&patient, 0, TAG_MET, 0, false);
        MPI_Recv(&word, (int)sizeof word, MPI_BYTE, 0, TAG_MET, job_comm, MPI_STATUS_IGNORE);
    }
    ranks->apart = word.apart != 0;
    ranks->most = word.most;
    if (word.status != DPE_OK && err != NULL) {
        dpe_fail(err, (dpe_status)word.status, "%s", word.text);
        err->layer = word.layer;
        err->position = word.position;
    }
    return (dpe_status)word.status;
}

/* Rank 0's bytes to all. */
static void broadcast(struct dpe_ranks *ranks, void *bytes, size_t n)
{
    MPI_Request request;
    MPI_Ibcast(bytes, (int)n, MPI_BYTE, 0, job_comm, &request);
    dpe_ranks_finish(ranks, &request, ranks->rank > 0 ? 0 : -1, false);
}

dpe_status dpe_ranks_share(struct dpe_ranks *ranks, struct dpe_text *bytes, struct dpe_error *err)
{
    static char piece[1 << 20];
    uint64_t n = bytes->n;
    size_t part = 0;
    dpe_status status = DPE_OK;
    if (ranks->size <= 1 || ranks->apart) {
        return DPE_OK;
    }
    broadcast(ranks, &n, sizeof n);
    bytes->n = ranks->rank > 0 ? 0 : bytes->n;
    for (size_t at = 0; at < n; at += part) {
        part = n - at < sizeof piece ? n - at : sizeof piece;
        if (ranks->rank == 0) {
            memcpy(piece, bytes->bytes + at, part);
        }
        broadcast(ranks, piece, part);
        if (ranks->rank > 0 && status == DPE_OK) {
            status = dpe_text_append(bytes, piece, part, err);
        }
    }
    return status;
}

/* ------------------------------------------------------------------------------------ messages */

dpe_status dpe_ranks_send(struct dpe_ranks *ranks, int to, const struct dpe_message *message,
                          const char *text, size_t n, struct dpe_error *err)
{
    size_t size = sizeof *message + n;
    DPE_OWNED char *bytes = size <= INT32_MAX ? malloc(size) : NULL;
    DPE_TRY(DPE_MADE(bytes, err, "out of memory for a message of %zu bytes", size));
    memcpy(bytes, message, sizeof *message);
    if (n > 0) {
        memcpy(bytes + sizeof *message, text, n);
    }
    send(ranks, to, TAG_WORK, bytes, (int)size);
    return DPE_OK;
}

bool dpe_ranks_receive(struct dpe_ranks *ranks, int *from, struct dpe_message *message,
                       struct dpe_text *text)
{
    MPI_Status status;
    int there = 0;
    int size = 0;
    text->n = 0;
    /* Open MPI's first look after a pause only fetches what is there. */
    for (int look = 0; look < 2 && !there; look++) {
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_WORK, job_comm, &there, &status);
    }
    if (!there) {
        return false;
    }
    MPI_Get_count(&status, MPI_BYTE, &size);
    DPE_OWNED char *bytes = malloc((size_t)size);
    if (bytes == NULL) {
        dpe_ranks_no_memory(ranks);
    }
    MPI_Recv(bytes, size, MPI_BYTE, status.MPI_SOURCE, TAG_WORK, job_comm, MPI_STATUS_IGNORE);
    memcpy(message, bytes, sizeof *message);
    *from = status.MPI_SOURCE;
    size_t n = (size_t)size - sizeof *message;
    if (n > 0 && dpe_text_append(text, bytes + sizeof *message, n, NULL) != DPE_OK) {
        dpe_ranks_no_memory(ranks);
    }
    return true;
}
