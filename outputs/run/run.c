/* A run that is open: its rows, what is added to them, its table and its end; and what this process
 * is, for /run. Opening is in run_open.c. */
#include <dirent.h>
#include <errno.h>
#include <hdf5.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"
#include "outputs/run/run.h"
#include "outputs/run/run_internal.h"
#include "outputs/storage/storage.h"

void dpe_run_notice(const struct dpe_run *run, const char *format, ...)
{
    if (run->options.notice == NULL) {
        return;
    }
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    run->options.notice(run->options.user, text);
}

dpe_status dpe_run_keep_session(struct dpe_run *run, struct dpe_identity *session,
                                struct dpe_error *err)
{
    DPE_TRY(DPE_ROOM(&run->sessions, run->n_sessions, err, "out of memory for %zu sessions",
                     run->n_sessions));
    run->sessions[run->n_sessions++] = *session;
    *session = (struct dpe_identity){0};
    return DPE_OK;
}

/* Two rows of one key have one value. */
static dpe_status check_same(const struct dpe_row *known, const struct dpe_row *row,
                             struct dpe_error *err)
{
    const char *field = dpe_row_difference(known, row);
    return field == NULL
               ? DPE_OK
               : dpe_fail(err, DPE_INTERNAL,
                          "nondeterminism: sample %lld of task %s under plan %s was run twice and "
                          "%s differs (score %.17g then %.17g, NLL %.17g then %.17g, status %d "
                          "then %d)",
                          (long long)row->sample, row->task, row->plan, field, known->score,
                          row->score, known->nll_sum, row->nll_sum, (int)known->status,
                          (int)row->status);
}

dpe_status dpe_run_keep_row(struct dpe_run *run, struct dpe_row *row, bool *fresh,
                            struct dpe_error *err)
{
    const struct dpe_row *known = dpe_rowset_find(&run->rows, row->task, row->plan, row->sample);
    *fresh = known == NULL;
    if (known != NULL) {
        const dpe_status status = check_same(known, row, err);
        dpe_row_free(row);
        return status;
    }
    return dpe_rowset_put(&run->rows, row, err);
}

dpe_status dpe_run_keep_plan(struct dpe_run *run, const char *plan, const char *name, bool *fresh,
                             struct dpe_error *err)
{
    *fresh = false;
    for (size_t i = 0; i < run->plans.n; i++) {
        struct dpe_identity_field *field = &run->plans.fields[i];
        if (strcmp(field->name, plan) != 0) {
            continue;
        }
        if (strcmp(name, field->value) < 0) {
            char *copy = dpe_join(name, "", "");
            DPE_TRY(DPE_MADE(copy, err, "out of memory for a plan's name"));
            free(field->value);
            field->value = copy;
            *fresh = true;
        }
        return DPE_OK;
    }
    *fresh = true;
    return dpe_identity_add(&run->plans, plan, name, err);
}

const struct dpe_row *const *dpe_run_rows(const struct dpe_run *run, size_t *n)
{
    *n = run->rows.n;
    return (const struct dpe_row *const *)run->rows.rows;
}

const struct dpe_row *dpe_run_find(const struct dpe_run *run, const char *task, const char *plan,
                                   int64_t sample)
{
    return dpe_rowset_find(&run->rows, task, plan, sample);
}

dpe_status dpe_run_add(struct dpe_run *run, const struct dpe_row *row, struct dpe_error *err)
{
    DPE_TRY(dpe_row_check(row, err));
    const struct dpe_row *known = dpe_rowset_find(&run->rows, row->task, row->plan, row->sample);
    if (known != NULL) {
        return check_same(known, row, err);
    }
    /* All memory comes first: a row that is on disk is never refused afterwards. */
    DPE_SCOPED(dpe_row_free) struct dpe_row copy = {0};
    struct dpe_records to = {.journal = &run->journal};
    DPE_TRY(dpe_run_keep_journal(run, err));
    DPE_TRY(dpe_row_copy(&copy, row, err));
    DPE_TRY(dpe_rowset_put(&run->rows, &copy, err));
    const dpe_status status = run->detached ? DPE_OK : dpe_records_put_row(&to, row, err);
    if (status != DPE_OK) {
        dpe_rowset_drop(&run->rows);
        return status;
    }
    run->table_current = false;
    return DPE_OK;
}

dpe_status dpe_run_learn(struct dpe_run *run, const struct dpe_row *row, struct dpe_error *err)
{
    DPE_SCOPED(dpe_row_free) struct dpe_row copy = {0};
    bool fresh = false;
    DPE_TRY(dpe_row_check(row, err));
    DPE_TRY(dpe_row_copy(&copy, row, err));
    const dpe_status status = dpe_run_keep_row(run, &copy, &fresh, err);
    run->table_current = run->table_current && !fresh;
    return status;
}

bool dpe_run_plan_known(const struct dpe_run *run, const char *plan)
{
    return dpe_identity_get(&run->plans, plan) != NULL;
}

dpe_status dpe_run_plan(struct dpe_run *run, const char *plan, const char *name,
                        struct dpe_error *err)
{
    const char *known = dpe_identity_get(&run->plans, plan);
    if (known != NULL && strcmp(known, name) <= 0) {
        return DPE_OK;
    }
    DPE_SCOPED(dpe_identity_free) struct dpe_identity pair = {0};
    struct dpe_records to = {.journal = &run->journal};
    bool fresh = false;
    DPE_TRY(dpe_identity_add(&pair, plan, name, err));
    DPE_TRY(dpe_run_keep_journal(run, err));
    DPE_TRY(run->detached ? DPE_OK : dpe_records_put_list(&to, DPE_RECORD_PLAN, &pair, err));
    run->table_current = false;
    return dpe_run_keep_plan(run, plan, name, &fresh, err);
}

/* ------------------------------------------------------------------------------------------ end */

bool dpe_run_is_ours(const char *name)
{
    return strncmp(name, "rank-", 5) == 0 || strncmp(name, "manifest.json", 13) == 0 ||
           strncmp(name, "table.h5", 8) == 0 || strncmp(name, "LOCK.", 5) == 0;
}

dpe_status dpe_run_clear_folder(const struct dpe_run *run, struct dpe_error *err)
{
    DIR *folder = opendir(run->folder);
    if (folder == NULL) {
        return dpe_fail_errno(err, errno, run->folder, "cannot be read");
    }
    dpe_status status = DPE_OK;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (dpe_run_is_ours(entry->d_name) && unlinkat(dirfd(folder), entry->d_name, 0) != 0 &&
            status == DPE_OK) {
            status = dpe_fail_errno(err, errno, run->folder, "a file in it cannot be removed");
        }
    }
    closedir(folder);
    return status;
}

void dpe_run_free(struct dpe_run *run)
{
    if (run == NULL) {
        return;
    }
    dpe_journal_close(&run->journal);
    dpe_rowset_free(&run->rows);
    dpe_identity_free(&run->identity);
    dpe_identity_free(&run->plans);
    for (size_t i = 0; i < run->n_sessions; i++) {
        dpe_identity_free(&run->sessions[i]);
    }
    free(run->sessions);
    free(run->path);
    free(run->folder);
    free(run->manifest);
    free(run->own);
    free(run->beside);
    free(run);
}

dpe_status dpe_run_close(struct dpe_run *run, struct dpe_error *err)
{
    if (run == NULL) {
        return DPE_OK;
    }
    bool remove = run->table_current; /* never of a rank above 0 */
    dpe_status status = remove ? DPE_OK : dpe_journal_sync(&run->journal, err);
    dpe_journal_close(&run->journal);
    if (remove && !dpe_lock_held(&run->lock)) {
        dpe_run_notice(
            run,
            "%s: another process took this folder over, or removed and created it again; it "
            "is not changed",
            run->folder);
        remove = false;
    }
    if (remove) {
        status = dpe_run_clear_folder(run, err);
    }
    dpe_lock_release(&run->lock, remove || run->options.rank > 0);
    if (remove && status == DPE_OK && rmdir(run->folder) != 0 && errno != ENOENT) {
        dpe_run_notice(run, "%s: is kept, because it holds files that are not part of the run",
                       run->folder);
    }
    dpe_run_free(run);
    return status;
}

/* ------------------------------------------------------------ the table, rebuilt from the rows */

static int compare_rows(const void *a, const void *b)
{
    return dpe_row_compare(*(const struct dpe_row *const *)a, *(const struct dpe_row *const *)b);
}

static dpe_status fill_table(struct dpe_run *run, struct dpe_h5 *table,
                             const struct dpe_row **sorted, bool complete, dpe_run_fill fill,
                             void *user, struct dpe_error *err)
{
    for (size_t i = 0; i < run->rows.n; i++) {
        sorted[i] = run->rows.rows[i];
    }
    qsort(sorted, run->rows.n, sizeof *sorted, compare_rows);
    const struct dpe_h5_common common = {
        .identity = &run->identity,
        .hash = run->hash,
        .rows = sorted,
        .n_rows = run->rows.n,
        .plans = &run->plans,
        .sessions = run->sessions,
        .n_sessions = run->n_sessions,
        .complete = complete,
        .planned = run->planned,
        .missing = run->missing,
    };
    DPE_TRY(dpe_h5_write_common(table, &common, err));
    if (fill != NULL) {
        DPE_TRY(fill(user, table, err));
    }
    return dpe_h5_write_run(table, &common, err);
}

void dpe_run_progress(struct dpe_run *run, int64_t planned, int64_t missing)
{
    run->planned = planned;
    run->missing = missing;
}

dpe_status dpe_run_snapshot(struct dpe_run *run, bool complete, dpe_run_fill fill, void *user,
                            struct dpe_error *err)
{
    if (run->options.rank != 0) {
        return dpe_fail(err, DPE_INTERNAL, "%s: only rank 0 writes tables", run->path);
    }
    DPE_OWNED const struct dpe_row **sorted = NULL;
    DPE_SCOPED(dpe_new_file_drop) struct dpe_new_file file = {.fd = -1};
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *table = NULL;
    DPE_TRY(DPE_NEW(&sorted, run->rows.n, err, "%s: out of memory", run->path));
    DPE_TRY(dpe_run_keep_journal(run, err));
    DPE_TRY(dpe_journal_sync(&run->journal, err));
    DPE_TRY(dpe_h5_create(&table, err));
    DPE_TRY(fill_table(run, table, sorted, complete, fill, user, err));
    DPE_TRY(dpe_new_file_open(&file, run->path, run->detached ? NULL : run->beside, err));
    struct dpe_h5 *filled = table;
    table = NULL;
    DPE_TRY(dpe_h5_finish(filled, &file, err));
    DPE_TRY(dpe_run_check_table(run, err));
    DPE_TRY(dpe_new_file_finish(&file, err));
    dpe_run_see_table(run);
    run->table_current = complete;
    return DPE_OK;
}

/* ------------------------------------------------------------------------- what this process is */

/* Quoted for a shell when it holds anything a shell would touch. */
static void put_word(struct dpe_text *line, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=:,+@%";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        dpe_text_put(line, "%s", word);
        return;
    }
    dpe_text_put(line, "'");
    for (const char *c = word; *c != '\0'; c++) {
        dpe_text_put_bytes(line, *c == '\'' ? "'\\''" : c, *c == '\'' ? 4 : 1);
    }
    dpe_text_put(line, "'");
}

dpe_status dpe_run_info_add(struct dpe_identity *info, const char *name, const char *text,
                            struct dpe_error *err)
{
    size_t n = strlen(text);
    DPE_OWNED char *shown = strdup(text);
    DPE_TRY(DPE_MADE(shown, err, "out of memory for the value of %s", name));
    for (size_t i = dpe_utf8_check(text, n); i < n; i++) {
        if ((unsigned char)shown[i] >= 0x80) {
            shown[i] = '?';
        }
    }
    return dpe_identity_add(info, name, shown, err);
}

static dpe_status add_command(struct dpe_identity *info, int argc, char *const *argv,
                              struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text line = {0};
    for (int i = 0; i < argc; i++) {
        dpe_text_put(&line, "%s", i > 0 ? " " : "");
        put_word(&line, argv[i]);
    }
    DPE_TRY(dpe_text_done(&line, err));
    return dpe_run_info_add(info, "command", line.n == 0 ? "" : line.bytes, err);
}

/* The first "model name" of /proc/cpuinfo; "unknown" elsewhere. */
static void cpu_name(char *name, size_t size)
{
    snprintf(name, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (file == NULL) {
        return;
    }
    char line[512];
    while (fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(name, size, "%s", colon + (colon[1] == ' ' ? 2 : 1));
            break;
        }
    }
    fclose(file);
}

static dpe_status add_machine(struct dpe_identity *info, int n_threads, struct dpe_error *err)
{
    struct utsname system;
    char cpu[256];
    cpu_name(cpu, sizeof cpu);
    if (uname(&system) < 0) {
        memset(&system, 0, sizeof system);
    }
    long long cores = sysconf(_SC_NPROCESSORS_ONLN);
    long long memory = (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    DPE_TRY(dpe_identity_add(info, "host", system.nodename, err));
    DPE_TRY(dpe_identity_addf(info, err, "pid", "%ld", (long)getpid()));
    DPE_TRY(dpe_identity_addf(info, err, "os", "%s %s %s", system.sysname, system.release,
                              system.machine));
    DPE_TRY(dpe_identity_add(info, "cpu", cpu, err));
    DPE_TRY(dpe_identity_addf(info, err, "cores", "%lld", cores));
    if (n_threads > 0) {
        DPE_TRY(dpe_identity_addf(info, err, "threads", "%d", n_threads));
    }
    return dpe_identity_addf(info, err, "memory_bytes", "%lld", memory);
}

static dpe_status add_software(struct dpe_identity *info, struct dpe_error *err)
{
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
#ifdef __clang__
    const char *compiler = "clang " __VERSION__;
#else
    const char *compiler = "gcc " __VERSION__;
#endif
    DPE_TRY(dpe_identity_add(info, "software", dpe_version(), err));
    DPE_TRY(dpe_identity_add(info, "compiler", compiler, err));
    DPE_TRY(dpe_identity_addf(info, err, "hdf5", "%u.%u.%u", major, minor, release));
    return dpe_identity_add(info, "jansson", JANSSON_VERSION, err);
}

dpe_status dpe_run_info(struct dpe_identity *info, int argc, char *const *argv, int n_threads,
                        struct dpe_error *err)
{
    char now[32];
    dpe_time_text(now);
    DPE_TRY(dpe_identity_add(info, "started", now, err));
    DPE_TRY(add_command(info, argc, argv, err));
    DPE_TRY(add_machine(info, n_threads, err));
    return add_software(info, err);
}
