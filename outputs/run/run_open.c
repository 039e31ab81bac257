/* Opening a run: what lies on disk already, whether it is ours, and what of it goes on. Nothing is
 * written but the lock until every refusal has had its chance. */
#include "outputs/run/run_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is found. */
struct opening {
    struct dpe_run *run;
    struct dpe_manifest manifest;
    bool has_manifest; /* of this identity */
    bool has_begin;    /* a journal of this identity */
    bool replace;      /* the file at the table's path may be replaced */
    enum dpe_h5_state state;
    struct dpe_h5_content table;
    const char *reading; /* journal being read */
    bool reading_own;
    struct dpe_journal_scan own; /* of this rank's journal */
    bool has_own;
    struct dpe_records records; /* what a new journal of this rank holds, or where more goes */
    size_t n_recovered;
    bool conflict; /* a row of the table differs from the journal */
};

/* ---------------------------------------------------------------------------------- small parts */

static dpe_status begin_records(struct opening *opening, struct dpe_error *err)
{
    opening->records.bytes.n = 0;
    opening->records.n = 0;
    return dpe_records_put(&opening->records, DPE_RECORD_BEGIN, opening->run->hash, 64, err);
}

static bool info_ok(const struct dpe_identity *info)
{
    for (size_t i = 0; i < info->n; i++) {
        if (!dpe_session_name_ok(info->fields[i].name)) {
            return false;
        }
    }
    return true;
}

/* Beside the file itself, also when it was named by a link: two names are one run. */
static dpe_status name_files(struct dpe_run *run, const char *path, struct dpe_error *err)
{
    char own[40];
    snprintf(own, sizeof own, "/rank-%04d.journal", run->options.rank);
    const struct {
        char **name;
        const char *end;
    } files[] = {{&run->folder, ""},
                 {&run->manifest, "/manifest.json"},
                 {&run->own, own},
                 {&run->beside, "/table.h5"}};
    DPE_TRY(dpe_follow_links(path, &run->path, err));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        *files[i].name = dpe_join(run->path, ".journal", files[i].end);
        DPE_TRY(DPE_MADE(*files[i].name, err, "%s: out of memory", run->path));
    }
    return DPE_OK;
}

static dpe_status make_run(const char *path, const struct dpe_identity *identity,
                           const struct dpe_run_options *options, struct dpe_run **run,
                           struct dpe_error *err)
{
    DPE_SCOPED(dpe_run_free_scoped) struct dpe_run *made = NULL;
    DPE_TRY(DPE_NEW(&made, 1, err, "%s: out of memory", path));
    made->lock.fd = -1;
    made->journal.fd = -1;
    if (options != NULL) {
        made->options = *options;
        made->options.info = NULL;
        /* Rank 0 alone decides what is thrown away: others may be reading it. */
        made->options.force = options->force && options->rank == 0;
    }
    DPE_TRY(name_files(made, path, err));
    DPE_TRY(dpe_identity_copy(&made->identity, identity, err));
    DPE_TRY(dpe_identity_hash(identity, made->hash, err));
    *run = made;
    made = NULL;
    return DPE_OK;
}

/* Forget an earlier run that `force` replaces. */
static dpe_status start_over(struct opening *opening, struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    dpe_run_notice(run, "%s: the journal of a different run is replaced", run->folder);
    dpe_rowset_free(&run->rows);
    dpe_identity_free(&run->plans);
    for (size_t i = 0; i < run->n_sessions; i++) {
        dpe_identity_free(&run->sessions[i]);
    }
    run->n_sessions = 0;
    opening->has_manifest = opening->has_begin = opening->has_own = false;
    opening->own = (struct dpe_journal_scan){0};
    opening->replace = true;
    DPE_TRY(dpe_run_clear_folder(run, err));
    return begin_records(opening, err);
}

/* ------------------------------------------------------------------------ reading what is there */

static dpe_status read_manifest(struct opening *opening, struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    struct dpe_error why = {0};
    dpe_status status = dpe_manifest_read(run->manifest, &opening->manifest, &why);
    char hash[65] = "";
    if (status == DPE_OK) {
        status = dpe_identity_hash(&opening->manifest.identity, hash, &why);
    }
    if (status == DPE_NO_INPUT && access(run->manifest, F_OK) != 0) {
        return DPE_OK;
    }
    if (status == DPE_BAD_DATA && !opening->manifest.other_version) {
        /* Every journal names its identity too, by hash: the run is not lost with its manifest. */
        dpe_run_notice(run, "%s; it is written again", why.text);
        return DPE_OK;
    }
    if (status != DPE_OK) {
        return dpe_fail(err, status, "%s", why.text);
    }
    opening->has_manifest = strcmp(hash, run->hash) == 0;
    opening->replace = opening->has_manifest && opening->manifest.replace;
    if (opening->has_manifest) {
        return DPE_OK;
    }
    return run->options.force
               ? start_over(opening, err)
               : dpe_identity_mismatch(&run->identity, &opening->manifest.identity, run->path, err);
}

static dpe_status visit_row(struct opening *opening, const unsigned char *payload, size_t n,
                            struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    DPE_SCOPED(dpe_row_free) struct dpe_row row = {0};
    struct dpe_error why = {0};
    bool fresh = false;
    DPE_TRY(dpe_row_decode(payload, n, &row, err));
    dpe_status status = dpe_run_keep_row(run, &row, &fresh, &why);
    if (status == DPE_INTERNAL && run->options.salvage) {
        dpe_run_notice(run, "%s; the first value is kept", why.text);
        return DPE_OK;
    }
    return status == DPE_OK ? DPE_OK : dpe_fail(err, status, "%s", why.text);
}

static dpe_status visit_list(struct opening *opening, unsigned type, const unsigned char *payload,
                             size_t n, struct dpe_error *err)
{
    DPE_SCOPED(dpe_identity_free) struct dpe_identity list = {0};
    bool fresh = false;
    DPE_TRY(dpe_identity_decode(payload, n, &list, err));
    if (type == DPE_RECORD_SESSION) {
        return dpe_run_keep_session(opening->run, &list, err);
    }
    return list.n != 1 ? DPE_OK
                       : dpe_run_keep_plan(opening->run, list.fields[0].name, list.fields[0].value,
                                           &fresh, err);
}

static dpe_status visit_begin(struct opening *opening, const unsigned char *payload, size_t n,
                              struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    if (n == 64 && memcmp(payload, run->hash, 64) == 0) {
        opening->has_begin = true;
        return DPE_OK;
    }
    if (opening->has_manifest) {
        return dpe_fail(err, DPE_BAD_DATA, "does not belong to the run in its manifest.json");
    }
    return dpe_fail(err, DPE_MISMATCH,
                    "belongs to a different run (its manifest.json, which would list the "
                    "differences, is missing); choose another output, or replace it with --force");
}

static dpe_status visit(void *user, unsigned type, const unsigned char *payload, size_t n,
                        struct dpe_error *err)
{
    struct opening *opening = user;
    dpe_status status = DPE_OK;
    if (type == DPE_RECORD_BEGIN) {
        status = visit_begin(opening, payload, n, err);
    } else if (type == DPE_RECORD_ROW) {
        status = visit_row(opening, payload, n, err);
    } else if (type == DPE_RECORD_SESSION || type == DPE_RECORD_PLAN) {
        status = visit_list(opening, type, payload, n, err);
    }
    /* Other types are a later program's business: kept, not read. */
    if (status != DPE_OK) {
        dpe_fail_prefix(err, "%s", opening->reading);
        return status;
    }
    bool rewrite = opening->reading_own && opening->run->options.salvage;
    return rewrite && type != DPE_RECORD_BEGIN
               ? dpe_records_put(&opening->records, type, payload, n, err)
               : DPE_OK;
}

static dpe_status read_journal(struct opening *opening, const char *path, struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    struct dpe_journal_scan scan;
    opening->reading = path;
    opening->reading_own = strcmp(path, run->own) == 0;
    DPE_TRY(dpe_journal_read(path, run->options.salvage, visit, opening, &scan, err));
    if (scan.damaged) {
        dpe_run_notice(run, "%s: lost because of damage: %s", path, scan.lost);
    }
    if (opening->reading_own) {
        opening->own = scan;
        opening->has_own = true;
    }
    return DPE_OK;
}

/* -------------------------------------------------------------------- the journal to append to */

/* A row of the table that the journal lacks goes into it: the journal holds everything. */
static dpe_status recover_row(struct opening *opening, struct dpe_records *to, struct dpe_row *row,
                              struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    const struct dpe_row *known = dpe_rowset_find(&run->rows, row->task, row->plan, row->sample);
    if (known != NULL) {
        if (dpe_row_difference(known, row) != NULL) {
            opening->conflict = true;
            dpe_run_notice(run,
                           "%s: sample %lld of task %s differs from the journal; the row of the "
                           "journal is used",
                           run->path, (long long)row->sample, row->task);
        }
        return DPE_OK;
    }
    bool fresh = false;
    DPE_TRY(dpe_records_put_row(to, row, err));
    opening->n_recovered++;
    return dpe_run_keep_row(run, row, &fresh, err);
}

static dpe_status recover_from_table(struct opening *opening, struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    struct dpe_h5_content *table = &opening->table;
    struct dpe_records *to = &opening->records;
    for (size_t i = 0, known = run->n_sessions; known == 0 && i < table->n_sessions; i++) {
        DPE_TRY(dpe_records_put_list(to, DPE_RECORD_SESSION, &table->sessions[i], err));
        DPE_TRY(dpe_run_keep_session(run, &table->sessions[i], err));
    }
    for (size_t i = 0; i < table->plans.n; i++) {
        const struct dpe_identity pair = {.n = 1, .fields = &table->plans.fields[i]};
        bool fresh = false;
        DPE_TRY(dpe_run_keep_plan(run, pair.fields->name, pair.fields->value, &fresh, err));
        DPE_TRY(fresh ? dpe_records_put_list(to, DPE_RECORD_PLAN, &pair, err) : DPE_OK);
    }
    for (size_t i = 0; i < table->n_rows; i++) {
        DPE_TRY(recover_row(opening, to, &table->rows[i], err));
    }
    return DPE_OK;
}

static dpe_status open_own(struct opening *opening, struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    DPE_OWNED char *aside = NULL;
    DPE_TRY(dpe_journal_open(&run->journal, run->own, &opening->own, &aside, err));
    if (aside != NULL) {
        dpe_run_notice(run, "%s: %llu bytes of an unfinished record were moved to %s", run->own,
                       (unsigned long long)(opening->own.size - opening->own.end), aside);
    }
    return DPE_OK;
}

static dpe_status create_own(struct opening *opening, struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    if (opening->has_own && opening->own.size > 0) {
        DPE_OWNED char *aside = NULL;
        DPE_TRY(dpe_journal_set_aside(run->own, 0, "damaged", &aside, err));
        dpe_run_notice(run, "%s: the damaged journal is kept as %s until the run is complete",
                       run->own, aside);
    }
    return dpe_journal_create(&run->journal, run->own, &opening->records.bytes, opening->records.n,
                              err);
}

/* The one that is there, or a new one; with what only the table holds. */
static dpe_status open_journal(struct opening *opening, struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    bool create = !opening->has_own || opening->own.n_records == 0 || opening->own.damaged;
    size_t journal_rows = run->rows.n;
    if (!create) {
        DPE_TRY(open_own(opening, err));
        opening->records.journal = &run->journal;
    }
    DPE_TRY(recover_from_table(opening, err));
    DPE_TRY(create ? create_own(opening, err) : DPE_OK);
    if (opening->n_recovered > 0 && journal_rows > 0) {
        dpe_run_notice(run, "%s: %zu rows that the journal lacks are copied from the table",
                       run->path, opening->n_recovered);
    }
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------ decisions */

/* A rank above 0 that has the rest from rank 0. */
static dpe_status open_own_only(struct opening *opening, struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    DPE_TRY(dpe_run_check_folder(run, err));
    DPE_TRY(dpe_run_take_lock(run, err));
    DPE_TRY(read_manifest(opening, err));
    DPE_TRY(begin_records(opening, err));
    if (access(run->own, F_OK) == 0) {
        DPE_TRY(read_journal(opening, run->own, err));
    }
    return open_journal(opening, err);
}

static int is_journal(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return strncmp(entry->d_name, "rank-", 5) == 0 && n > 8 &&
           strcmp(entry->d_name + n - 8, ".journal") == 0;
}

static dpe_status read_journals(struct opening *opening, struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    struct dirent **names = NULL;
    int n = scandir(run->folder, &names, is_journal, alphasort);
    if (n < 0) {
        return dpe_fail_errno(err, errno, run->folder, "cannot be read");
    }
    dpe_status status = begin_records(opening, err);
    for (int i = 0; i < n; i++) {
        if (status == DPE_OK) {
            DPE_OWNED char *path = dpe_join(run->folder, "/", names[i]->d_name);
            status = DPE_MADE(path, err, "%s: out of memory", run->path);
            status = status == DPE_OK ? read_journal(opening, path, err) : status;
        }
        free(names[i]);
    }
    free(names);
    if (status == DPE_MISMATCH && run->options.force) {
        status = start_over(opening, err);
    }
    return status;
}

/* Whether what lies at the table's path may be replaced, or goes on. */
static dpe_status judge_table(struct opening *opening, struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    bool journal = opening->has_manifest || opening->has_begin;
    const char *problem = opening->table.problem;
    char hash[65] = "";
    dpe_status status = DPE_OK;
    switch (opening->state) {
    case DPE_H5_ABSENT:
        return DPE_OK;
    case DPE_H5_DAMAGED:
        if (journal) {
            dpe_run_notice(run, "the table cannot be read (%s); the next snapshot rebuilds it",
                           problem);
            return DPE_OK;
        }
        break;
    case DPE_H5_FOREIGN:
        break;
    case DPE_H5_OURS:
        status = dpe_identity_hash(&opening->table.identity, hash, err);
        if (status != DPE_OK || strcmp(hash, run->hash) == 0) {
            return status;
        }
        problem = "";
        break;
    }
    if (opening->replace || run->options.force) {
        opening->replace = true;
        dpe_run_notice(run, "%s: is replaced by the first table of this run", run->path);
        /* What it holds is another run's. */
        dpe_h5_content_free(&opening->table);
        return DPE_OK;
    }
    if (opening->state == DPE_H5_OURS) {
        return dpe_identity_mismatch(&run->identity, &opening->table.identity, run->path, err);
    }
    return dpe_fail(
        err, DPE_CANNOT_CREATE,
        "%s exists and is not a table that this command can continue: %s; choose another "
        "output, or replace it with --force",
        run->path, problem);
}

static dpe_status begin_session(struct dpe_run *run, const struct dpe_identity *info,
                                struct dpe_error *err)
{
    DPE_SCOPED(dpe_identity_free) struct dpe_identity session = {0};
    struct dpe_records to = {.journal = &run->journal};
    DPE_TRY(info != NULL ? dpe_identity_copy(&session, info, err)
                         : dpe_run_info(&session, 0, NULL, 0, err));
    DPE_TRY(dpe_records_put_list(&to, DPE_RECORD_SESSION, &session, err));
    return dpe_run_keep_session(run, &session, err);
}

static dpe_status open_parts(struct opening *opening, const struct dpe_identity *info,
                             struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    if (run->options.rank > 0) {
        return open_own_only(opening, err);
    }
    DPE_TRY(dpe_run_make_folder(run, err));
    DPE_TRY(dpe_run_check_folder(run, err));
    DPE_TRY(dpe_run_take_lock(run, err));
    dpe_run_see_table(run);
    DPE_TRY(dpe_h5_look(run->path, &opening->state, &opening->table, err));
    DPE_TRY(read_manifest(opening, err));
    DPE_TRY(read_journals(opening, err));
    DPE_TRY(judge_table(opening, err));
    run->replace = opening->replace;
    if (!opening->has_manifest || opening->replace != opening->manifest.replace) {
        const struct dpe_manifest manifest = {.identity = run->identity,
                                              .replace = opening->replace};
        DPE_TRY(dpe_manifest_write(run->manifest, &manifest, err));
    }
    DPE_TRY(open_journal(opening, err));
    DPE_TRY(begin_session(run, info, err));
    run->table_current = opening->state == DPE_H5_OURS && opening->table.complete &&
                         !opening->conflict && run->rows.n == opening->table.n_rows;
    return DPE_OK;
}

bool dpe_run_recorded(const char *path, const char *name, char *value, size_t size)
{
    DPE_SCOPED(dpe_run_free_scoped) struct dpe_run *run = NULL;
    struct opening opening = {0};
    struct dpe_error ignored = {0};
    if (make_run(path, &opening.table.identity, NULL, &run, &ignored) == DPE_OK &&
        dpe_manifest_read(run->manifest, &opening.manifest, &ignored) != DPE_OK) {
        (void)dpe_h5_look(run->path, &opening.state, &opening.table, &ignored);
    }
    const bool running = opening.manifest.identity.n > 0,
               there = running || opening.table.identity.n > 0;
    const char *found =
        dpe_identity_get(running ? &opening.manifest.identity : &opening.table.identity, name);
    snprintf(value, size, "%s", found != NULL ? found : "");
    dpe_identity_free(&opening.manifest.identity);
    dpe_h5_content_free(&opening.table);
    return there;
}

dpe_status dpe_run_open(const char *path, const struct dpe_identity *identity,
                        const struct dpe_run_options *options, struct dpe_run **run,
                        struct dpe_error *err)
{
    if (path[0] == '\0' || path[strlen(path) - 1] == '/') {
        return dpe_fail(err, DPE_CANNOT_CREATE, "\"%s\": expected the name of a file", path);
    }
    const struct dpe_identity *info = options == NULL ? NULL : options->info;
    if (info != NULL && !info_ok(info)) {
        return dpe_fail(err, DPE_INTERNAL, "names for /run consist of a-z, 0-9 and _");
    }
    struct opening opening = {0};
    DPE_TRY(make_run(path, identity, options, &opening.run, err));
    struct dpe_run *made = opening.run;
    dpe_status status = open_parts(&opening, info, err);
    dpe_h5_content_free(&opening.table);
    dpe_identity_free(&opening.manifest.identity);
    dpe_text_free(&opening.records.bytes);
    if (status != DPE_OK) {
        /* A refused start leaves the disk as it was. */
        bool undo = made->made_folder;
        dpe_journal_close(&made->journal);
        if (undo && made->lock.path != NULL) {
            dpe_run_clear_folder(made, NULL);
        }
        dpe_lock_release(&made->lock, undo);
        if (undo) {
            rmdir(made->folder);
        }
        dpe_run_free(made);
        return status;
    }
    *run = made;
    return DPE_OK;
}
