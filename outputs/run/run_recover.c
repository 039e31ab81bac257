/* The journal that an opened run appends to: the one that is there, or a new one; rows that only
 * the table holds go into it, so that the journal always holds everything. */
#include "outputs/run/run_internal.h"

#include <stdlib.h>

dpe_status dpe_opening_record(struct dpe_opening *opening, unsigned type, const void *payload,
                              size_t n, struct dpe_error *err)
{
    dpe_status status =
        dpe_record_encode(&opening->records, type, opening->n_records, payload, n, err);
    opening->n_records += status == DPE_OK;
    return status;
}

static dpe_status append_either(struct dpe_opening *opening, bool create, unsigned type,
                                const struct dpe_text *bytes, struct dpe_error *err)
{
    if (opening->run->options.rank > 0) {
        /* In the journal of rank 0 it is safe enough. */
        return DPE_OK;
    }
    return create ? dpe_opening_record(opening, type, bytes->bytes, bytes->n, err)
                  : dpe_journal_append(&opening->run->journal, type, bytes->bytes, bytes->n, err);
}

/* A row of the table that the journal lacks goes into it: the journal holds everything. */
static dpe_status recover_row(struct dpe_opening *opening, bool create, struct dpe_row *row,
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
    struct dpe_text bytes = {0};
    bool fresh = false;
    dpe_status status = dpe_row_encode(row, true, &bytes, err);
    if (status == DPE_OK) {
        status = append_either(opening, create, DPE_RECORD_ROW, &bytes, err);
    }
    if (status == DPE_OK) {
        status = dpe_run_keep_row(run, row, &fresh, err);
        opening->n_recovered++;
    }
    dpe_text_free(&bytes);
    return status;
}

static dpe_status recover_plan(struct dpe_opening *opening, bool create,
                               const struct dpe_identity_field *plan, struct dpe_error *err)
{
    bool fresh = false;
    dpe_status status = dpe_run_keep_plan(opening->run, plan->name, plan->value, &fresh, err);
    if (status != DPE_OK || !fresh) {
        return status;
    }
    struct dpe_identity pair = {.n = 1, .fields = &(struct dpe_identity_field){0}};
    pair.fields[0] = *plan;
    struct dpe_text bytes = {0};
    status = dpe_identity_encode(&pair, &bytes, err);
    if (status == DPE_OK) {
        status = append_either(opening, create, DPE_RECORD_PLAN, &bytes, err);
    }
    dpe_text_free(&bytes);
    return status;
}

static dpe_status recover_sessions(struct dpe_opening *opening, bool create, struct dpe_error *err)
{
    for (size_t i = 0; i < opening->table.n_sessions; i++) {
        struct dpe_text bytes = {0};
        dpe_status status = dpe_identity_encode(&opening->table.sessions[i], &bytes, err);
        if (status == DPE_OK) {
            status = append_either(opening, create, DPE_RECORD_SESSION, &bytes, err);
        }
        if (status == DPE_OK) {
            status = dpe_run_keep_session(opening->run, &opening->table.sessions[i], err);
        }
        dpe_text_free(&bytes);
        DPE_TRY(status);
    }
    return DPE_OK;
}

static dpe_status recover_from_table(struct dpe_opening *opening, bool create,
                                     struct dpe_error *err)
{
    if (opening->run->n_sessions == 0) {
        DPE_TRY(recover_sessions(opening, create, err));
    }
    for (size_t i = 0; i < opening->table.plans.n; i++) {
        DPE_TRY(recover_plan(opening, create, &opening->table.plans.fields[i], err));
    }
    for (size_t i = 0; i < opening->table.n_rows; i++) {
        DPE_TRY(recover_row(opening, create, &opening->table.rows[i], err));
    }
    return DPE_OK;
}

static dpe_status open_own(struct dpe_opening *opening, struct dpe_error *err)
{
    char *aside = NULL;
    dpe_status status =
        dpe_journal_open(&opening->run->journal, opening->run->own, &opening->own, &aside, err);
    if (status == DPE_OK && aside != NULL) {
        dpe_run_notice(opening->run, "%s: %llu bytes of an unfinished record were moved to %s",
                       opening->run->own,
                       (unsigned long long)(opening->own.size - opening->own.end), aside);
    }
    free(aside);
    return status;
}

static dpe_status create_own(struct dpe_opening *opening, struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    char *aside = NULL;
    dpe_status status = DPE_OK;
    if (opening->has_own && opening->own.size > 0) {
        status = dpe_journal_set_aside(run->own, 0, "damaged", &aside, err);
    }
    if (status == DPE_OK && aside != NULL) {
        dpe_run_notice(run, "%s: the damaged journal is kept as %s%s", run->own, aside,
                       run->options.keep_journal
                           ? ""
                           : " until the run is complete (--keep-journal keeps it then too)");
    }
    free(aside);
    return status != DPE_OK ? status
                            : dpe_journal_create(&run->journal, run->own, &opening->records,
                                                 opening->n_records, err);
}

dpe_status dpe_opening_journal(struct dpe_opening *opening, struct dpe_error *err)
{
    struct dpe_run *run = opening->run;
    bool create = !opening->has_own || opening->own.n_records == 0 || opening->own.damaged;
    size_t journal_rows = run->rows.n;
    DPE_TRY(create ? DPE_OK : open_own(opening, err));
    DPE_TRY(recover_from_table(opening, create, err));
    if (create) {
        DPE_TRY(create_own(opening, err));
    }
    if (opening->n_recovered > 0 && journal_rows > 0) {
        dpe_run_notice(run, "%s: %zu rows that the journal lacks are copied from the table",
                       run->path, opening->n_recovered);
    }
    return DPE_OK;
}
