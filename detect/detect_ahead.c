/* Rows made several at a time and handed out one by one, in the order of the loop. */
#include <stdlib.h>
#include <string.h>

#include "detect_tool.h"

static void drop(struct ahead *ahead)
{
    for (; ahead->next < ahead->n; ahead->next++) {
        dpe_row_free(&ahead->rows[ahead->next]);
    }
    ahead->n = ahead->next = 0;
}

void ahead_free(struct ahead *ahead)
{
    drop(ahead);
    free(ahead->rows);
    free(ahead->items);
    free(ahead->samples);
    *ahead = (struct ahead){0};
}

/* The item and those behind it of the same plan and task that are missing too. */
static int64_t gather(struct ahead *ahead, const struct dpe_work *work, const struct dpe_run *run,
                      const struct dpe_item *item, int64_t batch)
{
    const struct dpe_item *end = work->items + work->n_items;
    int64_t n = 0;
    for (const struct dpe_item *next = item;
         n < batch && next < end && next->task == item->task && next->plan == item->plan; next++) {
        if (n == 0 || dpe_run_find(run, work->tasks[next->task], work->keys[next->plan],
                                   next->sample) == NULL) {
            ahead->items[n] = *next;
            ahead->samples[n++] = next->sample;
        }
    }
    return n;
}

static dpe_status reserve(struct ahead *ahead, int64_t batch, struct dpe_error *err)
{
    if (ahead->rows != NULL) {
        return DPE_OK;
    }
    ahead->rows = dpe_alloc((size_t)batch, sizeof *ahead->rows);
    ahead->items = dpe_alloc((size_t)batch, sizeof *ahead->items);
    ahead->samples = dpe_alloc((size_t)batch, sizeof *ahead->samples);
    return ahead->rows != NULL && ahead->items != NULL && ahead->samples != NULL
               ? DPE_OK
               : dpe_fail(err, DPE_NO_MEMORY, "out of memory for %lld rows", (long long)batch);
}

dpe_status ahead_row(struct ahead *ahead, const struct dpe_work *work, const struct dpe_job *job,
                     const struct dpe_task *task, const struct dpe_item *item, struct dpe_row *row,
                     struct dpe_error *err)
{
    const struct dpe_item *known = ahead->items == NULL ? NULL : &ahead->items[ahead->next];
    if (ahead->next < ahead->n && known->task == item->task && known->plan == item->plan &&
        known->sample == item->sample && ahead->work == work) {
        *row = ahead->rows[ahead->next++];
        return DPE_OK;
    }
    drop(ahead);
    int64_t batch = job->batch > 1 ? job->batch : 1;
    dpe_status status = reserve(ahead, batch, err);
    if (status != DPE_OK) {
        return status;
    }
    int64_t n = gather(ahead, work, job->run, item, batch);
    status = dpe_task_rows(task, job->session, work->keys[item->plan], ahead->samples, n,
                           ahead->rows, err);
    if (status == DPE_OK) {
        ahead->work = work;
        ahead->n = n;
        *row = ahead->rows[ahead->next++];
    }
    return status;
}
