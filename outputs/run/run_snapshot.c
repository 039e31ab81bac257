/* The table of a run, rebuilt from its rows. */
#include "outputs/h5/h5.h"
#include "outputs/run/run_internal.h"

#include <stdlib.h>

static int compare_rows(const void *a, const void *b)
{
    return dpe_row_compare(*(const struct dpe_row *const *)a, *(const struct dpe_row *const *)b);
}

static dpe_status fill_table(struct dpe_run *run, struct dpe_h5 *table,
                             const struct dpe_row **sorted, bool complete, dpe_run_fill fill,
                             void *user, struct dpe_error *err)
{
    for (size_t i = 0; i < run->rows.n; i++) {
        sorted[i] = &run->rows.rows[i];
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
    };
    dpe_status status = dpe_h5_write_common(table, &common, err);
    if (status == DPE_OK && fill != NULL) {
        status = fill(user, table, err);
    }
    return status != DPE_OK ? status : dpe_h5_write_run(table, &common, err);
}

dpe_status dpe_run_snapshot(struct dpe_run *run, bool complete, dpe_run_fill fill, void *user,
                            struct dpe_error *err)
{
    if (run->options.rank != 0) {
        return dpe_fail(err, DPE_INTERNAL, "%s: only rank 0 writes tables", run->path);
    }
    const struct dpe_row **sorted = dpe_alloc(run->rows.n, sizeof *sorted);
    struct dpe_new_file file = {.fd = -1};
    struct dpe_h5 *table = NULL;
    dpe_status status = sorted != NULL ? dpe_run_keep_journal(run, err)
                                       : dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", run->path);
    if (status != DPE_OK) {
        goto done;
    }
    status = dpe_h5_create(&table, err);
    if (status != DPE_OK) {
        goto done;
    }
    status = fill_table(run, table, sorted, complete, fill, user, err);
    if (status == DPE_OK) {
        status = dpe_new_file_open(&file, run->path, run->detached ? NULL : run->beside, err);
    }
    if (status != DPE_OK) {
        dpe_h5_close(table);
        goto done;
    }
    status = dpe_h5_finish(table, &file, err);
    if (status == DPE_OK) {
        status = dpe_run_check_table(run, err);
    }
    if (status == DPE_OK) {
        status = dpe_new_file_finish(&file, err);
    }
    if (status == DPE_OK) {
        dpe_run_see_table(run);
        run->table_current = complete;
    }
done:
    dpe_new_file_drop(&file);
    free(sorted);
    return status;
}
